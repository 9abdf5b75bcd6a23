"""V04, V14, dual control: when a user uses its own tools, and what it tells the agent of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from schemas.model import Pattern
from schemas.user import Fact, RecordedLine, UserAction, UserTool
from services.user_simulator.acting import MAX_ACTS, MAX_TOLD_CHARS, failed, told
from services.user_simulator.agenda import AgendaSimulator, plan
from services.user_simulator.phrases import BANKS, Kind
from services.user_simulator.replay import ReplaySimulator
from services.user_simulator.simulator import (
    AgentSaid,
    History,
    UserAct,
    UserDid,
    UserMove,
    UserSaid,
)
from services.user_simulator.validity import checked, violation
from tests.support.dual import ACTIONS, user_brief
from tests.support.users import STYLES

OFF = UserAct("set_airplane_mode", '{"on": false}')
ASKED: History = (UserSaid(1, "No signal."), AgentSaid(1, "Please turn airplane mode off."))
DONE = UserDid(1, "set_airplane_mode", '{"on": false}', '{"airplane_mode": "off"}')


def did(response: str, **more: Any) -> UserDid:
    return UserDid(1, "set_airplane_mode", "{}", response, **more)


@pytest.mark.req("V04", "V14")
@pytest.mark.parametrize("style", STYLES)
def test_the_user_does_what_the_agent_asks_for_and_then_says_what_came_of_it(style: str) -> None:
    user = user_brief(style=style)
    assert plan(user, ASKED) == UserMove("", act=OFF)
    move = plan(user, (*ASKED, DONE))
    assert move == UserMove("I switched it. airplane_mode: off.")
    assert checked(user, (*ASKED, DONE), move).invalid is None
    # Nothing is done when nothing is asked for, and the request is not one for a fact.
    assert plan(user, (UserSaid(1, "No signal."), AgentSaid(1, "Is it an old phone?"))).act is None


@pytest.mark.req("V04")
def test_several_things_are_done_one_after_the_other_in_the_scenarios_order() -> None:
    user = user_brief(facts={"pin": Fact(value="4711")})
    history: History = (
        UserSaid(1, "No signal."),
        AgentSaid(1, "Unlock the phone and turn airplane mode off."),
    )
    assert plan(user, history).act == OFF
    history = (*history, DONE)
    assert plan(user, history).act == UserAct("unlock", '{"pin": "4711"}')
    history = (*history, UserDid(1, "unlock", "{}", "unlocked", is_text=True))
    move = plan(user, history)
    assert move.act is None
    assert move.text.startswith("I switched it. airplane_mode: off.")
    assert "unlocked" in move.text


def test_what_is_asked_for_besides_is_answered_too() -> None:
    user = user_brief(facts={"email": Fact(value="jo@example.org")})
    history: History = (
        UserSaid(1, "No signal."),
        AgentSaid(1, "Please turn airplane mode off. What is your email?"),
    )
    move = plan(user, (*history, DONE))
    assert move.text.startswith("I switched it.")
    assert "jo@example.org" in move.text


def test_a_fact_alone_keeps_its_type_and_braces_in_an_answer_stay() -> None:
    action = UserAction(
        when=(Pattern("go"),),
        tool="roll",
        arguments={"n": "{size}", "deep": {"all": ["{size}", "size {size}", 1, None]}},
        say=("{size} gave {response}",),
    )
    user = user_brief(actions=[action], facts={"size": Fact(value=3)})
    history: History = (UserSaid(1, "Hm."), AgentSaid(1, "go"))
    act = plan(user, history).act
    assert act is not None
    assert json.loads(act.arguments) == {"n": 3, "deep": {"all": [3, "size 3", 1, None]}}
    move = plan(user, (*history, did('"{size} {nothing}"')))
    assert move.text == "3 gave {size} {nothing}"
    unknown = user_brief(actions=[action])
    assert "is not one of the user's facts" in (plan(unknown, history).invalid or "")


@pytest.mark.parametrize("style", STYLES)
def test_what_failed_is_told_as_failed_whatever_the_scenario_would_say(style: str) -> None:
    user = user_brief(style=style)
    error = {"error": {"code": "x", "message": "The switch is stuck"}}
    for one in (did(json.dumps(error)), did(json.dumps(error), refused=True),
                did("Error: The switch is stuck", is_text=True)):  # fmt: skip
        assert failed(one)
        said = plan(user, (*ASKED, one)).text
        assert "The switch is stuck" in said
        assert "I switched it" not in said
        assert checked(user, (*ASKED, one), UserMove(said)).invalid is None
    assert not failed(did('{"error": "none", "state": 1}'))


def test_answers_are_told_as_people_say_them() -> None:
    assert (
        told(did('{"on": true, "bars": [1, 2], "name": null}'))
        == "on: yes, bars: 1, 2, name: nothing"
    )
    assert told(did("a\n text", is_text=True)) == "a text"
    assert told(did("not json")) == "not json"
    assert len(told(did(json.dumps("x" * 5000)))) == MAX_TOLD_CHARS
    for style in STYLES:
        assert len(BANKS[style][Kind.DID]) >= 3
        assert len(BANKS[style][Kind.DID_NOT]) >= 3


def test_doing_the_same_again_and_again_costs_patience_and_a_user_who_left_does_nothing() -> None:
    user, history, acted = user_brief(), ASKED, 0
    for _ in range(12):
        move = plan(user, history)
        if move.ending is not None:
            break
        if move.act is not None:
            acted += 1
            history = (*history, DONE)
        else:
            history = (*history, UserSaid(1, move.text), AgentSaid(1, "Turn airplane mode off."))
    # Once for nothing, then as often as the patience allows; the last request is not heeded.
    assert (move.ending, acted) == ("gave_up", user.persona.patience)


def test_a_request_that_comes_with_what_was_wanted_is_still_met_before_leaving() -> None:
    history: History = (ASKED[0], AgentSaid(1, "You are connected. Please turn airplane mode off."))
    assert plan(user_brief(), history).act == OFF
    move = plan(user_brief(), (*history, DONE))
    assert move.ending == "goal_met"
    assert move.text.startswith("I switched it.")


def test_what_no_user_could_do_is_invalid() -> None:
    user = user_brief()

    def why(act: UserAct, history: History = ASKED) -> str:
        return violation(user, history, UserMove("", act=act)) or ""

    assert why(OFF) == ""
    assert "does not have" in why(UserAct("refresh_line", "{}"))
    assert "no JSON object" in why(UserAct("roll", "[1]"))
    assert "no JSON object" in why(UserAct("roll", "{"))
    assert "characters" in why(UserAct("roll", json.dumps({"a": "x" * 70_000})))
    assert why(OFF, (*ASKED, *[DONE] * (MAX_ACTS - 1))) == ""
    assert "without a word" in why(OFF, (*ASKED, *[DONE] * MAX_ACTS))
    bare = user_brief().model_copy(update={"tools": ()})
    assert violation(bare, ASKED, UserMove("", act=OFF)) is not None


def test_what_a_tool_told_the_user_may_be_said() -> None:
    user = user_brief()
    move = UserMove("The serial number on it is XK-99120-B.")
    assert violation(user, ASKED, move) is not None
    seen: History = (*ASKED, did('{"serial": "XK-99120-B"}'))
    assert violation(user, seen, move) is None


def test_a_recorded_user_acts_too() -> None:
    recording = (
        RecordedLine(who="user", text="I have no signal at all."),
        RecordedLine(who="agent", text="Please turn airplane mode off."),
        RecordedLine(who="user", text="It is off now."),
        RecordedLine(who="agent", text="You are connected."),
        RecordedLine(who="user", text="Thanks!", ending="goal_met"),
    )
    user = user_brief(recording=recording)
    replay = ReplaySimulator(AgendaSimulator())

    def turn(history: History) -> UserMove:
        return asyncio.run(replay.next_turn(user, history))

    history: History = (UserSaid(1, turn(()).text), AgentSaid(1, "Please turn airplane mode off."))
    assert turn(history).act == OFF
    history = (*history, DONE)
    assert turn(history).text == "It is off now."
    history = (*history, UserSaid(1, "It is off now."), AgentSaid(1, "You are connected."))
    assert turn(history).ending == "goal_met"
    # Another way than the recorded one: the agenda goes on, and acts as well.
    other: History = (UserSaid(1, turn(()).text), AgentSaid(1, "Unlock it, and turn it off."))
    assert turn(other).act == OFF


def test_without_tools_of_its_own_nothing_is_different() -> None:
    plain = user_brief(actions=()).model_copy(update={"tools": ()})
    assert plan(plain, ASKED) == plan(user_brief(actions=()), ASKED)
    assert plan(plain, ASKED).act is None
    assert UserTool(name="x").input_schema == {"type": "object"}
    assert all(action.tool in {t.name for t in user_brief().tools} for action in ACTIONS)
