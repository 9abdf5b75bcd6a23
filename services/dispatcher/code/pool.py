"""Sandboxes that are ready before their turn comes, each for one source and one turn.

What a turn would wait for - namespaces, an interpreter, an event loop - has happened by then. What
would let one turn tell another has not: nothing of the source was imported, and no token is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.registry import CodeSource
from services.dispatcher.code.limits import CodeLimits
from services.dispatcher.code.sandbox import Sandbox
from services.dispatcher.code.tools import Tools
from services.runtime.logs import Log
from services.runtime.sources.store import SourceStore

_STARTS_AHEAD = 2
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Leased:
    """A sandbox and the source that is mounted in it."""

    sandbox: Sandbox
    source_hash: str
    warm: bool = False
    expiry: asyncio.TimerHandle | None = None


class SandboxPool:
    """Hands out sandboxes and takes them back. Give back each one that was taken, whatever came."""

    def __init__(self, store: SourceStore, tools: Tools, limits: CodeLimits, log: Log) -> None:
        self._store = store
        self._tools = tools
        self._limits = limits
        self._log = log
        # Least recently used source first; no source without a sandbox.
        self._ready: OrderedDict[str, deque[Leased]] = OrderedDict()
        self._starting: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        self._ahead = asyncio.Semaphore(_STARTS_AHEAD)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starts: set[asyncio.Task[Any]] = set()
        self._taken: set[Leased] = set()
        self.closed = False

    @property
    def ready(self) -> int:
        """How many wait for a turn."""
        return sum(map(len, self._ready.values()))

    @property
    def taken(self) -> int:
        """How many have a turn."""
        return len(self._taken)

    async def take(self, code: CodeSource) -> Leased:
        """A sandbox with this source, ready if there is one, else started now.

        Raises:
            LookupError: the source is not there, or no sandbox can be set up.
        """
        leased = self._pop(code.source_hash)
        if leased is None:
            leased = await self._start_now(code)
        self._taken.add(leased)
        self._busy[code.source_hash] += 1
        self.prepare(code)
        return leased

    async def give_back(self, leased: Leased) -> None:
        """End a sandbox; returns when nothing of it is left."""
        self._taken.discard(leased)
        self._busy[leased.source_hash] -= 1
        await self._end(leased)

    def prepare(self, code: CodeSource) -> None:
        """Start what will likely be needed next, in the background: one for each turn of this
        source that is under way, and one more.
        """
        name = code.source_hash
        wanted = min(self._limits.pool, self._busy[name] + 1)
        while not self.closed and len(self._ready.get(name, ())) + self._starting[name] < wanted:
            if self.ready + self._starting.total() >= self._limits.pool and not self._evict(name):
                return
            self._starting[name] += 1
            start = self._spawn(self._start_ahead(code))
            self._starts.add(start)
            start.add_done_callback(self._starts.discard)

    async def close(self) -> None:
        """End them all, those that are in use too; returns when nothing is left."""
        self.closed = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        waiting = [leased for queue in self._ready.values() for leased in queue]
        self._ready.clear()
        await asyncio.gather(
            *(self._end(leased) for leased in waiting),
            *(leased.sandbox.close() for leased in self._taken),
        )

    async def _start_now(self, code: CodeSource) -> Leased:
        if self.closed:
            raise LookupError("the dispatcher is stopping")
        # A start is never broken off: half of a sandbox has nobody who would clear it away.
        start = self._spawn(self._start(code))
        self._starts.add(start)
        start.add_done_callback(self._starts.discard)
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            self._spawn(self._end_unwanted(start))
            raise

    async def _end_unwanted(self, start: asyncio.Task[Leased]) -> None:
        with contextlib.suppress(LookupError):
            await self._end(await start)

    async def _start(self, code: CodeSource) -> Leased:
        path = await self._store.acquire(code)
        try:
            sandbox = await Sandbox.start(self._tools, path, self._limits)
        except BaseException:
            self._store.release(code.source_hash)
            raise
        return Leased(sandbox, code.source_hash)

    async def _start_ahead(self, code: CodeSource) -> None:
        name = code.source_hash
        try:
            async with self._ahead:
                if self.closed:
                    return
                leased = await self._start(code)
        except LookupError as error:
            # The next turn will start its own, and say what is wrong if that fails too.
            self._log.warning("no sandbox was made ready", source=name, error=str(error))
            return
        finally:
            self._starting[name] -= 1
        leased.warm = True
        if self.closed:
            await self._end(leased)
            return
        loop = asyncio.get_running_loop()
        leased.expiry = loop.call_later(self._limits.pool_idle_s, self._expire, leased)
        self._ready.setdefault(name, deque()).append(leased)
        self._ready.move_to_end(name)

    def _pop(self, name: str) -> Leased | None:
        while queue := self._ready.get(name):
            leased = queue.popleft()
            self._drop_if_empty(name)
            if leased.expiry is not None:
                leased.expiry.cancel()
            if leased.sandbox.is_alive:
                if name in self._ready:
                    self._ready.move_to_end(name)
                return leased
            self._spawn(self._end(leased))
        return None

    def _evict(self, wanted_for: str) -> bool:
        """Give up one of the source unused for longest; False where there is no other."""
        for name, queue in self._ready.items():
            if name != wanted_for:
                leased = queue.popleft()
                self._drop_if_empty(name)
                self._discard(leased)
                return True
        return False

    def _expire(self, leased: Leased) -> None:
        queue = self._ready.get(leased.source_hash, deque())
        if leased in queue:
            queue.remove(leased)
            self._drop_if_empty(leased.source_hash)
            self._discard(leased)

    def _drop_if_empty(self, name: str) -> None:
        if not self._ready[name]:
            del self._ready[name]

    def _discard(self, leased: Leased) -> None:
        if leased.expiry is not None:
            leased.expiry.cancel()
        self._spawn(self._end(leased))

    async def _end(self, leased: Leased) -> None:
        try:
            await leased.sandbox.close()
        finally:
            self._store.release(leased.source_hash)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
