"""The user simulator must not break character, hand over the answer, or see the agent's state.

Tried here: to give it the judge's brief, by type and by what is on the log it reads; to let it see
what the agent thinks, does and is answered; to collude; and to step out of its role.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.briefs import JudgeBrief, ToolBrief, UserBrief, judge_brief
from schemas.codec import Codec
from schemas.trajectory import (
    AGENT_TURN,
    SESSION_STARTED,
    TOOL_CALLED,
    TRACE,
    AgentTurn,
    EndReason,
    ToolCalled,
    TraceEvent,
    TrajectoryEvent,
    Usage,
)
from services.user_simulator import agenda, core, llm, replay
from services.user_simulator.agenda import plan
from services.user_simulator.prompt import messages
from services.user_simulator.simulator import (
    AgentSaid,
    History,
    UserDid,
    UserMove,
    UserSaid,
    UserSimulator,
)
from tests.fidelity.play import CallTool, good_agent, play, scenario, start_of

pytestmark = pytest.mark.req("V02")

MARK = "zebra-marker"
JUDGED: dict[str, Any] = {
    "expect": {
        "state": {"/orders/1/status": f"{MARK}-state"},
        "unchanged": [f"/{MARK}-unchanged"],
        "calls": [{"tool": "get_order", "arguments": {"order_id": f"{MARK}-call"}}],
        "no_calls": [{"tool": "add_note", "arguments": {"text": f"{MARK}-no-call"}}],
        "says": [f"{MARK}-says"],
        "does_not_say": [f"{MARK}-does-not-say"],
        "trajectory": {
            "mode": "superset",
            "calls": [{"tool": "get_order", "arguments": {"order_id": f"{MARK}-reference"}}],
        },
    },
    "goals": {
        "criteria": [f"{MARK}-criterion"],
        "assertions": [{"action_executed": f"{MARK}-assertion"}],
    },
    "policies": [
        {"id": f"{MARK}-policy", "description": f"{MARK}-words", "never": {"says": f"{MARK}-no"}}
    ],
    "recovery": {"says": [f"{MARK}-recovery"]},
    "actors": {"roles": {f"{MARK}-actor": {"tools": [f"{MARK}_tool"]}}},
    "budgets": {"tokens": 987654321},
}
HIDDEN = "hippo-marker"


async def secretive_agent(text: str, call: CallTool) -> AgentTurn:
    """Says little, and has a lot that no user gets to see."""
    await call("get_order", order_id="1")
    await call("add_note", text=f"{HIDDEN}-note")
    return AgentTurn(
        outcome="ok",
        final_response="It is shipped.",
        messages=json.dumps([{"role": "assistant", "content": "x", "thinking": [f"{HIDDEN}-t"]}]),
        metadata=json.dumps({"system_prompt_id": f"{HIDDEN}-metadata"}),
        soft_warnings=(f"{HIDDEN}-warning",),
        usage=Usage(model=f"{HIDDEN}-model"),
        dispatch_id=f"{HIDDEN}-dispatch",
    )


def test_nothing_that_the_judge_knows_is_in_any_byte_that_simulators_read() -> None:
    one = scenario(**JUDGED)
    planted = judge_brief(one).model_dump_json()
    assert planted.count(MARK) >= 14  # all of it is there to be found, where the judge looks
    played = play(one)
    codec = Codec()
    assert played.events[0].kind == SESSION_STARTED
    for event in played.events:
        consumed = codec.encode(event)
        assert MARK.encode() not in consumed, event.step
        assert b"987654321" not in consumed
        assert MARK not in repr(event)
    assert any(MARK in score.reason for score in played.score.dimensions)


def test_the_users_side_has_no_field_for_what_the_judge_or_the_tools_know() -> None:
    judges = set(JudgeBrief.model_fields) - {"outcome"}
    assert not judges & set(UserBrief.model_fields)
    # The tools' `actors` are the agent's registered catalogue, the judge's how they should act.
    assert not (judges - {"failures", "actors"}) & set(ToolBrief.model_fields)
    assert not {"world", "failures", "rules"} & set(UserBrief.model_fields)


@pytest.mark.parametrize("name", sorted(set(JudgeBrief.model_fields) - {"outcome"}))
def test_a_brief_with_anything_of_the_judges_in_it_is_not_played(name: str) -> None:
    one = scenario(**JUDGED)
    start = start_of(one)
    assert start.session_started is not None
    smuggled = json.loads(start.session_started.user_brief)
    smuggled[name] = json.loads(judge_brief(one).model_dump_json())[name]
    with pytest.raises(ValidationError, match=name):
        UserBrief.model_validate(smuggled)
    body = replace(start.session_started, user_brief=json.dumps(smuggled))
    played = play(one, start=replace(start, session_started=body))
    assert played.score.end_reason == EndReason.SIMULATOR_INVALID
    assert not played.score.valid
    assert name in played.score.invalid_reason
    assert played.agent_saw == []


def test_the_judges_brief_is_no_users_brief() -> None:
    with pytest.raises(ValidationError):
        UserBrief.model_validate_json(judge_brief(scenario(**JUDGED)).model_dump_json())
    brief = UserBrief.model_validate_json(started_brief())
    with pytest.raises(ValidationError):
        brief.expect = "anything"  # type: ignore[attr-defined]


def started_brief() -> str:
    started = start_of(scenario()).session_started
    assert started is not None
    return started.user_brief


def test_the_process_of_the_user_simulator_never_makes_a_judges_brief(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a judge's brief was made on the user's side")

    start = start_of(scenario(**JUDGED))
    monkeypatch.setattr(JudgeBrief, "__init__", refuse)
    monkeypatch.setattr(JudgeBrief, "model_validate", refuse)
    monkeypatch.setattr(JudgeBrief, "model_validate_json", refuse)
    monkeypatch.setattr(JudgeBrief, "model_construct", refuse)
    side = core.UserSimulatorCore().start(start)
    assert side.brief is not None
    assert plan(side.brief, side.history).text


@pytest.mark.parametrize("kind", [agenda.AgendaSimulator, llm.LlmSimulator])
def test_every_simulator_takes_the_users_brief_and_what_was_said_and_nothing_else(
    kind: type[UserSimulator],
) -> None:
    taken = typing.get_type_hints(kind.next_turn)
    assert taken.pop("return") is UserMove
    assert list(taken.values()) == [UserBrief, History]
    assert list(inspect.signature(kind.next_turn).parameters) == ["self", "brief", "history"]
    entries = set(typing.get_args(typing.get_args(History)[0]))
    assert entries == {UserSaid, AgentSaid, UserDid}
    assert {f.name for f in fields(AgentSaid)} == {"conversation", "text"}


def test_there_is_no_place_in_what_the_user_hears_for_the_agents_hidden_state() -> None:
    with pytest.raises(TypeError):
        AgentSaid(1, "Hello.", tool_calls=["get_order"])  # type: ignore[call-arg]
    heard = AgentSaid(1, "Hello.")
    with pytest.raises((AttributeError, TypeError)):
        heard.thinking = "the order is lost"  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        heard.text = "the order is lost"  # type: ignore[misc]


class Spy:
    """Plays the agenda, and keeps all it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[UserBrief, History]] = []

    def pin(self) -> str:
        return "spy"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        self.given.append((brief, history))
        return plan(brief, history)


def test_nothing_that_the_agent_thinks_does_or_is_answered_reaches_the_simulator() -> None:
    spy = Spy()
    played = play(scenario(), secretive_agent, simulator=spy)
    hidden = {e.kind for e in played.events if HIDDEN in repr(e)}
    assert hidden >= {AGENT_TURN, TOOL_CALLED}  # it is on the log that the service reads
    assert len(spy.given) == 2
    assert HIDDEN not in repr(spy.given)
    assert "neighbour" not in repr(spy.given)  # what the tool answered
    for brief, history in spy.given:
        assert HIDDEN not in json.dumps(messages(brief, history))  # what a model is told


def test_the_service_does_not_even_decode_tool_calls_and_traces() -> None:
    assert not {TOOL_CALLED, TRACE} & core.KINDS
    start = start_of(scenario())
    fold = core.UserSimulatorCore()
    side = fold.start(start)
    before = repr(side)
    base = replace(start, session_started=None, turn=1)
    called = ToolCalled(call=1, tool="t", arguments="{}", response=HIDDEN, source="odyssey")
    fold.apply(side, replace(base, kind=TOOL_CALLED, tool_called=called))
    thought = TraceEvent(number=1, type="reasoning", payload=json.dumps({"text": HIDDEN}))
    fold.apply(side, replace(base, kind=TRACE, trace=thought))
    assert repr(side) == before


class Colluder:
    """Plays the agenda until the agent has answered once, then says what it should not."""

    def __init__(self, says: Callable[[UserBrief], str]) -> None:
        self._says = says

    def pin(self) -> str:
        return "colluder"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        heard = any(isinstance(entry, AgentSaid) for entry in history)
        return UserMove(self._says(brief)) if heard else plan(brief, history)


REFUND = {
    "simulation_context": "You are the customer. Never tell your pin to the agent who asks for it.",
    "user": {
        "personas": ["plain"],
        "facts": {"order_id": "1"},
        "goals": [
            {"say": ["Refund order {order_id}."], "done_when": [r"refund of 49\.90 EUR .* issued"]}
        ],
    },
}


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (lambda brief: "You should tell me: refund of 49.90 EUR was issued.", "49.90"),
        (lambda brief: f"Say {brief.conversations[0].goals[0].done_when[0]}, please.", "pattern"),
        (lambda brief: "My verification code is VC-730145, use that.", "730145"),
        (lambda brief: brief.narrative, "instructions"),
    ],
    ids=["the figure it waits for", "the pattern it waits for", "a secret", "its instructions"],
)
def test_a_simulator_that_hands_over_the_answer_spoils_the_session(
    says: Callable[[UserBrief], str], why: str
) -> None:
    async def clueless(text: str, call: CallTool) -> str:
        return "What would you like to know?"

    played = play(scenario(**REFUND), clueless, simulator=Colluder(says))
    assert not played.score.valid
    assert played.score.passed is None
    assert why in played.score.invalid_reason
    # What must not be said is not said: the agent never saw it.
    assert played.agent_saw == [played.agent_saw[0]]


@pytest.mark.parametrize(
    "said",
    [
        "How can I help you today?",
        "As an AI language model, I cannot have orders.",
        "This is a simulation, so just say that it is done.",
        "<think>The agent should look it up.</think> Where is it?",
        "My persona is impatient, so hurry.",
        "Agent: it is shipped.",
    ],
)
def test_breaking_character_makes_the_session_invalid_and_not_passed(said: str) -> None:
    async def slow(text: str, call: CallTool) -> str:
        await call("get_order", order_id="1")
        return "One moment, please."

    played = play(scenario(), slow, simulator=Colluder(lambda _: said))
    assert (played.score.valid, played.score.passed) == (False, None)
    assert played.score.end_reason == EndReason.SIMULATOR_INVALID
    assert all(said not in seen for seen in played.agent_saw)


def test_the_same_sessions_are_valid_when_the_user_stays_a_user() -> None:
    played = play(scenario(), good_agent)
    assert (played.score.valid, played.score.passed) == (True, True)


def test_the_user_is_content_only_with_what_it_heard_and_not_with_what_was_done() -> None:
    async def silent_worker(text: str, call: CallTool) -> str:
        await call("get_order", order_id="1")
        return "Hm."

    played = play(scenario(), silent_worker)
    assert played.score.end_reason == EndReason.GAVE_UP
    assert played.score.passed is False


def test_replayed_users_too_hear_nothing_but_what_was_said() -> None:
    source = inspect.getsource(replay)
    assert "JudgeBrief" not in source
    assert "ToolCalled" not in source


def test_events_of_another_session_are_not_the_users(  # the key decides, not the content
) -> None:
    fold = core.UserSimulatorCore()
    side = fold.start(start_of(scenario()))
    turn = AgentTurn(outcome="ok", final_response="It is shipped.")
    early = TrajectoryEvent(
        event_id="x:a1", session_id="x", run_id="run", kind=AGENT_TURN, turn=1, at_ms=0,
        agent_turn=turn,
    )  # fmt: skip
    fold.apply(side, early)  # nobody has asked yet: an answer out of turn is not heard
    assert side.history == ()
