"""D02, V14, dual control: the same events give the same state, whatever comes twice or too late."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.briefs import UserBrief, split
from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario, parse_suite, scenario_of
from schemas.registry import AgentRegistration
from schemas.trajectory import EndReason, ToolCalled, TrajectoryEvent, Usage, UserActed
from services.cli.lint.showing import shown
from services.dispatcher import service as dispatcher_service
from services.dispatcher.session_core import (
    USER_CALL_MS,
    DispatcherCore,
    End,
    Post,
    SessionState,
)
from services.judge.matching import calls_of_events, messages_of_events
from services.judge.trajectory import read
from services.judge.transcript import render
from services.judge.validity import spoilt_by
from services.user_simulator.agenda import AgendaSimulator
from services.user_simulator.core import KINDS, UserSide, UserSimulatorCore, perform
from services.user_simulator.simulator import History, UserAct, UserDid, UserMove
from tests.support.dual import (
    NOW_MS,
    acts,
    answers,
    ends,
    event,
    result,
    says,
    started,
    tool_brief,
    user_brief,
)
from tests.support.services import FixedClock, OfflineService

USER, DISPATCHER = UserSimulatorCore(), DispatcherCore()
OFF = '{"airplane_mode": "off"}'
STORY = (
    says(1, "No signal."),
    answers(1, "Turn airplane mode off."),
    acts(1, 2, "set_airplane_mode", '{"on": false}'),
    result(1, 2, "set_airplane_mode", OFF),
    says(2, "Done."),
)


def side(*events: TrajectoryEvent) -> UserSide:
    """What the user's side makes of a log, as its table folds it: each step once."""
    state = USER.start(started())
    seen = set()
    for one in events:
        if one.event_id not in seen:
            seen.add(one.event_id)
            USER.apply(state, one)
    return state


def play(state: UserSide) -> TrajectoryEvent:
    action = USER.wants(state)
    assert action is not None
    (found,) = asyncio.run(perform(state, action, AgendaSimulator(), FixedClock()))
    return found


def session(*events: TrajectoryEvent) -> SessionState:
    state = DISPATCHER.start(started())
    seen = set()
    for one in events:
        if one.event_id not in seen:
            seen.add(one.event_id)
            DISPATCHER.apply(state, one)
    return state


@pytest.mark.req("V14")
def test_the_simulator_asks_waits_sees_the_result_and_goes_on() -> None:
    asked = play(side(*STORY[:2]))
    assert (asked.event_id, asked.turn, asked.kind) == ("s1:c1", 2, "user_acted")
    assert asked.user_acted is not None
    assert (asked.user_acted.call, asked.user_acted.tool) == (1, "set_airplane_mode")
    waiting = side(*STORY[:3])
    assert (USER.wants(waiting), waiting.doing) == (None, 1)
    state = side(*STORY[:4])
    assert state.entries[-1] == UserDid(1, "set_airplane_mode", "{}", OFF)
    assert USER.wants(state) == ("user", 2, 1)
    said = play(state)
    assert (said.event_id, said.turn) == ("s1:u2", 2)
    assert said.user_turn is not None
    assert said.user_turn.text == "I switched it. airplane_mode: off."
    assert USER.wants(side(*STORY)) is None


@pytest.mark.req("D02", "V14")
@given(st.lists(st.integers(0, len(STORY) - 1), max_size=8), st.data())
def test_what_comes_again_changes_nothing(again: list[int], data: st.DataObject) -> None:
    """Every event may come again at any later place: the log's first one of an id counts."""
    events = list(STORY)
    for number in again:
        first = events.index(STORY[number])
        events.insert(data.draw(st.integers(first + 1, len(events))), STORY[number])
    assert side(*events) == side(*STORY)
    assert session(*events) == session(*STORY)


def test_the_agents_calls_are_not_the_users_to_see() -> None:
    called = ToolCalled(call=1, tool="x", arguments="{}", response="{}", source="odyssey")
    state = side(*STORY[:3], event("t1", 2, tool_called=called))
    assert (state.doing, len(state.entries)) == (1, 2)
    assert "tool_called" not in KINDS
    assert "tool_called/user" in KINDS


def test_a_zombies_words_and_deeds_leave_no_session_stuck() -> None:
    """Two simulators of one session disagree: whichever is first in the log goes on."""
    act, told, spoke = STORY[2], STORY[3], STORY[4]
    # It spoke although an act was under way: its words were put to the agent.
    for events in ((act, spoke, told), (act, told, spoke), (spoke, act, told)):
        state = side(*STORY[:2], *events)
        assert USER.wants(state) is None
        assert DISPATCHER.wants(session(*STORY[:2], *events)) == Post(2)
        state = side(*STORY[:2], *events, answers(2, "Turn airplane mode off."))
        # The next call has a number that nobody has used.
        assert play(state).event_id == "s1:c2"


@pytest.mark.req("V06")
def test_a_simulator_that_cannot_play_acts_no_more() -> None:
    class Reaching:
        def pin(self) -> str:
            return "x"

        async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
            return UserMove("", act=UserAct("refresh_line", "{}"))

    state = side(*STORY[:2])
    (found,) = asyncio.run(perform(state, ("user", 2), Reaching(), FixedClock()))
    assert found.user_acted is None
    assert found.user_turn is not None
    assert "does not have: 'refresh_line'" in (found.user_turn.invalid or "")


@pytest.mark.req("V07", "D02")
def test_the_agents_next_turn_waits_for_what_the_user_does() -> None:
    assert DISPATCHER.wants(session(*STORY[:3])) is None
    waiting = session(*STORY[:3])
    assert waiting.expires_ms == NOW_MS + USER_CALL_MS < waiting.deadline_ms
    assert session(*STORY[:4]).expires_ms == waiting.deadline_ms
    assert DISPATCHER.wants(session(*STORY)) == Post(2)
    # What the user does is nobody's tool call in the session's figures.
    assert session(*STORY).tool_calls == 0


@pytest.mark.req("V07", "D02")
def test_a_call_that_is_never_answered_ends_the_session_as_nobodys_failure() -> None:
    state = session(*STORY[:3])
    state.expired = True
    assert DISPATCHER.wants(state) == End(
        EndReason.INFRASTRUCTURE_ERROR, "the user's call 1, of set_airplane_mode, was not answered"
    )
    assert EndReason.INFRASTRUCTURE_ERROR in EndReason.INVALID
    done = session(*STORY[:4])
    done.expired = True
    assert DISPATCHER.wants(done) == End(EndReason.LIMIT_WALL_TIME, "not over after 600000 ms")


@pytest.mark.req("V07", "D02")
def test_the_dispatcher_gives_a_call_its_time_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell looks at the clock; the core says what is due."""
    monkeypatch.setattr(dispatcher_service, "_EXPIRY_CHECK_S", 0)
    states = {"waits": session(*STORY[:3]), "goes on": session(*STORY[:4])}

    class Pursued(Exception):
        pass

    class Table:
        def states(self) -> list[tuple[str, SessionState]]:
            return list(states.items())

        def pursue(self, key: str) -> None:
            raise Pursued(key)

    async def watch(now_ms: int) -> None:
        service = OfflineService(clock=FixedClock(now_ms))
        async with asyncio.timeout(0.05):
            await dispatcher_service._expire(service, Table())  # type: ignore[arg-type]

    with pytest.raises(TimeoutError):
        asyncio.run(watch(NOW_MS + USER_CALL_MS))
    with pytest.raises(Pursued, match="waits"):
        asyncio.run(watch(NOW_MS + USER_CALL_MS + 1))
    assert [state.expired for state in states.values()] == [True, False]


def test_what_a_model_consumes_to_act_counts_against_the_limits() -> None:
    used = UserActed(call=1, tool="roll", usage=Usage(input_tokens=900, output_tokens=200))
    state = DISPATCHER.start(started())
    for one in (*STORY[:2], event("c1", 2, user_acted=used)):
        DISPATCHER.apply(state, one)
    assert state.tokens == 1100


def judged(*events: TrajectoryEvent) -> Any:
    return read([started(), *events, ends(2)])


PATCHES: Sequence[str] = (
    '[{"op": "replace", "path": "", "value": {"on": true}},'
    ' {"op": "replace", "path": "/on", "value": false}]',
    '[{"op": "add", "path": "/refreshed", "value": 1}]',
)


@pytest.mark.req("S05", "V09")
def test_the_judge_tells_the_users_calls_from_the_agents() -> None:
    agents = ToolCalled(
        call=1, tool="refresh_line", arguments="{}", response="{}", source="odyssey",
        state_patch=PATCHES[1],
    )  # fmt: skip
    trajectory = judged(
        *STORY[:3], result(1, 2, "set_airplane_mode", OFF, state_patch=PATCHES[0]), STORY[4],
        event("t1", 2, tool_called=agents), answers(2, "You are connected."),
    )  # fmt: skip
    assert [call.tool for call in trajectory.calls] == ["refresh_line"]
    assert [call.tool for call in trajectory.user_calls] == ["set_airplane_mode"]
    # The world is one: both have made it what it is.
    assert (trajectory.world.start, trajectory.world.end) == (
        {"on": True}, {"on": False, "refreshed": 1},
    )  # fmt: skip
    assert [call.label for call in calls_of_events(trajectory.events)] == ["t1"]
    assert "set_airplane_mode" not in str(messages_of_events(trajectory.events))
    (line,) = (one for one in render(trajectory).text.splitlines() if '"step": "r1"' in one)
    assert '"called_by": "user"' in line
    assert "r1" in trajectory.steps
    assert spoilt_by(trajectory) == ""


def test_a_users_call_that_could_not_be_answered_spoils_the_session() -> None:
    broken = result(1, 2, "roll", error_code="world_failed", status=500)
    assert "roll could not be answered at r1" in spoilt_by(judged(*STORY[:3], broken))
    wrong = result(1, 2, "roll", error_code="arguments_invalid", status=422)
    assert spoilt_by(judged(*STORY[:3], wrong)) == ""


SUITE = "name: phones\nversion: '1'\nowner: us\n"
SCENARIO = """
scenario:
  id: no-signal
  name: No signal
  category: happy
  world: {name: phone}
  user:
    tools: [set_airplane_mode, {name: unlock, description: Unlock it.}]
    actions:
      - when: [airplane mode]
        tool: set_airplane_mode
        arguments: {on: false}
        say: ["It says {response}"]
    goals:
      - say: [I have no signal]
        done_when: [connected]
  expect: {end: [goal_met]}
"""


def problems(old: str, new: str) -> str:
    with pytest.raises(InvalidDocument) as caught:
        parse_suite(SUITE, {"one.yaml": SCENARIO.replace(old, new)})
    return str(caught.value)


@pytest.mark.req("S01", "S06")
def test_a_scenario_gives_tools_to_its_user_and_each_side_gets_its_part() -> None:
    (entry,) = parse_suite(SUITE, {"one.yaml": SCENARIO}).scenarios
    scenario = scenario_of(entry)
    agent = AgentRegistration(agent_id="a", name="a", endpoint="http://127.0.0.1:1/")
    briefs = split(scenario, agent, 1)
    assert [tool.name for tool in briefs.user.tools] == ["set_airplane_mode", "unlock"]
    assert briefs.user.tools[1].description == "Unlock it."
    assert briefs.tool.user_tools == ("set_airplane_mode", "unlock")
    text = shown(scenario)
    assert "has set_airplane_mode" in text
    assert "has unlock: Unlock it." in text
    assert "on hearing /airplane mode/ does set_airplane_mode(on=false)" in text


@pytest.mark.req("S06")
def test_mistakes_with_the_users_tools_are_told_at_their_place() -> None:
    assert "the user has no tool unlocks" in problems(
        "      tool: set_airplane_mode", "      tool: unlocks"
    )
    assert "the user has unlock already" in problems("[set_airplane_mode, ", "[unlock, ")
    assert "name one in `world`" in problems("  world: {name: phone}\n", "")
    failing = "failures: [{id: f, tool: unlock, kind: outage}]\n  expect:"
    assert "unlock is the user's; failures are for the agent's tools" in problems(
        "expect:", failing
    )


def test_briefs_without_users_tools_are_what_they_were() -> None:
    assert user_brief().tools
    assert tool_brief().user_tools == ("set_airplane_mode", "unlock", "roll")
    old = UserBrief.model_validate_json(
        user_brief().model_copy(update={"tools": (), "actions": ()}).model_dump_json()
    )
    assert (old.tools, old.actions) == ((), ())


def test_the_example_of_the_guide_is_a_scenario() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "user-tools.md").read_text()
    lines = [line for line in guide.splitlines() if line.startswith("    ")]
    scenario = parse_scenario(textwrap.dedent("\n".join(lines)), "guide.yaml")
    assert scenario.user is not None
    assert [tool.name for tool in scenario.user.tools] == ["set_airplane_mode", "unlock"]
    assert [action.tool for action in scenario.user.actions] == ["set_airplane_mode", "unlock"]
