"""A stack that is watched: its runs, its services, and whether its broker is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any

import httpx

from services.cli.connection import Connection, Where, connect
from services.cli.errors import CliError
from services.cli.stack.directory import StackDirectory
from services.cli.watching.drawing_stack import Picture
from services.cli.watching.feed import LOOK_BACK, Feed
from services.cli.watching.figures import Failure
from services.cli.watching.health import ServiceHealth, ask_services
from services.cli.watching.reaching import Broker
from services.cli.watching.runs import Runs
from services.cli.watching.telling import duration
from services.runtime.bus.errors import BusError, BusUnavailable
from services.runtime.clock import Clock

GIVE_UP_S = 600.0
_HEALTH_EVERY_S = 2.0


class StackWatch:
    """Known when entered, and kept current by `while_following`. What was known of it stays when
    its broker goes away, and is known again, without counting twice, when that comes back.
    """

    def __init__(
        self, where: Where, clock: Clock, failed: Callable[[Failure], None] | None = None
    ) -> None:
        """`failed` hears of sessions that fail."""
        self._where = where
        self._clock = clock
        self._failed = failed
        self._runs = Runs(clock)
        self._services: tuple[ServiceHealth, ...] = ()
        self._note = ""
        """Why reading does not go on though the broker answers."""
        self._connection: Connection | None = None
        self._broker: Broker | None = None
        self._feed: Feed | None = None
        self._broken: asyncio.Task[None] | None = None
        # trust_env is off: a proxy variable must not send local traffic elsewhere.
        self._http = httpx.AsyncClient(trust_env=False)

    def picture(self) -> Picture:
        """What is known now."""
        return Picture(
            at_ms=self._clock.now_ms(),
            bootstrap=self._bootstrap,
            runs=self._runs.figures(),
            has_more=self._runs.has_more,
            services=self._services,
            note=self._wrong,
        )

    async def __aenter__(self) -> StackWatch:
        """Returns with everything that is known now.

        Raises:
            CliError: there is no stack.
            BusError: its broker cannot be reached.
        """
        try:
            await self._open(connect(self._where))
            await self._ask_services()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._close()

    async def while_following(self, showing: Coroutine[Any, Any, None]) -> None:
        """Keep it current while it is shown.

        Raises:
            BusUnavailable: the broker stays away.
            whatever `showing` raises.
        """
        tasks = [
            asyncio.create_task(one)
            for one in (self._follow_broker(), self._follow_services(), showing)
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _wrong(self) -> str:
        """What is wrong with the broker; empty when nothing is."""
        return self._note or (self._broker.complaint if self._broker is not None else "")

    @property
    def _bootstrap(self) -> str:
        return "" if self._connection is None else self._connection.settings.bootstrap

    async def _follow_services(self) -> None:
        while True:
            await asyncio.sleep(_HEALTH_EVERY_S)
            await self._ask_services()

    async def _follow_broker(self) -> None:
        assert self._broker is not None
        lost_at: float | None = None
        while True:
            if await self._broker.ask():
                await self._look_elsewhere()
            elif self._broken is None or self._broken.done():
                await self._open_again(self._connection)
            now = self._clock.monotonic()
            if not self._wrong:
                lost_at = None
            elif lost_at is None:
                lost_at = now
            elif now - lost_at > GIVE_UP_S:
                raise BusUnavailable(f"given up after {duration(now - lost_at)}: {self._wrong}")
            await asyncio.sleep(self._broker.pause_s)

    async def _look_elsewhere(self) -> None:
        """A stack that was started again can have its broker at another address."""
        try:
            connection = connect(self._where)
        except CliError:
            return  # not there yet
        if connection.settings.bootstrap == self._bootstrap:
            return
        if not await Broker(connection.settings.bootstrap, self._clock).ask():
            self._runs = Runs(self._clock)  # another log
            await self._open_again(connection)

    async def _open_again(self, connection: Connection | None) -> None:
        """Read again. What is read twice counts once."""
        assert connection is not None
        try:
            await self._open(connection)
        except BusError as error:
            self._note = f"{error}; trying again"

    async def _open(self, connection: Connection) -> None:
        await self._stop_reading()
        self._connection = connection
        self._broker = Broker(connection.settings.bootstrap, self._clock)
        if complaint := await self._broker.ask():
            raise BusUnavailable(complaint)
        self._feed = feed = Feed(connection)
        await feed.follow_runs(self._runs)
        self._runs.begin(await feed.follow_sessions(self._runs, self._failed, last=LOOK_BACK))
        self._broken = asyncio.create_task(feed.wait_failed())
        self._note = ""

    async def _ask_services(self) -> None:
        info = StackDirectory(self._where.directory).read_info()
        if info is None or info.environ.get("WINDTUNNEL_BOOTSTRAP") != self._bootstrap:
            self._services = ()  # the directory says nothing of the stack that is watched
            return
        self._services = await ask_services(self._http, info.endpoints)

    async def _stop_reading(self) -> None:
        if self._broken is not None:
            self._broken.cancel()
            await asyncio.gather(self._broken, return_exceptions=True)
            self._broken = None
        if self._feed is not None:
            await self._feed.stop()
            self._feed = None

    async def _close(self) -> None:
        await self._stop_reading()
        await self._http.aclose()
