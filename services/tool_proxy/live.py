"""Sessions as this replica sees them: ahead of what it has read of the log, and each of them
worked on by one call at a time.

The session table folds what the log says. Here each session has a view that is ahead of it by
what was appended and acknowledged but not yet read back, so that a call need not wait for the
consumer. Where the log turns out to say something else, the log is right and the view is renewed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from schemas.trajectory import TrajectoryEvent
from services.runtime.clock import Clock
from services.runtime.logs import Log
from services.tool_proxy.answer import Call, Forward, Outcome
from services.tool_proxy.errors import Refused
from services.tool_proxy.passthrough import RealAnswer, outcome_of
from services.tool_proxy.rate import RateLimit
from services.tool_proxy.recording import event_of
from services.tool_proxy.repeats import Repeats
from services.tool_proxy.session import ProxyCore, SessionState, mark


class LogUnavailable(Exception):
    """The event was not acknowledged; whether it is in the log is not known."""


class Sessions(Protocol):
    """What the log says about sessions, as far as this replica has read it."""

    def get(self, session_id: str) -> SessionState | None:
        """The session's state; None when it is unknown, over, or not this replica's."""

    async def wait_for(self, session_id: str, timeout_s: float) -> SessionState | None:
        """The same, waiting so long for the session's start to be read."""

    def has_finished(self, session_id: str) -> bool:
        """Whether the session is known to be over."""

    def owns(self, session_id: str) -> bool:
        """Whether the session's partition is this replica's and has been read to its end."""


@dataclass(eq=False, slots=True)
class UnderWay:
    """A call that is at a real tool: `done` is set when it is over, however it went."""

    call: Call
    alike: bytes
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, eq=False, slots=True)
class Answered:
    """A call that a real tool has answered, and that is not in the log yet."""

    call: Call
    forward: Forward
    answer: RealAnswer
    latency_ms: int

    def event(self, state: SessionState, at_ms: int) -> tuple[TrajectoryEvent, Outcome]:
        """The event that records it, as the session stands now."""
        outcome = outcome_of(state, self.call, self.forward, self.answer)
        latency_ms = self.latency_ms + outcome.delay_ms
        return event_of(state, self.call, outcome, at_ms=at_ms, latency_ms=latency_ms), outcome


@dataclass(slots=True)
class Live:
    """A session here. `view` is what calls are decided by; `lock` is held while it may change."""

    confirmed: SessionState
    view: SessionState
    rate: RateLimit
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    failing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held, before `lock`, from deciding to recording a call that a failure may be meant for."""
    waiting: int = 0
    checked: int = 0
    repeats: Repeats = field(default_factory=Repeats)
    pending: TrajectoryEvent | None = None
    """An event of which it is not known whether it is in the log."""
    under_way: list[UnderWay] = field(default_factory=list)
    answered: deque[Answered] = field(default_factory=deque)
    """What could not be recorded when it should have been; it is before anything else is."""

    @property
    def idle(self) -> bool:
        """Whether nothing is lost when it is forgotten; it can be made anew from the log."""
        return not (self.waiting or self.under_way)

    def renew(self, confirmed: SessionState) -> None:
        """Take the log's word for it where the view differs, or when the session was read anew."""
        marks = confirmed.marks
        if self.confirmed is confirmed:
            news = islice(marks.items(), self.checked, None)
            if len(marks) == self.checked or all(self.view.marks.get(s) == d for s, d in news):
                self.checked = len(marks)
                return
        self.confirmed, self.view, self.checked = confirmed, confirmed.copy(), len(marks)

    def same_under_way(self, call: Call, alike: bytes) -> UnderWay | None:
        """The call under way that this one repeats: one with its key, or an equal one of an
        earlier posting of its turn.

        Raises:
            Refused: idempotency_key_reused, when the key stands for another call.
        """
        for other in self.under_way:
            key = call.idempotency_key
            if key is not None and other.call.idempotency_key == key:
                if other.alike != alike:
                    raise Refused("idempotency_key_reused")
                return other
            earlier = other.call.turn == call.turn and other.call.posting < call.posting
            if earlier and other.alike == alike:
                return other
        return None

    def alike_before(self, call: Call, alike: bytes) -> int:
        """How many equal calls of the same turn there have been."""
        if call.turn < self.view.turn:
            return self.view.calls  # of its own turn nothing is kept: a number nobody else has
        recorded = self.view.turn_calls if call.turn == self.view.turn else []
        return sum(entry.likeness == alike for entry in recorded) + sum(
            other.alike == alike and other.call.turn == call.turn for other in self.under_way
        )


class LiveSessions:
    """The sessions that this replica is working on."""

    def __init__(
        self,
        core: ProxyCore,
        sessions: Sessions,
        record: Callable[[TrajectoryEvent], Awaitable[None]],
        clock: Clock,
        log: Log,
        *,
        start_wait_s: float,
        waiting_calls: int,
    ) -> None:
        """`record` returns when the event is durable and raises LogUnavailable when that is not
        known; `start_wait_s` is for a session's start to be read."""
        self._core = core
        self._sessions = sessions
        self._record = record
        self._clock = clock
        self._log = log
        self._start_wait_s = start_wait_s
        self._waiting_calls = waiting_calls
        self._live: OrderedDict[str, Live] = OrderedDict()

    @asynccontextmanager
    async def admitted(self, session_id: str) -> AsyncIterator[Live]:
        """A session in which one more request may wait. Raises Refused."""
        live = self._live_of(session_id, await self._session(session_id))
        live.rate.hit()
        if live.waiting - len(live.under_way) > self._waiting_calls:
            raise Refused("session_busy")
        live.waiting += 1
        try:
            yield live
        finally:
            live.waiting -= 1

    @asynccontextmanager
    async def entered(self, session_id: str) -> AsyncIterator[Live]:
        """A session in which the simulated user does something: no bound on the agent's requests
        concerns that. Raises Refused."""
        live = self._live_of(session_id, await self._session(session_id))
        live.waiting += 1
        try:
            yield live
        finally:
            live.waiting -= 1

    @asynccontextmanager
    async def locked(self, live: Live) -> AsyncIterator[None]:
        """Wait for the session's turn, with a view that is up to date. Raises Refused."""
        async with live.lock:
            live.renew(await self._session(live.view.session_id))
            await self._settle(live)
            yield

    async def append(self, live: Live, event: TrajectoryEvent) -> None:
        """Bring an event into the log, then into the view. The lock must be held.

        Raises:
            Refused: log_unavailable. The event is kept, and brought in before any other.
        """
        live.pending = event
        try:
            await self._record(event)
        except LogUnavailable as error:
            self._log.warning("event not acknowledged", id=event.event_id, error=str(error))
            raise Refused("log_unavailable") from None
        self._core.apply(live.view, event)
        live.pending = None

    async def _settle(self, live: Live) -> None:
        """Bring in what should be in the log: first an event of which it is not known whether it
        is, then what real tools have answered.

        An event is appended again unchanged: readers ignore the second of two equal ids, so it is
        in the log once, and the call that it records can be answered when it is repeated.
        """
        event = live.pending
        if event is not None:
            if event.step in live.view.marks:
                live.pending = None
            else:
                await self.append(live, event)
            if live.view.marks.get(event.step) == mark(event):
                live.repeats.undelivered.add(event.step)
        while live.answered:
            # From here on it is kept as the pending event.
            event, _ = live.answered.popleft().event(live.view, self._clock.now_ms())
            await self.append(live, event)
            live.repeats.undelivered.add(event.step)

    async def _session(self, session_id: str) -> SessionState:
        state = self._sessions.get(session_id)
        if state is None and not self._sessions.has_finished(session_id):
            state = await self._sessions.wait_for(session_id, self._start_wait_s)
        if state is None and not self._sessions.has_finished(session_id):
            owned = self._sessions.owns(session_id)
            raise Refused("session_not_ready" if owned else "session_moved")
        if state is None or state.ended:
            raise Refused("token_invalid")
        return state

    def _live_of(self, session_id: str, confirmed: SessionState) -> Live:
        live = self._live.get(session_id)
        if live is None:
            for old in list(islice(self._live, 2)):
                if self._live[old].idle and self._sessions.get(old) is None:
                    del self._live[old]
                else:
                    self._live.move_to_end(old)
            rate = RateLimit(confirmed.brief.calls_per_minute, self._clock.monotonic)
            live = Live(confirmed, confirmed.copy(), rate, checked=len(confirmed.marks))
            self._live[session_id] = live
        return live
