"""What happened in a session, point by point, as policies ask for it.

A point is one thing that happened: a call, an agent turn with what was said in it, a user turn, or
something that the agent's runtime reported. A pattern of `schemas.moments` fits some of them; each
fit says what it was, for people, and its values: what rules with `same` and `per` compare.

| pattern | its values |
|---|---|
| `call` | the arguments |
| `says`, `user_says` | the named groups of the pattern |
| `slot_was_set` | the slot by its name |
| `handoff` | `by` and `to` |
| `custom` | the keys of its data |
| others | none |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from schemas.briefs import ToolBrief
from schemas.model import Pattern
from schemas.moments import (
    CallMatch,
    CustomMatch,
    HandoffMatch,
    Moment,
    Moments,
    SlotMatch,
)
from schemas.trajectory import TrajectoryEvent
from schemas.world_time import elapsed_s
from services.judge.assertions.facts import FLOW_STARTED, Facts, read_facts
from services.judge.outcomes import at, describe, is_actor, matches, same, show
from services.judge.trajectory import Call, Trajectory

_REPORTED = (
    FLOW_STARTED, "flow_completed", "flow_cancelled", "flow_interrupted", "action_executed",
    "slot_was_set",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """Something that happened, and where it stands."""

    step: str
    turn: int
    position: int
    calls: int
    """Tool calls of the agent up to here, this one included."""
    conversation: int
    words: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Handoff:
    """Control passing between sub-agents; `by` is empty where nobody says who hands over."""

    by: str
    to: str
    point: Point


class Timeline:
    """A trajectory as points, and the patterns that fit them."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._points: dict[str, Point] = {}
        calls = {call.step for call in trajectory.calls}
        made = 0
        for position, event in enumerate(trajectory.events):
            made += event.step in calls
            self._points[event.step] = Point(
                event.step, event.turn, position, made, event.conversation
            )

    @cached_property
    def facts(self) -> Facts:
        return read_facts(self._trajectory)

    @cached_property
    def handoffs(self) -> tuple[Handoff, ...]:
        """The hand-offs that the agent reported, in order."""
        found = []
        for event in self._trajectory.events:
            payload = _payload(event, "handoff")
            to = payload.get("to")
            by = payload.get("from") or (event.trace.actor if event.trace else None) or ""
            if isinstance(to, str) and isinstance(by, str):
                found.append(Handoff(by, to, self._points[event.step]))
        return tuple(found)

    @cached_property
    def actors(self) -> Mapping[str, tuple[Point, ...]]:
        """By call path, all that the agent says a sub-agent did, hand-offs by it included."""
        found: dict[str, list[Point]] = {}
        for event in self._trajectory.events:
            path = (event.trace.actor if event.trace else None) or (
                event.tool_called.actor if event.tool_called else None
            )
            if path:
                found.setdefault(path, []).append(self._points[event.step])
        for handoff in self.handoffs:
            places = found.setdefault(handoff.by, []) if handoff.by else []
            if handoff.point not in places:
                places.append(handoff.point)
        return {path: tuple(points) for path, points in found.items()}

    @cached_property
    def _brief(self) -> ToolBrief | None:
        try:
            return ToolBrief.model_validate_json(self._trajectory.start.tool_brief)
        except ValidationError:
            return None

    @property
    def tells_time(self) -> bool:
        """Whether the session's start says how the world's time passes."""
        return self._brief is not None

    def seconds(self, point: Point) -> int:
        """The world's time at a point, in seconds from the session's start."""
        if self._brief is None:
            raise ValueError("the world's time is not known; ask tells_time first")
        call = self._call_at(point)
        ordinal = point.calls if call is not None else point.calls + 1
        return elapsed_s(self._brief, point.conversation, point.turn, ordinal)

    def found(
        self, pattern: Moments | CallMatch, kind: str = "", ok: bool | None = None
    ) -> list[Point]:
        """Where a pattern fits, in order. `kind`: of several fields, the one that is meant.

        `ok`: whether calls must have succeeded where the pattern does not say; None: either.

        Raises:
            MalformedBrief: a pattern cannot be looked up.
        """
        if isinstance(pattern, CallMatch):
            return list(self._calls(pattern, ok))
        kind = kind or pattern.kinds[0]
        wanted = getattr(pattern, kind)
        match kind:
            case "call":
                points = self._calls(wanted, ok)
            case "says":
                points = self._said(wanted)
            case "user_says":
                points = self._heard(wanted)
            case "handoff":
                points = self._handed(wanted)
            case "custom":
                points = self._custom(wanted)
            case _:
                points = self._reported(kind, wanted)
        return list(points)

    def all_of_kind(self, moment: Moment) -> list[Point]:
        """Every point of what `always` is about: all calls of the tool, all answers, and so on."""
        match moment.kind:
            case "call":
                assert moment.call is not None
                return self.found(CallMatch(tool=moment.call.tool))
            case "says":
                return [
                    self._as(turn.step, "the agent answers")
                    for turn in self._trajectory.agent_turns
                    if turn.answered
                ]
            case "slot_was_set":
                return self.found(Moment(slot_was_set=_name(moment.slot_was_set)))
            case "handoff":
                assert moment.handoff is not None
                return self.found(Moment(handoff=HandoffMatch(by=moment.handoff.by)))
            case "custom":
                return self.found(Moment(custom=_name(moment.custom)))
        raise AssertionError(moment.kind)

    def blind(self, pattern: Moments | CallMatch, kind: str = "") -> str:
        """Why nothing follows from a pattern fitting nowhere; empty where something does."""
        if isinstance(pattern, CallMatch):
            if pattern.actor is None or any(c.body.actor for c in self._trajectory.calls):
                return ""
            anybodys = self.found(pattern.model_copy(update={"actor": None}))
            return "the agent attributes no call to a sub-agent" if anybodys else ""
        kind = kind or pattern.kinds[0]
        wanted = getattr(pattern, kind)
        match kind:
            case "call":
                return self.blind(wanted)
            case "says" | "user_says":
                return ""
            case "handoff":
                return self.blind_to_handoff(wanted)
            case "custom":
                reported = any(_payload(e, "custom") for e in self._trajectory.events)
                return "" if reported else "the agent reported no custom events in this session"
        return "" if self.found(pattern, kind) else self.facts.blind(kind, _name(wanted))

    def blind_to_handoff(self, pattern: HandoffMatch) -> str:
        """Why nothing follows from there being no such hand-off; empty where something does."""
        if self.handoffs:
            return ""
        if not self.actors:
            return "the agent reported nothing of sub-agents in this session"
        acted = [path for path in self.actors if pattern.to and is_actor(path, pattern.to)]
        # Somebody must have handed over to whoever acts; who did is what was not reported.
        return f"the agent reported no hand-offs, though {acted[0]} acted" if acted else ""

    def _as(self, step: str, words: str, values: Mapping[str, Any] | None = None) -> Point:
        at_ = self._points[step]
        return Point(at_.step, at_.turn, at_.position, at_.calls, at_.conversation, words,
                     values or {})  # fmt: skip

    def _call_at(self, point: Point) -> Call | None:
        event = self._trajectory.events[point.position]
        if event.tool_called is None or point.calls == 0:
            return None
        call = self._trajectory.calls[point.calls - 1]
        return call if call.step == point.step else None

    def _calls(self, pattern: CallMatch, ok: bool | None) -> Iterator[Point]:
        for call in self._trajectory.calls:
            if matches(call, pattern, ok=ok):
                by = f" by {call.body.actor}" if pattern.actor else ""
                yield self._as(call.step, f"{call.tool} was called{by}", call.arguments)

    def _said(self, pattern: Pattern) -> Iterator[Point]:
        for turn in self._trajectory.agent_turns:
            groups = next((g for text in turn.said if (g := _groups(pattern, text))), None)
            if groups is not None:
                yield self._as(turn.step, f"the agent says {str(pattern)!r}", groups[0])

    def _heard(self, pattern: Pattern) -> Iterator[Point]:
        for turn in self._trajectory.user_turns:
            if groups := _groups(pattern, turn.body.text):
                yield self._as(turn.step, f"the user says {str(pattern)!r}", groups[0])

    def _handed(self, pattern: HandoffMatch) -> Iterator[Point]:
        for handoff in self.handoffs:
            if fits_handoff(handoff, pattern):
                words = f"{handoff.by or 'the agent'} handed over to {handoff.to}"
                values = {"by": handoff.by, "to": handoff.to}
                yield self._as(handoff.point.step, words, values)

    def _custom(self, pattern: str | CustomMatch) -> Iterator[Point]:
        for event in self._trajectory.events:
            payload = _payload(event, "custom")
            if not payload or payload.get("name") != _name(pattern):
                continue
            data = payload.get("data")
            asked = pattern.data if isinstance(pattern, CustomMatch) else {}
            if all(same(at(data, key), value) for key, value in asked.items()):
                values = data if isinstance(data, dict) else {}
                yield self._as(event.step, f"{_name(pattern)} was reported", values)

    def _reported(self, kind: str, pattern: str | SlotMatch) -> Iterator[Point]:
        assert kind in _REPORTED, kind
        for fact in self.facts.of(kind, _name(pattern)):
            wanted = pattern.value if isinstance(pattern, SlotMatch) else None
            if wanted is not None and not same(fact.value, wanted):
                continue
            if kind == "slot_was_set":
                words = f"slot {fact.name} was set to {show(fact.value)}"
                yield self._as(fact.step, words, {fact.name: fact.value})
            else:
                what, _, how = kind.partition("_")
                yield self._as(fact.step, f"{what} {fact.name} was {how}")


def fits_handoff(handoff: Handoff, pattern: HandoffMatch) -> bool:
    """Whether it was a hand-off between these two."""
    by, to = pattern.by, pattern.to
    return (by is None or is_actor(handoff.by, by)) and (to is None or is_actor(handoff.to, to))


def named_handoff(pattern: HandoffMatch) -> str:
    """What a pattern over hand-offs asks for, in words."""
    return f"a hand-off by {pattern.by or 'anybody'} to {pattern.to or 'anybody'}"


def named(pattern: Moments | CallMatch, kind: str = "") -> str:
    """What a pattern asks for, in words."""
    if isinstance(pattern, CallMatch):
        return describe(pattern)
    kind = kind or pattern.kinds[0]
    wanted = getattr(pattern, kind)
    match kind:
        case "call":
            return describe(wanted)
        case "says":
            return f"the agent saying {str(wanted)!r}"
        case "user_says":
            return f"the user saying {str(wanted)!r}"
        case "handoff":
            return named_handoff(wanted)
        case "slot_was_set" if isinstance(wanted, SlotMatch) and wanted.value is not None:
            return f"{kind} {wanted.name}={show(wanted.value)}"
        case "custom" if isinstance(wanted, CustomMatch) and wanted.data:
            return f"{kind} {wanted.name} with {show(dict(wanted.data))}"
    return f"{kind} {_name(wanted)}"


def _name(pattern: Any) -> str:
    return pattern if isinstance(pattern, str) else str(pattern.name)


def _groups(pattern: Pattern, text: str) -> tuple[Mapping[str, str]] | None:
    """The named groups of the first match, in a tuple of one; None where there is no match."""
    match = re.search(pattern, text, re.IGNORECASE)
    if match is None:
        return None
    return ({name: value for name, value in match.groupdict().items() if value is not None},)


def _payload(event: TrajectoryEvent, kind: str) -> Mapping[str, Any]:
    """A trace event's payload if it is of that type; empty if not, or if it cannot be read."""
    if event.trace is None or event.trace.type != kind:
        return {}
    try:
        payload = json.loads(event.trace.payload)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}
