"""Following a run: its progress as it comes, then its verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TypeVar

from schemas.gate import GateStatus
from schemas.runs import RunState, RunStatus
from schemas.topics import GATE_STATUS, RUN_STATUS
from services.cli.connection import Connection
from services.cli.records import Latest

T = TypeVar("T")
REJECTED = frozenset({RunState.REJECTED, RunState.FAILED})


class RunFollower:
    """Reads `run-status` and `gate-status` for as long as it is entered."""

    def __init__(self, connection: Connection) -> None:
        self._statuses = Latest(connection, RUN_STATUS, RunStatus)
        self._verdicts = Latest(connection, GATE_STATUS, GateStatus)
        self._stack = AsyncExitStack()
        self._news = asyncio.Event()
        self._failed: asyncio.Future[list[None]] | None = None
        for table in (self._statuses, self._verdicts):
            table.changed = lambda key, value: self._news.set()

    async def __aenter__(self) -> RunFollower:
        """Returns when both topics have been read to their ends. Raises BusError."""
        try:
            tables = [
                await self._stack.enter_async_context(table.followed())
                for table in (self._statuses, self._verdicts)
            ]
        except BaseException:
            await self._stack.aclose()
            raise
        failed = asyncio.gather(*(table.wait_failed() for table in tables))
        failed.add_done_callback(lambda _: self._news.set())
        self._failed = failed
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._failed is not None:
            self._failed.cancel()
            await asyncio.gather(self._failed, return_exceptions=True)
        await self._stack.aclose()

    def status(self, run_id: str) -> RunStatus | None:
        return self._statuses.get(run_id)

    def verdict(self, run_id: str) -> GateStatus | None:
        return self._verdicts.get(run_id)

    async def wait_verdict(
        self,
        run_id: str,
        timeout_s: float | None,
        progress: Callable[[RunStatus], None] = lambda status: None,
    ) -> GateStatus | None:
        """The run's verdict, or None when the timeout has passed. `progress` hears of every status
        of the run, the current one first. Raises BusError when reading ends.
        """
        seen: RunStatus | None = None

        def verdict() -> GateStatus | None:
            nonlocal seen
            status = self.status(run_id)
            if status is not None and status is not seen:
                seen = status
                progress(status)
            return self.verdict(run_id)

        return await self._until(verdict, timeout_s)

    async def wait_stored(self, run_id: str, timeout_s: float) -> bool:
        """Whether the run's rows are in the store before the timeout. Raises as above."""

        def stored() -> bool | None:
            status = self.status(run_id)
            return True if status is not None and status.stored else None

        return await self._until(stored, timeout_s) or False

    async def _until(self, look: Callable[[], T | None], timeout_s: float | None) -> T | None:
        """What `look` finds when something new was read; None when the timeout has passed."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._news.clear()
                    if self._failed is not None and self._failed.done():
                        self._failed.result()
                    if (found := look()) is not None:
                        return found
                    await self._news.wait()
        except TimeoutError:
            return None
