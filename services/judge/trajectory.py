"""One session's events, read as a trajectory.

A `Trajectory` is what every evaluator works on: the turns, the tool calls with their arguments
and responses parsed, what the agent's runtime reported, the end, and the world's state at the
start and at the end. It is made from the events alone.

The world travels as RFC 6902 patches. The first patch of a session begins with
`{"op": "replace", "path": "", "value": ...}`, which is the start state; applying the patches one
after the other to null therefore gives the end state.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jsonpatch

from schemas.trajectory import (
    AGENT_TURN,
    SESSION_ENDED,
    SESSION_STARTED,
    TOOL_CALLED,
    TRACE,
    USER,
    USER_TURN,
    AgentTurn,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TraceEvent,
    TrajectoryEvent,
    UserTurn,
)

# The library reports some malformed operations with built-in exceptions.
_PATCH_ERRORS = (
    jsonpatch.JsonPatchException,
    jsonpatch.JsonPointerException,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
)


class UnreadableTrajectory(Exception):
    """The events of a session do not make a trajectory; the message says what is wrong."""


@dataclass(frozen=True)
class UserStep:
    """A user turn, and where it stands."""

    step: str
    turn: int
    body: UserTurn


@dataclass(frozen=True)
class AgentStep:
    """An agent turn, and where it stands. `position` orders it among calls and turns."""

    step: str
    turn: int
    position: int
    body: AgentTurn
    said: tuple[str, ...]
    """All that the agent said in this turn and had not said before: its final response, then the
    texts of its other assistant messages."""

    @property
    def answered(self) -> bool:
        return self.body.outcome == "ok"


@dataclass(frozen=True)
class Call:
    """A tool call, and where it stands. `position` orders it among calls and turns."""

    step: str
    turn: int
    position: int
    body: ToolCalled

    @property
    def tool(self) -> str:
        return self.body.tool

    @property
    def by_user(self) -> bool:
        """Whether the simulated user made it, with a tool of its own."""
        return self.body.requestor == USER

    @cached_property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments object; empty where the agent sent anything else."""
        try:
            value = json.loads(self.body.arguments)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @cached_property
    def response(self) -> Any:
        """The decoded response, or its text where it is not JSON."""
        if self.body.response_is_text:
            return self.body.response
        try:
            return json.loads(self.body.response)
        except ValueError:
            return self.body.response

    @cached_property
    def patch(self) -> Sequence[Mapping[str, Any]]:
        """The patch as recorded, the start state of a first call included.

        Raises:
            UnreadableTrajectory: it is not an RFC 6902 patch.
        """
        if not self.body.state_patch:
            return ()
        try:
            patch = json.loads(self.body.state_patch)
        except ValueError:
            patch = None
        if not isinstance(patch, list) or not all(isinstance(op, dict) for op in patch):
            raise UnreadableTrajectory(f"{self.step}: its state patch is not an RFC 6902 patch")
        return patch

    @property
    def sets_start(self) -> bool:
        """Whether the patch begins with the start state, as that of a first call does."""
        first = self.patch[0] if self.patch and self.body.call == 1 else {}
        return first.get("op") == "replace" and first.get("path") == ""

    @property
    def changes(self) -> Sequence[Mapping[str, Any]]:
        """What the call changed in the world: its patch without the start state."""
        return self.patch[1:] if self.sets_start else self.patch

    @cached_property
    def touched(self) -> frozenset[str]:
        """JSON pointers of the places in the world that the call changed."""
        ops = [op for op in self.changes if op.get("op") != "test"]
        places = {op.get("path") for op in ops}
        places |= {op.get("from") for op in ops if op.get("op") == "move"}
        return frozenset(place for place in places if isinstance(place, str))


@dataclass(frozen=True)
class World:
    """The world's state when the session began, and when it ended."""

    start: Any
    end: Any


@dataclass(frozen=True)
class Trajectory:
    """A whole session. Made by `read`."""

    session_id: str
    run_id: str
    start: SessionStarted
    user_turns: tuple[UserStep, ...]
    agent_turns: tuple[AgentStep, ...]
    calls: tuple[Call, ...]
    """The agent's. What the simulated user did is in `user_calls`, and counts as nobody's doing
    but the user's."""
    user_calls: tuple[Call, ...]
    traces: tuple[tuple[str, TraceEvent], ...]
    end: SessionEnded
    events: tuple[TrajectoryEvent, ...]
    """The events that count, in order, each id once, the last one the end."""

    @cached_property
    def steps(self) -> frozenset[str]:
        """The names of all steps, which are what citations may name."""
        return frozenset(event.step for event in self.events)

    @cached_property
    def world(self) -> World | None:
        """The world at both ends; None when no call carries its state.

        Raises:
            UnreadableTrajectory: the patches do not begin with a start state or do not apply.
        """
        start: Any = None
        state: Any = None
        known = False
        # The one world is what both have made of it.
        for call in sorted((*self.calls, *self.user_calls), key=lambda call: call.position):
            if not call.patch:
                continue
            if not known:
                if not call.sets_start:
                    raise UnreadableTrajectory(
                        f"{call.step}: the first state patch does not set the start state"
                    )
                known, start = True, call.patch[0].get("value")
                state = copy.deepcopy(start)
            try:
                # In place: a copy of the whole world for every call would dominate judging.
                state = jsonpatch.JsonPatch(call.changes).apply(state, in_place=True)
            except _PATCH_ERRORS as error:
                raise UnreadableTrajectory(
                    f"{call.step}: its state patch does not apply ({type(error).__name__})"
                ) from error
        return World(start, state) if known else None


def read(events: Iterable[TrajectoryEvent]) -> Trajectory:
    """The trajectory of one session's events, given in the order of the log.

    Of events with one id the first counts; whatever follows the session's end does not count.

    Raises:
        UnreadableTrajectory: start or end is missing, or the events are of several sessions.
    """
    counted = _counted(events)
    start = counted[0].session_started if counted else None
    end = counted[-1].session_ended if counted else None
    if start is None:
        raise UnreadableTrajectory("the session's start is missing")
    if end is None:
        raise UnreadableTrajectory("the session's end is missing")
    if len({event.session_id for event in counted}) > 1:
        raise UnreadableTrajectory("the events are of several sessions")
    users: list[UserStep] = []
    agents: list[AgentStep] = []
    calls: list[Call] = []
    traces: list[tuple[str, TraceEvent]] = []
    heard: set[str] = set()
    for position, event in enumerate(counted):
        if event.kind == USER_TURN and event.user_turn:
            users.append(UserStep(event.step, event.turn, event.user_turn))
        elif event.kind == AGENT_TURN and event.agent_turn:
            said = _said(event.agent_turn, heard)
            agents.append(AgentStep(event.step, event.turn, position, event.agent_turn, said))
        elif event.kind == TOOL_CALLED and event.tool_called:
            calls.append(Call(event.step, event.turn, position, event.tool_called))
        elif event.kind == TRACE and event.trace:
            traces.append((event.step, event.trace))
    return Trajectory(
        session_id=counted[0].session_id,
        run_id=counted[0].run_id,
        start=start,
        user_turns=tuple(users),
        agent_turns=tuple(agents),
        calls=tuple(call for call in calls if not call.by_user),
        user_calls=tuple(call for call in calls if call.by_user),
        traces=tuple(traces),
        end=end,
        events=tuple(counted),
    )


def _counted(events: Iterable[TrajectoryEvent]) -> list[TrajectoryEvent]:
    seen: set[str] = set()
    counted: list[TrajectoryEvent] = []
    for event in events:
        if event.event_id in seen:
            continue
        seen.add(event.event_id)
        # A session starts once and first; what a late writer adds in front is no part of it.
        if not counted and event.kind != SESSION_STARTED:
            continue
        counted.append(event)
        if event.kind == SESSION_ENDED:
            break
    return counted


def _said(turn: AgentTurn, heard: set[str]) -> tuple[str, ...]:
    """The final response and the new assistant texts; `heard` is brought up to date.

    Agents may repeat the whole history in `messages`, so a text counts where it first occurs.
    The final response is what the user hears and counts every time.
    """
    texts = [text for text in _assistant_texts(turn.messages) if text not in heard]
    said = ([turn.final_response] if turn.final_response else []) + [
        text for text in dict.fromkeys(texts) if text != turn.final_response
    ]
    heard.update(said)
    return tuple(said)


def _assistant_texts(messages: str | None) -> list[str]:
    if not messages:
        return []
    try:
        parsed = json.loads(messages)
    except ValueError:
        return []
    texts: list[str] = []
    for message in parsed if isinstance(parsed, list) else []:
        if isinstance(message, dict) and message.get("role") == "assistant":
            content = message.get("content")
            if isinstance(content, str):
                texts.append(content)
            elif isinstance(content, list):
                parts = [part.get("text") for part in content if isinstance(part, dict)]
                texts.append("".join(part for part in parts if isinstance(part, str)))
    return [text for text in texts if text]
