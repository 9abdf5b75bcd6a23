"""Tool calls and trace events of the sessions that this replica owns: durable before visible.

Simulated tools answer one call of a session at a time. A real tool works outside the session's
lock, so that a slow one does not hold up parallel calls; see docs/passthrough.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace

import orjson

from schemas.trajectory import TRACE, USER, ToolCalled, TraceEvent, TrajectoryEvent
from services.runtime import metrics as m
from services.runtime.clock import Clock
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.telemetry import Telemetry
from services.runtime.telemetry_spans import tool_span, trace_span
from services.tool_proxy import rules
from services.tool_proxy.answer import (
    Call,
    Forward,
    Made,
    Outcome,
    Question,
    execute,
    refused,
    takes_time,
)
from services.tool_proxy.errors import Refused
from services.tool_proxy.jsons import JsonObject
from services.tool_proxy.live import (
    Answered,
    Live,
    LiveSessions,
    Sessions,
    UnderWay,
)
from services.tool_proxy.own_time import OwnTime
from services.tool_proxy.passthrough import CallRealTool, RealAnswer, RealCall, key_of
from services.tool_proxy.recording import Reply, event_of, reply_of
from services.tool_proxy.repeats import arrived, is_recorded_trace, recorded_call
from services.tool_proxy.session import (
    Posting,
    ProxyCore,
    SessionState,
    likeness,
    trace_likeness,
)
from services.tool_proxy.user_calls import UserCalls, answer_user

_Done = tuple[ToolCalled, Outcome]
_Recorded = tuple[TrajectoryEvent, Outcome]
_Decided = _Recorded | Forward | Question
AskModel = Callable[[SessionState, Call, Question], Awaitable[Made]]


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """The bounds of one replica."""

    start_wait_s: float = 5.0
    world_timeout_s: float = 10.0
    waiting_calls: int = 32
    traces: int = 1000
    real_calls: int = 512
    real_calls_of_session: int = 16


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace event as it was received."""

    type: str
    payload: JsonObject
    posting: Posting
    turn: int
    conversation: int
    actor: str | None = None
    version: int = 1
    parent: int | None = None
    """Id of the agent's span that reported it, if the agent says."""


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
        real_tools: CallRealTool | None = None,
        ask_model: AskModel | None = None,
        limits: ProxyLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        telemetry: Telemetry | None = None,
    ) -> None:
        """`record` returns when the event is durable and raises LogUnavailable when that is not
        known; `executor` runs the code of worlds; `real_tools` is the way to tools that are not
        simulated, and `ask_model` the model that plays tools, None where there are none."""
        self._sessions = sessions
        self._record = record
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._executor = executor
        self._limits = limits or ProxyLimits()
        self._sleep = sleep
        self._telemetry = telemetry
        self._live = LiveSessions(
            core, sessions, self._recorded, clock, log,
            start_wait_s=self._limits.start_wait_s, waiting_calls=self._limits.waiting_calls,
        )  # fmt: skip
        self._real_tools = real_tools or _no_real_tool
        self._ask_model = ask_model or _no_model
        self._real_calls: set[asyncio.Task[_Done]] = set()
        self.user_calls = UserCalls(self._live, self._answer, self._account, clock)

    def has_ended(self, session_id: str) -> bool:
        """Whether the session is known to be over: its tokens are worth nothing any more."""
        return self._sessions.has_finished(session_id)

    async def call(self, session_id: str, call: Call) -> Reply:
        """The answer to a tool call; when this returns, the call is in the log.

        Raises:
            Refused: see the error table; then nothing was recorded.
        """
        time = OwnTime(self._clock)
        alike = likeness(call.tool, call.arguments)
        async with self._live.admitted(session_id) as live:
            may_fail = rules.may_fail(live.view.brief, call.tool, call.arguments)
            async with live.failing if may_fail else nullcontext():
                done = await self._one(live, call, alike, time)
                while isinstance(done, UnderWay):
                    with time.elsewhere():
                        await done.done.wait()
                    done = await self._one(live, call, alike, time)
                if isinstance(done, asyncio.Task):
                    # It goes on, and is recorded, if whoever waits for it here goes away.
                    done = await asyncio.shield(done)
        if isinstance(done, Reply):
            return done
        called, outcome = done
        if outcome.delay_ms:
            # Outside the session's turn: a slow answer must not hold up parallel calls.
            await self._sleep(outcome.delay_ms / 1000)
        return reply_of(called)

    async def _one(
        self, live: Live, call: Call, alike: bytes, time: OwnTime
    ) -> Reply | _Done | UnderWay | asyncio.Task[_Done]:
        """Decide what becomes of a call: it was recorded before, is under way already, is
        answered and recorded here, or goes to a real tool."""
        async with self._live.locked(live):
            view = live.view
            arrived(view, live.repeats, call.turn, call.posting)
            earlier = recorded_call(
                view, live.repeats, turn=call.turn, posting=call.posting, alike=alike,
                idempotency_key=call.idempotency_key,
            )  # fmt: skip
            if earlier is not None:
                return reply_of(earlier)
            if (same := live.same_under_way(call, alike)) is not None:
                return same
            if view.calls + len(live.under_way) > view.brief.max_calls:
                # The first call over the limit is in the log, where it ends the session.
                raise Refused("tool_call_limit")
            answered = await self._answer(view, call, time, len(live.under_way))
            if isinstance(answered, Forward):
                return self._send(live, call, alike, answered, time)
            event, outcome = answered
            await self._live.append(live, event)
            return self._account(view.session_id, event, outcome, time, call.parent)

    def _send(
        self, live: Live, call: Call, alike: bytes, forward: Forward, time: OwnTime
    ) -> asyncio.Task[_Done]:
        """Send a call to its real tool, in a task of its own."""
        if len(live.under_way) >= self._limits.real_calls_of_session:
            raise Refused("session_busy")
        if len(self._real_calls) >= self._limits.real_calls:
            raise Refused("overloaded")
        session_id = live.view.session_id
        key = key_of(session_id, call, alike, live.alike_before(call, alike))
        one = UnderWay(call, alike)
        real = RealCall(call.tool, forward.spec, call.raw, key, session_id)
        live.under_way.append(one)
        task = asyncio.create_task(self._real(live, one, forward, real, time))
        self._real_calls.add(task)
        task.add_done_callback(self._returned)
        return task

    async def _real(
        self, live: Live, one: UnderWay, forward: Forward, real: RealCall, time: OwnTime
    ) -> _Done:
        """Have a real tool answer, outside the session's lock, and record it, within it.

        Once made, a call is recorded even if its turn was posted again meanwhile: it has had its
        effect. Where the session has ended meanwhile there is nothing left to record it in.
        """
        try:
            with time.elsewhere():
                answer = await self._real_tools(real)
            mine = Answered(one.call, forward, answer, time.elapsed_ms())
            kept = False
            try:
                async with self._live.locked(live):
                    event, outcome = mine.event(live.view, self._clock.now_ms())
                    kept = True
                    await self._live.append(live, event)
                    return self._account(real.session_id, event, outcome, time, one.call.parent)
            except Refused as refused:
                if not kept:
                    live.answered.append(mine)
                self._log.warning(
                    "a real tool's answer could not be recorded", session=real.session_id,
                    tool=real.tool, why=refused.row.code,
                )  # fmt: skip
                raise
        finally:
            live.under_way.remove(one)
            one.done.set()

    def _returned(self, task: asyncio.Task[_Done]) -> None:
        self._real_calls.discard(task)
        if not task.cancelled():
            task.exception()  # whoever made the call may be gone

    async def close(self, timeout_s: float) -> None:
        """Wait for calls at real tools, and give up those that take longer."""
        if self._real_calls:
            _, late = await asyncio.wait(set(self._real_calls), timeout=timeout_s)
            for task in late:
                task.cancel()

    async def trace(self, session_id: str, traces: Sequence[Trace]) -> None:
        """Record trace events of one posting, next to each other in their order; when this
        returns, they are in the log.

        Raises:
            Refused: see the error table. None of them counts then; what is in the log in spite of
                log_unavailable is not recorded again when the request is repeated.
        """
        posting, turn = traces[0].posting, traces[0].turn
        async with self._live.admitted(session_id) as live, self._live.locked(live):
            repeats = live.repeats
            arrived(live.view, repeats, turn, posting)
            consumed, undelivered = set(repeats.consumed), set(repeats.undelivered)
            likenesses = [trace_likeness(t.type, t.payload, t.actor) for t in traces]
            new = [
                trace for trace, alike in zip(traces, likenesses, strict=True)
                if not is_recorded_trace(
                    live.view, repeats, turn=turn, posting=posting, alike=alike
                )
            ]  # fmt: skip
            if live.view.traces + len(new) > self._limits.traces:
                raise Refused("trace_limit")
            written: set[str] = set()
            try:
                for trace in new:
                    event = self._traced(live.view, trace)
                    await self._live.append(live, event)
                    written.add(event.step)
                    self._tell_trace(event, trace.parent)
            except Refused:
                repeats.consumed, repeats.undelivered = consumed, undelivered | written
                raise

    def _traced(self, view: SessionState, trace: Trace) -> TrajectoryEvent:
        number = view.traces + 1
        return TrajectoryEvent(
            event_id=f"{view.session_id}:x{number}",
            session_id=view.session_id,
            run_id=view.run_id,
            kind=TRACE,
            conversation=trace.conversation,
            turn=trace.turn,
            at_ms=self._clock.now_ms(),
            trace=TraceEvent(
                number=number,
                type=trace.type,
                payload=orjson.dumps(trace.payload).decode(),
                version=trace.version,
                actor=trace.actor,
                after_call=view.calls,
                dispatch_id=trace.posting.dispatch_id,
                dispatched_at_ms=trace.posting.issued_at_ms,
            ),
        )

    async def _answer(
        self, view: SessionState, call: Call, time: OwnTime, under_way: int
    ) -> tuple[TrajectoryEvent, Outcome] | Forward:
        def record(outcome: Outcome) -> _Recorded:
            event = event_of(
                view, call, outcome,
                at_ms=self._clock.now_ms(), latency_ms=time.elapsed_ms() + outcome.delay_ms,
            )  # fmt: skip
            return event, outcome

        def work(made: Made | None = None) -> _Decided:
            if call.requestor == USER:
                return record(answer_user(view, call))
            decided = execute(view, call, under_way=under_way, made=made)
            if isinstance(decided, Forward | Question):
                return decided
            usage = made.usage if made is not None else None
            return record(replace(decided, usage=usage))

        done = await self._worked(work, record) if takes_time(view, call) else work()
        if isinstance(done, Question):
            with time.elsewhere():
                made = await self._ask_model(view, call, done)
            done = work(made)
        assert not isinstance(done, Question)  # it is asked once, and then has been
        return done

    async def _worked(
        self, work: Callable[[], _Decided], record: Callable[[Outcome], _Recorded]
    ) -> _Decided:
        """What may take its time, off the event loop and within bounds."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        try:
            return await asyncio.wait_for(running, self._limits.world_timeout_s)
        except TimeoutError:
            fault = f"no answer within {self._limits.world_timeout_s:g} s"
            return record(refused("world_failed", fault=fault))

    async def _recorded(self, event: TrajectoryEvent) -> None:
        """Record an event and count it: whichever request it is that brings it into the log."""
        await self._record(event)
        called = event.tool_called
        if called is None:
            return
        kind = called.injection.kind if called.injection else ""
        self._metrics.add(m.TOOL_CALLS, source=called.source, injection=kind)
        self._metrics.observe(m.TOOL_SECONDS, called.latency_ms / 1000, source=called.source)
        if called.error_code is not None:
            self._metrics.add(m.TOOL_REFUSALS, code=called.error_code)

    def _account(
        self,
        session_id: str,
        event: TrajectoryEvent,
        outcome: Outcome,
        time: OwnTime,
        parent: int | None = None,
    ) -> _Done:
        called = event.tool_called
        assert called is not None
        self._metrics.observe(m.TOOL_OVERHEAD, time.own_s(), source=called.source)
        if outcome.fault:
            self._log.error(
                "tool failed", session=session_id, tool=called.tool, fault=outcome.fault
            )
        if (telemetry := self._telemetry) is not None:
            telemetry.record(
                lambda: [
                    tool_span(
                        event, parent=parent, delay_ms=outcome.delay_ms,
                        contents=telemetry.contents,
                    )
                ]
            )  # fmt: skip
        return called, outcome

    def _tell_trace(self, event: TrajectoryEvent, parent: int | None) -> None:
        if self._telemetry is not None:
            self._telemetry.record(lambda: [trace_span(event, parent)])


async def _no_real_tool(call: RealCall) -> RealAnswer:
    return RealAnswer(error_code="tool_unavailable", fault="no real tools can be reached from here")


async def _no_model(state: SessionState, call: Call, question: Question) -> Made:
    return Made(fault="no model plays tools here: set WINDTUNNEL_WORLD_MODEL")
