"""What a trajectory has to show for assertions: events of the agent's runtime, and utterances.

Events are the `state` trace events (docs/trace-events.md), in the order of the log. A call of a
tool stands for an action of that name where the agent reports no such action: otherwise one deed
would count twice. A call that the proxy refused is none.

That something is missing means something only where it would have been seen. What an agent
reports is known from what it reported in this session: an event of one family shows that those
events are reported. Rasa's own actions, which its tracker has in every session, show that the whole
tracker is here, and with it everything. Calls of the agent's registered tools are always seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schemas import traces
from schemas.patterns import clean
from schemas.trajectory import TrajectoryEvent
from services.judge.outcomes import show
from services.judge.trajectory import Call, Trajectory

FLOW_STARTED = "flow_started"
FLOW_COMPLETED = "flow_completed"
FLOW_CANCELLED = "flow_cancelled"
FLOW_INTERRUPTED = "flow_interrupted"
ACTION_EXECUTED = "action_executed"
SLOT_WAS_SET = "slot_was_set"
CLARIFICATION = "pattern_clarification"
UTTERED = "bot_uttered"

FLOWS = "flows"
ACTIONS = "actions"
SLOTS = "slots"
CLARIFICATIONS = "clarifications"
NAMED = "named responses"
SOURCED = "sources of responses"
BUTTONS = "buttons"

_FAMILIES = {
    FLOW_STARTED: FLOWS,
    FLOW_COMPLETED: FLOWS,
    FLOW_CANCELLED: FLOWS,
    FLOW_INTERRUPTED: FLOWS,
    ACTION_EXECUTED: ACTIONS,
    SLOT_WAS_SET: SLOTS,
    CLARIFICATION: CLARIFICATIONS,
}
_ALL = frozenset({*_FAMILIES.values(), NAMED, SOURCED, BUTTONS})
_TRACKER_ACTIONS = frozenset({"action_listen", "action_session_start"})
_SOURCES = ("ground_truth", "search_results", "domain_ground_truth")


@dataclass(frozen=True)
class Fact:
    """A state event, or a tool call that stands for an action. `name`: of flow, slot or action."""

    kind: str
    name: str
    step: str
    flow_step: str | None = None
    value: Any = None
    flow_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Utterance:
    """Something the agent said: an agent turn, or a reported `bot_uttered`.

    `heard` is what the user said in that turn; `source` the material that a generated text was made
    from. An event without a text has that of the agent's answer.
    """

    step: str
    text: str | None
    heard: str = ""
    utter_name: str | None = None
    utter_source: str | None = None
    buttons: tuple[Mapping[str, Any], ...] = ()
    source: str = ""


@dataclass(frozen=True)
class Facts:
    """Made by `read_facts`."""

    events: tuple[Fact, ...]
    utterances: tuple[Utterance, ...]
    reported: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    gaps: tuple[str, ...] = ()
    """Why events may be missing from the trajectory."""

    def of(self, kind: str, name: str) -> list[Fact]:
        """The events of one kind about one flow, slot or action."""
        return [fact for fact in self.events if fact.kind == kind and fact.name == name]

    def blind(self, kind: str, name: str = "") -> str:
        """Why nothing follows from there being no such event; empty where something does."""
        if kind == ACTION_EXECUTED and name in self.tools:
            return ""
        return self.blind_to(_FAMILIES[kind])

    def blind_to(self, family: str) -> str:
        """The same for everything of a family."""
        if self.gaps:
            return f"the record of the agent's events is not whole: {self.gaps[0]}"
        if family in self.reported:
            return ""
        return f"the agent reported no {family} in this session"


_STATE: TypeAdapter[traces.State] = TypeAdapter(traces.State)


class _Malformed(Exception):
    """A payload that is not of its shape."""


@dataclass
class _Reading:
    events: list[Fact] = field(default_factory=list)
    utterances: list[Utterance] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    reported: set[str] = field(default_factory=set)


def read_facts(trajectory: Trajectory) -> Facts:
    """What happened, as far as assertions can ask for it. Raises nothing: what cannot be read is
    a gap.
    """
    found = _Reading()
    calls = {call.step: call for call in trajectory.calls}
    said = {turn.step: turn.said for turn in trajectory.agent_turns}
    turns = _Turns(trajectory)
    for event in trajectory.events:
        if event.trace is not None and event.trace.type == "state":
            try:
                _state(event, turns, found)
            except _Malformed as error:
                found.gaps.append(f"{event.step} cannot be read ({error})")
        elif event.step in calls:
            call = calls[event.step]
            turns.answered(event.turn, call)
            if call.body.error_code is None:
                found.events.append(Fact(ACTION_EXECUTED, call.tool, event.step))
        elif event.agent_turn is not None:
            for text in said.get(event.step, ()):
                found.utterances.append(Utterance(event.step, text, turns.heard(event.turn)))
            for warning in event.agent_turn.soft_warnings:
                if traces.EVENTS_LEFT_OUT in warning:
                    found.gaps.append(clean(f"{event.step}: {warning}"))
    actions = {f.name for f in found.events if f.kind == ACTION_EXECUTED and f.step not in calls}
    return Facts(
        events=tuple(f for f in found.events if f.step not in calls or f.name not in actions),
        utterances=tuple(found.utterances),
        reported=_ALL if actions & _TRACKER_ACTIONS else frozenset(found.reported),
        tools=_registered(trajectory),
        gaps=tuple(found.gaps),
    )


class _Turns:
    """What user, agent and tools said, by turn."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._user = {turn.turn: turn.body.text for turn in trajectory.user_turns}
        self._agent = {turn.turn: turn.body.final_response for turn in trajectory.agent_turns}
        self._responses: dict[int, list[str]] = {}

    def heard(self, turn: int) -> str:
        return clean(self._user.get(turn, ""))

    def replied(self, turn: int) -> str | None:
        return self._agent.get(turn) or None

    def answered(self, turn: int, call: Call) -> None:
        self._responses.setdefault(turn, []).append(f"{call.tool}: {call.body.response}")

    def responses(self, turn: int) -> str:
        """What tools answered in this turn so far."""
        return "\n".join(self._responses.get(turn, ()))


def _state(event: TrajectoryEvent, turns: _Turns, found: _Reading) -> None:
    assert event.trace is not None
    try:
        payload = json.loads(event.trace.payload)
        kind = payload.get("event") if isinstance(payload, dict) else None
        if isinstance(kind, str) and kind and kind != UTTERED and kind not in _FAMILIES:
            return  # no assertion is about it
        reported = _STATE.validate_python(payload)
    except (json.JSONDecodeError, RecursionError):
        raise _Malformed("not JSON") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _Malformed(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if not isinstance(reported, traces.BotUttered):
        found.events.append(_fact(event.step, reported))
        found.reported.add(_FAMILIES[reported.event])
        return
    found.utterances.append(utterance := _uttered(event, reported, turns))
    for family, given in (
        (NAMED, utterance.utter_name),
        (SOURCED, utterance.utter_source),
        (BUTTONS, utterance.buttons),
    ):
        if given:
            found.reported.add(family)


def _fact(step: str, reported: traces.Reported) -> Fact:
    match reported:
        case traces.PatternClarification(flow_ids=flow_ids):
            return Fact(reported.event, "", step, flow_ids=tuple(flow_ids))
        case traces.SlotWasSet(name=name, value=value):
            return Fact(reported.event, name, step, value=value)
        case traces.ActionExecuted(name=name):
            return Fact(reported.event, name, step)
        case traces.FlowStarted(flow_id=flow_id):
            return Fact(reported.event, flow_id, step)
    return Fact(reported.event, reported.flow_id, step, flow_step=reported.flow_step_id)


def _uttered(event: TrajectoryEvent, said: traces.BotUttered, turns: _Turns) -> Utterance:
    return Utterance(
        step=event.step,
        text=turns.replied(event.turn) if said.text is None else said.text,
        heard=turns.heard(event.turn),
        utter_name=said.utter_name,
        utter_source=said.utter_source,
        buttons=tuple(said.buttons or ()),
        source=next(_sources(said.model_extra or {}), "") or turns.responses(event.turn),
    )


def _sources(payload: Mapping[str, Any]) -> Iterator[str]:
    for key in _SOURCES:
        if value := payload.get(key):
            yield value if isinstance(value, str) else quoted(value, limit=1_000_000)


def _registered(trajectory: Trajectory) -> frozenset[str]:
    """The agent's tools, which the session's start tells the tool proxy."""
    try:
        tools = json.loads(trajectory.start.tool_brief)["tools"]
        return frozenset(str(tool["name"]) for tool in tools)
    except (ValueError, TypeError, KeyError, RecursionError):
        return frozenset()


def quoted(value: Any, limit: int = 80) -> str:
    """A value as short JSON that can be encoded, for reasons."""
    try:
        return clean(show(value, limit))
    except RecursionError:
        return "a deeply nested value"
