"""What the proxy knows about a session: a pure fold over the session's events."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson
from pydantic import ValidationError

from schemas.briefs import ToolBrief, ToolSpec
from schemas.errors import DecodeError
from schemas.selection import UNSELECTED, Moment
from schemas.trajectory import (
    SESSION_ENDED,
    SESSION_STARTED,
    TOOL_CALLED,
    TRACE,
    USER,
    USER_ACTED,
    ToolCalled,
    TraceEvent,
    TrajectoryEvent,
)
from schemas.world_setup import WorldSetup, moment
from services.tool_proxy import rules
from services.tool_proxy.jsons import canonical, patched, state_hash
from services.tool_proxy.model_world_memory import TellingCall, with_call
from services.tool_proxy.world import ToolError, World, WorldError

KINDS = frozenset({SESSION_STARTED, TOOL_CALLED, TRACE, SESSION_ENDED, USER_ACTED})
"""The events the proxy needs; others may be skipped undecoded."""
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
    """The code with which everything is refused that the world would have to answer."""
    fault_detail: str
    """What is wrong, for the operator's log."""
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
    user_calls: int = 0
    """Calls of the simulated user that were performed; they count in no other figure."""
    requested: int = 0
    """Calls of the simulated user that were asked for."""
    outstanding: dict[int, TrajectoryEvent] = field(default_factory=dict)
    """Those of them that are not performed yet, by ordinal."""
    told: tuple[TellingCall, ...] = ()
    """The latest calls and their answers, where a model answers and has to know them."""

    def copy(self) -> SessionState:
        """A copy that can be advanced without touching this one."""
        return replace(
            self,
            matched=list(self.matched), struck=list(self.struck),
            turn_calls=list(self.turn_calls), turn_traces=list(self.turn_traces),
            keyed=dict(self.keyed), marks=dict(self.marks),
            outstanding=dict(self.outstanding),
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
        except (ValidationError, ValueError) as error:
            raise DecodeError(f"{event.event_id}: tool brief: {error}") from None
        setup = brief.world or WorldSetup()
        starts_at = moment(setup.now)
        world = self._worlds.get(setup.name)
        fault, why, initial = None, "", None
        if brief.world is not None and world is None and (setup.name or setup.answers == "world"):
            fault, why = "world_unknown", f"there is no world {setup.name!r}"
        elif world is not None:
            initial, why = _initial(world, setup, brief.seed)
            fault = "world_failed" if initial is None else None
        count = len(rules.selectors(brief))
        # What is the user's is not the agent's, whatever it was registered with.
        users = {*brief.user_tools, *(world.user_tools() if world is not None else ())}
        return SessionState(
            session_id=event.session_id,
            run_id=event.run_id,
            brief=brief,
            world=world,
            fault=fault,
            fault_detail=why,
            initial=initial,
            current=initial,
            tools={spec.name: _tool(spec) for spec in brief.tools if spec.name not in users},
            starts_at=starts_at,
            matched=[0] * count,
            struck=[0] * count,
        )

    def apply(self, state: SessionState, event: TrajectoryEvent) -> None:
        """Fold an event into the state. Nothing is changed when it raises.

        Raises:
            ValueError: the event does not follow from the state.
        """
        if event.tool_called is not None and event.tool_called.requestor == USER:
            _called_by_user(state, event, event.tool_called)
        elif event.tool_called is not None:
            _called(state, event, event.tool_called)
        elif event.user_acted is not None:
            if event.user_acted.call != state.requested + 1:
                raise ValueError(f"{event.event_id}: expected call {state.requested + 1}")
            state.requested += 1
            state.outstanding[event.user_acted.call] = event
        elif event.trace is not None:
            _traced(state, event, event.trace)
        elif event.session_ended is not None:
            state.ended = True

    def foreign(self, state: SessionState, incoming: Any) -> None:
        """No other topic concerns the proxy."""

    def wants(self, state: SessionState) -> Hashable | None:
        """The simulated user's calls are performed as they are read; the agent's are requests.

        `(USER, n, k)`: its call n is due. With every event k grows, so that a call is looked at
        again should the log not have taken it.
        """
        due = state.user_calls + 1
        return (USER, due, len(state.marks)) if due in state.outstanding else None

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


def _initial(world: World, setup: WorldSetup, seed: int) -> tuple[bytes | None, str]:
    """The state that a session starts from as canonical JSON, or why there can be none."""
    if setup.files:
        return None, "the suite was published without reading the world's files"
    chance = random.Random(f"{seed}:world")
    try:
        initial = canonical(world.seeded(setup.state, moment(setup.now), chance))
    except (WorldError, ToolError, TypeError) as error:
        return None, str(error)
    if len(initial) > MAX_STATE_BYTES:
        return None, f"a state of {len(initial)} bytes is larger than {MAX_STATE_BYTES}"
    return initial, ""


def _tool(spec: ToolSpec) -> Tool:
    output = None if spec.output_schema is None else orjson.dumps(spec.output_schema)
    return Tool(spec, orjson.dumps(spec.input_schema), output)


def _called(state: SessionState, event: TrajectoryEvent, called: ToolCalled) -> None:
    if called.call != state.calls + 1:
        raise ValueError(f"{event.event_id}: expected call {state.calls + 1}")
    arguments = orjson.loads(called.arguments)
    current = _state_after(state, event, called)
    if called.error_code not in UNSELECTED:
        _count(state, event, called, arguments)
    state.current = current
    state.calls = called.call
    _tell(state, called)
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


def _called_by_user(state: SessionState, event: TrajectoryEvent, called: ToolCalled) -> None:
    """Of the user's calls only the effect on the world counts: neither rules nor failures nor
    limits are meant for them, and no posting of a turn makes them again."""
    if called.call != state.user_calls + 1:
        raise ValueError(f"{event.event_id}: expected the user's call {state.user_calls + 1}")
    state.current = _state_after(state, event, called)
    state.user_calls = called.call
    _tell(state, called)
    state.outstanding.pop(called.call, None)
    state.marks[event.step] = mark(event)


def _tell(state: SessionState, called: ToolCalled) -> None:
    """Only a model needs telling; worlds have their state."""
    world = state.brief.world
    if world is not None and world.answers == "model":
        state.told = with_call(state.told, called)


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


def _count(
    state: SessionState, event: TrajectoryEvent, called: ToolCalled, arguments: Mapping[str, Any]
) -> None:
    brief = state.brief
    tool = state.tools.get(called.tool)
    selection = rules.select(
        brief, state.matched, state.struck, called.tool, arguments,
        Moment(event.conversation, event.turn, called.call), real=tool is not None and tool.is_real,
    )  # fmt: skip
    if called.error_code is None:
        if called.injection is not None:
            ids = [failure.id for failure in brief.failures]
            state.struck[ids.index(called.injection.rule_id)] += 1
        if selection.rule is not None and rules.uses_rule(brief, selection):
            state.struck[selection.rule] += 1
    for index in selection.matching:
        state.matched[index] += 1
