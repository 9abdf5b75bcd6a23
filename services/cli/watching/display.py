"""One run's progress on stderr while it goes on: a panel on a terminal, else plain lines.

A run never fails for want of its display: what goes wrong with that is told once, and the run is
followed on.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live

from schemas.runs import RunStatus
from schemas.scores import SessionScored
from schemas.trajectory import TrajectoryEvent
from services.cli.connection import Connection
from services.cli.escaping import printable
from services.cli.output import say
from services.cli.watching.drawing import draw_run
from services.cli.watching.feed import Feed
from services.cli.watching.figures import Failure, Known
from services.cli.watching.fold import RunFold
from services.cli.watching.reaching import Broker, told_in_words
from services.cli.watching.telling import Lines
from services.runtime.bus.errors import BusError
from services.runtime.clock import Clock, SystemClock

_DRAWN_EVERY_S = 0.25
_TOLD_EVERY_S = 1.0


def live_console(stream: TextIO) -> Console | None:
    """A console to draw on; None when what is shown is not looked at on a terminal."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return None
    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    can_draw = not console.is_dumb_terminal and console.encoding.startswith("utf")
    return console if can_draw else None


class RunDisplay:
    """Shows the run while it is entered. Leave it before printing anything else."""

    def __init__(
        self,
        run_id: str,
        sessions: Connection | None = None,
        *,
        clock: Clock | None = None,
        console: Console | None = None,
    ) -> None:
        """With `sessions`, what the run's sessions do is read there, from when this is entered:
        enter it before the run is requested.
        """
        self._clock = clock or SystemClock()
        self._connection = sessions
        self._fold = RunFold(run_id, Known.NONE if sessions is None else Known.ALL)
        self._console = console or live_console(sys.stderr)
        self._lines = Lines(say, self._clock, rates=sessions is not None)
        self._live: Live | None = None
        self._feed: Feed | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._broker: Broker | None = None
        self._quiet = ExitStack()

    async def __aenter__(self) -> RunDisplay:
        if self._connection is not None:
            self._feed = Feed(self._connection)
            try:
                await self._feed.follow_sessions(self, self._failed)
            except BusError as error:
                await self._blind(error)
            except BaseException:
                await self._feed.stop()
                raise
            else:
                self._tasks.append(asyncio.create_task(self._watch_feed(self._feed)))
            self._quiet.enter_context(told_in_words())
            self._broker = Broker(self._connection.settings.bootstrap, self._clock)
            self._tasks.append(asyncio.create_task(self._watch_broker(self._broker)))
        if self._console is not None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.vertical_overflow = "crop"
            self._live.start()
        if self._live is not None or self._connection is not None:
            self._tasks.append(asyncio.create_task(self._tick()))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stop_live()
        self._lines.settle(is_last=True)
        if self._feed is not None:
            await self._feed.stop()
        self._quiet.close()

    def status(self, status: RunStatus) -> None:
        """The run is this far."""
        self._fold.status(status)
        if self._live is None:
            self._lines.show(self._fold.figures(self._clock.now_ms()))

    # What the feed hands on.

    def wants(self, run_id: str) -> bool:
        return run_id == self._fold.run_id

    def event(self, event: TrajectoryEvent) -> None:
        self._fold.event(event)

    def score(self, score: SessionScored) -> Failure | None:
        return self._fold.score(score)

    def _failed(self, failure: Failure) -> None:
        if self._live is None:
            self._lines.failed(failure)

    def _draw(self) -> None:
        now_ms = self._clock.now_ms()
        figures = self._fold.figures(now_ms)
        if self._live is None:
            if figures.state:  # else there is nothing to tell yet
                self._lines.show(figures)
            return
        size = self._live.console.size
        # The cursor stands below the panel.
        picture = draw_run(
            figures,
            now_ms,
            size.width,
            size.height - 1,
            self._broker.complaint if self._broker is not None else "",
        )
        self._live.update(picture, refresh=True)

    async def _tick(self) -> None:
        try:
            while True:
                self._draw()
                await asyncio.sleep(_TOLD_EVERY_S if self._live is None else _DRAWN_EVERY_S)
        except Exception as error:
            self._stop_live()
            say(f"the display has failed, the run goes on: {error!r}")

    def _stop_live(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with suppress(Exception):  # it draws a last time, which may be what has failed
                live.stop()

    async def _watch_feed(self, feed: Feed) -> None:
        try:
            await feed.wait_failed()
        except Exception as error:
            await self._blind(error)

    async def _watch_broker(self, broker: Broker) -> None:
        was_lost = False
        while True:
            complaint = await broker.ask()
            if bool(complaint) != was_lost and self._live is None:
                say(complaint or "the broker answers again")
            was_lost = bool(complaint)
            await asyncio.sleep(broker.pause_s)

    async def _blind(self, error: Exception) -> None:
        self._fold.known = Known.NONE
        say(f"failures and rates are not shown, only progress: {printable(str(error))}")
        if self._feed is not None:
            await self._feed.stop()
