"""Each way in which a simulator of any kind can break, in a session that it then spoils."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from schemas.briefs import UserBrief
from schemas.trajectory import (
    AgentTurn,
    Limits,
    SessionStarted,
    TrajectoryEvent,
    UserTurn,
)
from services.user_simulator.agenda import plan
from services.user_simulator.core import UserSimulatorCore, perform
from services.user_simulator.simulator import AgentSaid, History, UserMove
from tests.support.services import FixedClock
from tests.support.users import brief, conversation

pytestmark = pytest.mark.req("V02")

NARRATIVE = "You are upset about the headphones, and you never give your street to anybody."
USER = brief(conversation(), narrative=NARRATIVE)
AGENT = (
    "What is your order number?", "What is your email address?", "Shall I go ahead?",
    "Why do you want to return it?", "Your return has been created.", "Good.", "I see.", "Hm.",
    "Well.", "So.",
)  # fmt: skip
BOUND = 20


class Broken:
    """Plays soundly but for one thing."""

    def __init__(self, fault: Callable[[UserMove, History], UserMove]) -> None:
        self._fault = fault

    def pin(self) -> str:
        return "broken"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        return self._fault(plan(brief, history[: 2 * len(AGENT)]), history)


def answers(history: History) -> int:
    return sum(isinstance(entry, AgentSaid) for entry in history)


def says(text: str, *, after: int = 2) -> Callable[[UserMove, History], UserMove]:
    return lambda move, history: UserMove(text) if answers(history) == after else move


def ends(ending: str, *, after: int) -> Callable[[UserMove, History], UserMove]:
    def fault(move: UserMove, history: History) -> UserMove:
        return UserMove("Bye.", ending=ending) if answers(history) == after else move  # type: ignore[arg-type]

    return fault


def stays(move: UserMove, history: History) -> UserMove:
    """Never ends: there is always something else to say."""
    return UserMove(f"And then there is {'more ' * answers(history)}of it.")


def repeats(move: UserMove, history: History) -> UserMove:
    return UserMove("I want it.") if history else move


def echoes(move: UserMove, history: History) -> UserMove:
    long_enough = history and len(history[-1].text.split()) >= 6
    return UserMove(history[-1].text) if long_enough else move


FAULTS: dict[str, tuple[Callable[[UserMove, History], UserMove], str]] = {
    "ends at once": (ends("gave_up", after=0), "before anything was said"),
    "content too early": (ends("goal_met", after=1), "ends too early"),
    "gives up too early": (ends("gave_up", after=1), "ends too early"),
    "gives up at the finish": (ends("gave_up", after=5), "heard all it came for"),
    "never ends": (stays, "never ends"),
    "leaks instructions": (says(f"Well. {NARRATIVE}"), "instructions aloud"),
    "leaks reasoning": (says("<think>It wants my email.</think> Here."), "out of character"),
    "thinks aloud": (says("Thought: it wants my email.\nOkay."), "out of character"),
    "speaks as the agent": (says("How may I help you today?"), "speaks as the agent"),
    "labels itself the agent": (says("Agent: your return is done."), "speaks as the agent"),
    "echoes the agent": (echoes, "says its last answer back"),
    "repeats itself": (repeats, "in a row"),
    "invents a code": (says("It is order XY-73519."), "cannot know"),
    "invents an address": (says("I live at 7 Elm Street."), "cannot know"),
    "says nothing": (says(" "), "says nothing"),
}


def session(fault: Callable[[UserMove, History], UserMove]) -> list[UserTurn]:
    """The user turns of a whole session, until the user wants no further one."""
    core, made = UserSimulatorCore(), list[UserTurn]()
    body = SessionStarted(
        scenario_id="sc", category="happy", trial=0, seed=1, suite="su", suite_hash="h",
        agent_id="a", agent_fingerprint="f", task_id=1, user_brief=USER.model_dump_json(),
        tool_brief="{}", limits=Limits(),
    )  # fmt: skip
    state = core.start(
        TrajectoryEvent(
            event_id="s:start", session_id="s", run_id="r", kind="session_started",
            conversation=1, turn=0, at_ms=0, session_started=body,
        )
    )  # fmt: skip
    while (action := core.wants(state)) is not None:
        assert len(made) < BOUND, "no end"
        (event,) = asyncio.run(perform(state, action, Broken(fault), FixedClock(0)))  # type: ignore[arg-type]
        assert event.user_turn is not None
        made.append(event.user_turn)
        core.apply(state, event)
        answer = AgentTurn(outcome="ok", final_response=AGENT[(len(made) - 1) % len(AGENT)])
        core.apply(
            state,
            TrajectoryEvent(
                event_id=f"s:a{len(made)}", session_id="s", run_id="r", kind="agent_turn",
                conversation=1, turn=len(made), at_ms=0, agent_turn=answer,
            ),
        )  # fmt: skip
    return made


def test_without_a_fault_the_session_is_valid() -> None:
    made = session(lambda move, _history: move)
    assert [turn.invalid for turn in made] == [None] * 6
    assert made[-1].ending == "goal_met"


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_simulator_is_caught_and_the_session_is_invalid(name: str) -> None:
    fault, reason = FAULTS[name]
    made = session(fault)
    assert reason in (made[-1].invalid or "")
    assert made[-1].ending is None
    assert all(turn.invalid is None for turn in made[:-1])
