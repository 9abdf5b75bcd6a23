"""The shell around the pure parts: one call at a time per session, durable before visible.

The session table folds what the log says. Here each session has a view that is ahead of it by
what was appended and acknowledged but not yet read back, so that a call need not wait for the
consumer. Where the log turns out to say something else, the log is right and the view is renewed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import orjson

from schemas.trajectory import TRACE, ToolCalled, TraceEvent, TrajectoryEvent
from services.runtime import metrics as m
from services.runtime.clock import Clock
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.tool_proxy.answer import (
    Call,
    Outcome,
    Reply,
    event_of,
    execute,
    needs_world,
    refused,
    reply_of,
)
from services.tool_proxy.errors import Refused
from services.tool_proxy.jsons import JsonObject
from services.tool_proxy.rate import RateLimit
from services.tool_proxy.repeats import Repeats, arrived, is_recorded_trace, recorded_call
from services.tool_proxy.session import (
    Posting,
    ProxyCore,
    SessionState,
    likeness,
    mark,
    trace_likeness,
)


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


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """The bounds of one replica."""

    start_wait_s: float = 5.0
    world_timeout_s: float = 10.0
    waiting_calls: int = 32
    traces: int = 1000


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace event as it was received."""

    type: str
    payload: JsonObject
    posting: Posting
    turn: int
    conversation: int
    actor: str | None = None


@dataclass(slots=True)
class _Live:
    """What this process holds of a session besides its log."""

    confirmed: SessionState
    view: SessionState
    rate: RateLimit
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    checked: int = 0
    repeats: Repeats = field(default_factory=Repeats)
    pending: TrajectoryEvent | None = None


class ToolProxy:
    """Answers calls and records trace events of the sessions that this replica owns."""

    def __init__(
        self,
        *,
        core: ProxyCore,
        sessions: Sessions,
        record: Callable[[TrajectoryEvent], Awaitable[None]],
        clock: Clock,
        metrics: Metrics,
        log: Log,
        executor: Executor,
        limits: ProxyLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`record` returns when the event is durable and raises LogUnavailable when that is not
        known; `executor` runs the code of worlds."""
        self._core = core
        self._sessions = sessions
        self._record = record
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._executor = executor
        self._limits = limits or ProxyLimits()
        self._sleep = sleep
        self._live: OrderedDict[str, _Live] = OrderedDict()

    async def call(self, session_id: str, call: Call) -> Reply:
        """The answer to a tool call; when this returns, the call is in the log.

        Raises:
            Refused: see the error table; then nothing was recorded.
        """
        started = self._clock.monotonic()
        async with self._turn_of(session_id, call.turn, call.posting) as live:
            earlier = recorded_call(
                live.view, live.repeats, turn=call.turn, posting=call.posting,
                alike=likeness(call.tool, call.arguments), idempotency_key=call.idempotency_key,
            )  # fmt: skip
            if earlier is not None:
                return reply_of(earlier)
            if live.view.calls > live.view.brief.max_calls:
                # The first call over the limit is in the log, where it ends the session.
                raise Refused("tool_call_limit")
            event, outcome = await self._answer(live.view, call, started)
            await self._append(live, event)
        called = event.tool_called
        assert called is not None
        self._account(called)
        if outcome.fault:
            self._log.error("tool failed", session=session_id, tool=call.tool, fault=outcome.fault)
        if outcome.delay_ms:
            # Outside the session's turn: a slow answer must not hold up parallel calls.
            await self._sleep(outcome.delay_ms / 1000)
        return reply_of(called)

    async def trace(self, session_id: str, trace: Trace) -> None:
        """Record a trace event; when this returns, it is in the log.

        Raises:
            Refused: see the error table; then nothing was recorded.
        """
        async with self._turn_of(session_id, trace.turn, trace.posting) as live:
            view = live.view
            alike = trace_likeness(trace.type, trace.payload, trace.actor)
            if is_recorded_trace(
                view, live.repeats, turn=trace.turn, posting=trace.posting, alike=alike
            ):
                return
            if view.traces >= self._limits.traces:
                raise Refused("trace_limit")
            number = view.traces + 1
            event = TrajectoryEvent(
                event_id=f"{session_id}:x{number}",
                session_id=session_id,
                run_id=view.run_id,
                kind=TRACE,
                conversation=trace.conversation,
                turn=trace.turn,
                at_ms=self._clock.now_ms(),
                trace=TraceEvent(
                    number=number,
                    type=trace.type,
                    payload=orjson.dumps(trace.payload).decode(),
                    actor=trace.actor,
                    after_call=view.calls,
                    dispatch_id=trace.posting.dispatch_id,
                    dispatched_at_ms=trace.posting.issued_at_ms,
                ),
            )
            await self._append(live, event)

    async def _session(self, session_id: str) -> SessionState:
        state = self._sessions.get(session_id)
        if state is None and not self._sessions.has_finished(session_id):
            state = await self._sessions.wait_for(session_id, self._limits.start_wait_s)
        if state is None and not self._sessions.has_finished(session_id):
            owned = self._sessions.owns(session_id)
            raise Refused("session_not_ready" if owned else "session_moved")
        if state is None or state.ended:
            raise Refused("token_invalid")
        return state

    @asynccontextmanager
    async def _turn_of(self, session_id: str, turn: int, posting: Posting) -> AsyncIterator[_Live]:
        """Wait for the session's turn, with a view that is up to date."""
        live = self._live_of(session_id, await self._session(session_id))
        live.rate.hit()
        if live.waiting > self._limits.waiting_calls:
            raise Refused("session_busy")
        live.waiting += 1
        try:
            async with live.lock:
                confirmed = await self._session(session_id)
                _renew(live, confirmed)
                await self._settle(live)
                arrived(live.view, live.repeats, turn, posting)
                yield live
        finally:
            live.waiting -= 1

    def _live_of(self, session_id: str, confirmed: SessionState) -> _Live:
        live = self._live.get(session_id)
        if live is None:
            for old in list(islice(self._live, 2)):
                if self._live[old].waiting == 0 and self._sessions.get(old) is None:
                    del self._live[old]
                else:
                    self._live.move_to_end(old)
            rate = RateLimit(confirmed.brief.calls_per_minute, self._clock.monotonic)
            live = _Live(confirmed, confirmed.copy(), rate, checked=len(confirmed.marks))
            self._live[session_id] = live
        return live

    async def _settle(self, live: _Live) -> None:
        """Find out about an event of which it is not known whether it is in the log.

        It is appended again, unchanged: readers ignore the second of two equal ids, so it is in
        the log once, and the call that it records can be answered when it is repeated.
        """
        event = live.pending
        if event is None:
            return
        if event.step in live.view.marks:
            live.pending = None
        else:
            await self._append(live, event)
        if live.view.marks.get(event.step) == mark(event):
            live.repeats.undelivered.add(event.step)

    async def _append(self, live: _Live, event: TrajectoryEvent) -> None:
        live.pending = event
        try:
            await self._record(event)
        except LogUnavailable as error:
            self._log.warning("event not acknowledged", id=event.event_id, error=str(error))
            raise Refused("log_unavailable") from None
        self._core.apply(live.view, event)
        live.pending = None

    async def _answer(
        self, view: SessionState, call: Call, started: float
    ) -> tuple[TrajectoryEvent, Outcome]:
        def record(outcome: Outcome) -> TrajectoryEvent:
            elapsed_ms = round((self._clock.monotonic() - started) * 1000)
            return event_of(
                view, call, outcome,
                at_ms=self._clock.now_ms(), latency_ms=elapsed_ms + outcome.delay_ms,
            )  # fmt: skip

        def work() -> tuple[TrajectoryEvent, Outcome]:
            outcome = execute(view, call)
            return record(outcome), outcome

        if not needs_world(view, call):
            return work()
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.wait_for(running, self._limits.world_timeout_s)
        except TimeoutError:
            fault = f"no answer within {self._limits.world_timeout_s:g} s"
            outcome = refused("world_failed", fault=fault)
            return record(outcome), outcome

    def _account(self, called: ToolCalled) -> None:
        kind = called.injection.kind if called.injection else ""
        self._metrics.add(m.TOOL_CALLS, source=called.source, injection=kind)
        self._metrics.observe(m.TOOL_SECONDS, called.latency_ms / 1000, source=called.source)
        if called.error_code is not None:
            self._metrics.add(m.TOOL_REFUSALS, code=called.error_code)


def _renew(live: _Live, confirmed: SessionState) -> None:
    """Take the log's word for it where the view differs, or when the session was read anew."""
    marks = confirmed.marks
    if live.confirmed is confirmed:
        news = islice(marks.items(), live.checked, None)
        if len(marks) == live.checked or all(live.view.marks.get(s) == d for s, d in news):
            live.checked = len(marks)
            return
    live.confirmed, live.view, live.checked = confirmed, confirmed.copy(), len(marks)
