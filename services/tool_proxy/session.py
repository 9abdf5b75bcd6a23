"""What the proxy knows about a session: a pure fold over the session's events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import ValidationError

from schemas import merge_patch
from schemas.briefs import ToolBrief, ToolSpec
from schemas.errors import DecodeError
from schemas.trajectory import (
    SESSION_ENDED,
    SESSION_STARTED,
    TOOL_CALLED,
    TRACE,
    ToolCalled,
    TraceEvent,
    TrajectoryEvent,
)
from services.tool_proxy import rules
from services.tool_proxy.jsons import canonical, patched, state_hash
from services.tool_proxy.world import World

KINDS = frozenset({SESSION_STARTED, TOOL_CALLED, TRACE, SESSION_ENDED})
"""The events the proxy needs; others may be skipped undecoded."""
UNSELECTED = frozenset(
    {"tool_unknown", "arguments_invalid", "tool_call_limit", "tool_schema_invalid",
     "world_unknown"}
)  # fmt: skip
"""Calls refused with these never reached the rules."""
MAX_STATE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class Posting:
    """One posting of a turn to the agent; later ones compare as greater."""

    issued_at_ms: int
    dispatch_id: str


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call in the log, and what it was."""

    posting: Posting
    likeness: bytes
    called: ToolCalled


@dataclass(frozen=True, slots=True)
class RecordedTrace:
    """A trace event in the log, and what it was."""

    posting: Posting
    likeness: bytes
    number: int


@dataclass(slots=True)
class SessionState:
    """A session, as far as its log has been read. Replies are kept for the newest turn only,
    and for calls with an idempotency key."""

    session_id: str
    run_id: str
    brief: ToolBrief
    world: World | None
    fault: str | None
    initial: bytes | None
    """The world's initial state as canonical JSON; None without a world."""
    current: bytes | None
    tools: Mapping[str, Tool]
    starts_at: datetime
    matched: list[int]
    struck: list[int]
    calls: int = 0
    traces: int = 0
    turn: int = 0
    ended: bool = False
    turn_calls: list[RecordedCall] = field(default_factory=list)
    turn_traces: list[RecordedTrace] = field(default_factory=list)
    keyed: dict[str, RecordedCall] = field(default_factory=dict)
    marks: dict[str, bytes] = field(default_factory=dict)
    """By step, a digest of the event that counts, in the order of the log."""

    def copy(self) -> SessionState:
        """A copy that can be advanced without touching this one."""
        return replace(
            self,
            matched=list(self.matched), struck=list(self.struck),
            turn_calls=list(self.turn_calls), turn_traces=list(self.turn_traces),
            keyed=dict(self.keyed), marks=dict(self.marks),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tool:
    """A registered tool with its schemas as JSON text, which is what validators are cached by."""

    spec: ToolSpec
    input_schema: bytes
    output_schema: bytes | None

    @property
    def is_real(self) -> bool:
        """Whether the registered real tool answers; whatever is not told to is simulated."""
        return self.spec.mode == "passthrough"


class ProxyCore:
    """Starts sessions and folds their events. The session table's core of this service."""

    def __init__(self, worlds: Mapping[str, World]) -> None:
        self._worlds = worlds

    def start(self, event: TrajectoryEvent) -> SessionState:
        """The state after *session started*.

        Raises:
            DecodeError: the tool brief cannot be read.
        """
        started = event.session_started
        if started is None:
            raise DecodeError(f"{event.event_id}: no body of session_started")
        try:
            brief = ToolBrief.model_validate_json(started.tool_brief)
            setup = brief.world
            starts_at = datetime.fromisoformat(setup.now) if setup else datetime(2026, 1, 15)
        except (ValidationError, ValueError) as error:
            raise DecodeError(f"{event.event_id}: tool brief: {error}") from None
        world = self._worlds.get(setup.name) if setup else None
        fault = "world_unknown" if setup and world is None else None
        initial = None
        if setup is not None and world is not None:
            try:
                initial = canonical(merge_patch.patched(world.initial_state, setup.state))
            except TypeError:
                fault = "world_failed"
            if initial is not None and len(initial) > MAX_STATE_BYTES:
                fault, initial = "world_failed", None
        count = len(rules.selectors(brief))
        return SessionState(
            session_id=event.session_id,
            run_id=event.run_id,
            brief=brief,
            world=world,
            fault=fault,
            initial=initial,
            current=initial,
            tools={spec.name: _tool(spec) for spec in brief.tools},
            starts_at=starts_at.replace(tzinfo=UTC) if starts_at.tzinfo is None else starts_at,
            matched=[0] * count,
            struck=[0] * count,
        )

    def apply(self, state: SessionState, event: TrajectoryEvent) -> None:
        """Fold an event into the state. Nothing is changed when it raises.

        Raises:
            ValueError: the event does not follow from the state.
        """
        if event.tool_called is not None:
            _called(state, event, event.tool_called)
        elif event.trace is not None:
            _traced(state, event, event.trace)
        elif event.session_ended is not None:
            state.ended = True

    def foreign(self, state: SessionState, incoming: Any) -> None:
        """No other topic concerns the proxy."""

    def wants(self, state: SessionState) -> None:
        """The proxy acts on requests, not on events."""

    def finished(self, state: SessionState) -> bool:
        """Whether the session is over and can be forgotten."""
        return state.ended


def likeness(name: str, value: Any) -> bytes:
    """Equal for equal calls: same name, same JSON value."""
    return hashlib.blake2b(name.encode() + b"\0" + canonical(value), digest_size=16).digest()


def mark(event: TrajectoryEvent) -> bytes:
    """A digest of an event's whole content."""
    body = event.tool_called or event.trace
    return hashlib.blake2b(orjson.dumps([event.at_ms, body]), digest_size=12).digest()


def _tool(spec: ToolSpec) -> Tool:
    output = None if spec.output_schema is None else orjson.dumps(spec.output_schema)
    return Tool(spec, orjson.dumps(spec.input_schema), output)


def _called(state: SessionState, event: TrajectoryEvent, called: ToolCalled) -> None:
    if called.call != state.calls + 1:
        raise ValueError(f"{event.event_id}: expected call {state.calls + 1}")
    arguments = orjson.loads(called.arguments)
    current = _state_after(state, event, called)
    if called.error_code not in UNSELECTED:
        _count(state, called, arguments)
    state.current = current
    state.calls = called.call
    recorded = RecordedCall(
        Posting(called.dispatched_at_ms, called.dispatch_id),
        likeness(called.tool, arguments),
        replace(called, state_patch=None),
    )
    _enter_turn(state, event.turn)
    if event.turn == state.turn:
        state.turn_calls.append(recorded)
    if called.idempotency_key is not None:
        state.keyed.setdefault(called.idempotency_key, recorded)
    state.marks[event.step] = mark(event)


def _traced(state: SessionState, event: TrajectoryEvent, trace: TraceEvent) -> None:
    if trace.number != state.traces + 1:
        raise ValueError(f"{event.event_id}: expected trace event {state.traces + 1}")
    posting = Posting(trace.dispatched_at_ms, trace.dispatch_id)
    alike = trace_likeness(trace.type, orjson.loads(trace.payload), trace.actor)
    state.traces = trace.number
    _enter_turn(state, event.turn)
    if event.turn == state.turn:
        state.turn_traces.append(RecordedTrace(posting, alike, trace.number))
    state.marks[event.step] = mark(event)


def trace_likeness(kind: str, payload: Any, actor: str | None) -> bytes:
    """Equal for equal trace events."""
    return likeness(f"{kind}\0{actor}", payload)


def _enter_turn(state: SessionState, turn: int) -> None:
    """Only the newest turn can be posted again: earlier ones have been answered."""
    if turn > state.turn:
        state.turn = turn
        state.turn_calls.clear()
        state.turn_traces.clear()


def _state_after(state: SessionState, event: TrajectoryEvent, called: ToolCalled) -> bytes | None:
    if state.current is None:
        return None
    current = state.current
    if called.state_patch is not None:
        current = canonical(patched(current, orjson.loads(called.state_patch)))
    if called.state_hash != state_hash(current):
        raise ValueError(f"{event.event_id}: it was made from another state of the world")
    return current


def _count(state: SessionState, called: ToolCalled, arguments: Mapping[str, Any]) -> None:
    brief = state.brief
    tool = state.tools.get(called.tool)
    selection = rules.select(
        brief, state.matched, state.struck, called.tool, arguments,
        real=tool is not None and tool.is_real,
    )  # fmt: skip
    if called.error_code is None:
        if called.injection is not None:
            ids = [failure.id for failure in brief.failures]
            state.struck[ids.index(called.injection.rule_id)] += 1
        if selection.rule is not None and rules.uses_rule(brief, selection):
            state.struck[selection.rule] += 1
    for index in selection.matching:
        state.matched[index] += 1
