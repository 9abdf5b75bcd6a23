"""The core: which events it heeds, when it wants a turn, and the event it makes."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import fields, replace

import pytest

from schemas.briefs import UserBrief
from schemas.trajectory import (
    AgentTurn,
    Limits,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TrajectoryEvent,
    UserTurn,
)
from services.runtime.settings import ConfigurationError, load_settings
from services.user_simulator.agenda import AgendaSimulator
from services.user_simulator.core import KINDS, UserSide, UserSimulatorCore, perform
from services.user_simulator.service import ByBrief, UserSimulatorSettings
from services.user_simulator.simulator import AgentSaid, History, UserMove, UserSaid
from tests.support.users import REFUND, RETURN, brief, conversation

CORE = UserSimulatorCore()
SECRET = "expected outcome"


class StoppedClock:
    """Seven milliseconds pass between any two looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def now_ms(self) -> int:
        return 1_000

    def monotonic(self) -> float:
        self.looks += 1
        return self.looks * 0.007


def event(step: str, kind: str, turn: int = 0, conversation: int = 1, **body: object) -> (
    TrajectoryEvent
):  # fmt: skip
    return TrajectoryEvent(
        event_id=f"s1:{step}", session_id="s1", run_id="r1", kind=kind, turn=turn,
        conversation=conversation, at_ms=5, **{kind: body["body"]},  # type: ignore[arg-type]
    )  # fmt: skip


def started(user: UserBrief | str) -> TrajectoryEvent:
    text = user if isinstance(user, str) else user.model_dump_json()
    body = SessionStarted(
        scenario_id="sc", category="happy", trial=0, seed=1, suite="su", suite_hash="h",
        agent_id="a", agent_fingerprint="f", task_id=1, user_brief=text,
        tool_brief="{" + SECRET, limits=Limits(),
    )  # fmt: skip
    return event("start", "session_started", body=body)


def user_turn(n: int, text: str = "Hi", conversation: int = 1, **more: object) -> TrajectoryEvent:
    body = UserTurn(text=text, **more)  # type: ignore[arg-type]
    return event(f"u{n}", "user_turn", n, conversation, body=body)


def agent_turn(n: int, text: str = "Hm", conversation: int = 1, **more: object) -> TrajectoryEvent:
    body = AgentTurn(**{"outcome": "ok", "final_response": text, **more})  # type: ignore[arg-type]
    return event(f"a{n}", "agent_turn", n, conversation, body=body)


def fold(*events: TrajectoryEvent, user: UserBrief | None = None) -> UserSide:
    state = CORE.start(started(user or brief(conversation(), conversation())))
    for one in events:
        CORE.apply(state, one)
    return state


def played(state: UserSide, action: Hashable) -> TrajectoryEvent:
    (made,) = asyncio.run(perform(state, action, AgendaSimulator(), StoppedClock()))
    return made


OVER = {"text": "Bye", "ending": "conversation_over"}


@pytest.mark.req("V02")
@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([], ("user", 1)),
        ([user_turn(1)], None),
        ([user_turn(1), agent_turn(1)], ("user", 2)),
        ([user_turn(1), agent_turn(1), user_turn(2)], None),
        ([user_turn(1), agent_turn(1, outcome="timeout")], None),
        ([user_turn(1), agent_turn(1, outcome="error")], None),
        ([user_turn(1), agent_turn(1, ended=True)], None),
        ([user_turn(1), agent_turn(1), user_turn(2, **OVER)], ("user", 3)),
        ([user_turn(1), agent_turn(1), user_turn(2, ending="goal_met")], None),
        ([user_turn(1), agent_turn(1), user_turn(2, ending="gave_up")], None),
        ([user_turn(1, invalid="leaks")], None),
        ([user_turn(1, invalid="leaks"), agent_turn(1)], None),
        # Not in turn: nothing changes.
        ([agent_turn(1)], ("user", 1)),
        ([user_turn(2)], ("user", 1)),
        ([user_turn(1), user_turn(2)], None),
        ([user_turn(1), agent_turn(2)], None),
        ([user_turn(1), agent_turn(1), agent_turn(1, "Again")], ("user", 2)),
        ([user_turn(1), agent_turn(1), user_turn(2, **OVER), agent_turn(2)], ("user", 3)),
    ],
)
def test_when_it_is_the_users_turn(
    events: list[TrajectoryEvent], wanted: tuple[str, int] | None
) -> None:
    state = fold(*events)
    assert CORE.wants(state) == wanted
    assert not CORE.finished(state)


def test_a_session_that_ended_is_finished_and_wants_nothing() -> None:
    state = fold(event("end", "session_ended", body=SessionEnded(reason="agent_error")))
    assert CORE.finished(state)
    assert CORE.wants(state) is None


@pytest.mark.req("V02")
def test_the_users_side_holds_what_the_user_sees_and_nothing_else() -> None:
    call = ToolCalled(call=1, tool="refund", arguments="{}", response="SECRET", source="odyssey")
    state = fold(
        user_turn(1),
        event("t1", "tool_called", 1, body=call),
        agent_turn(1, "Hello", messages='["SECRET"]', metadata='{"m": "SECRET"}'),
    )
    assert state.history == (UserSaid(1, "Hi"), AgentSaid(1, "Hello"))
    everything = repr([getattr(state, f.name) for f in fields(state)])
    assert "SECRET" not in everything
    assert SECRET not in everything
    assert "tool_called" not in KINDS
    assert {f.name for f in fields(AgentSaid)} == {"conversation", "text"}
    assert {f.name for f in fields(UserSaid)} == {"conversation", "text", "closing"}


def test_the_event_is_the_due_turn() -> None:
    made = played(fold(), ("user", 1))
    assert (made.event_id, made.kind, made.turn, made.conversation) == (
        "s1:u1", "user_turn", 1, 1,
    )  # fmt: skip
    assert (made.run_id, made.session_id, made.at_ms) == ("r1", "s1", 1_000)
    assert made.user_turn is not None
    assert made.user_turn.latency_ms == 7
    assert made.user_turn.invalid is None
    with pytest.raises(ValueError, match="not due"):
        played(fold(), ("user", 2))


@pytest.mark.req("V14", "V04")
def test_a_session_of_two_conversations_is_numbered_through_and_replays_alike() -> None:
    user = brief(conversation(RETURN), conversation(REFUND))
    answers = {1: "Your return has been booked.", 3: "Within 5 days."}

    def run() -> list[TrajectoryEvent]:
        state, log = fold(user=user), []
        while (action := CORE.wants(state)) is not None:
            made = played(state, action)
            log.append(made)
            CORE.apply(state, made)
            assert made.user_turn is not None
            if made.user_turn.ending is None:
                answer = agent_turn(made.turn, answers[made.turn], made.conversation)
                CORE.apply(state, answer)
        return log

    log = run()
    assert [(e.turn, e.conversation, e.user_turn and e.user_turn.ending) for e in log] == [
        (1, 1, None), (2, 1, "conversation_over"), (3, 2, None), (4, 2, "goal_met"),
    ]  # fmt: skip
    assert run() == log


@pytest.mark.req("V02")
@pytest.mark.parametrize("text", ["", "not json", "{}", '{"persona": {"name": "x"}, "seed": "y"}'])
def test_a_brief_that_cannot_be_read_makes_the_session_invalid(text: str) -> None:
    state = CORE.start(started(text))
    assert CORE.wants(state) == ("user", 1)
    made = played(state, ("user", 1))
    assert made.user_turn is not None
    assert "cannot be read" in (made.user_turn.invalid or "")
    CORE.apply(state, made)
    assert CORE.wants(state) is None


@pytest.mark.req("V02")
def test_every_move_is_checked_before_it_leaves() -> None:
    class Swapped:
        def pin(self) -> str:
            return "swapped"

        async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
            return UserMove("How can I help you today?", ending="goal_met")

    state = fold(user_turn(1), agent_turn(1), user=brief())
    (made,) = asyncio.run(perform(state, ("user", 2), Swapped(), StoppedClock()))
    assert made.user_turn is not None
    assert "speaks as the agent" in (made.user_turn.invalid or "")
    assert made.user_turn.ending is None


class Named:
    """Says its own name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def pin(self) -> str:
        return self.name

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        return UserMove(self.name)


def test_users_in_words_are_played_by_the_model_and_others_by_the_agenda() -> None:
    both = ByBrief(Named("agenda"), Named("model"))
    written, told = brief(), brief().model_copy(update={"conversations": ()})
    assert asyncio.run(both.next_turn(written, ())).text == "agenda"
    assert asyncio.run(both.next_turn(told, ())).text == "model"
    assert both.pin() == "agenda, model"


def test_settings_name_the_model_and_hide_its_key() -> None:
    plain = load_settings(UserSimulatorSettings, {})
    assert plain.model() is None
    env = {
        "WINDTUNNEL_USER_SIMULATOR": "llm", "WINDTUNNEL_USER_MODEL": "openai/x",
        "WINDTUNNEL_USER_MODEL_API_KEY": "sk-very-secret",
    }  # fmt: skip
    settings = load_settings(UserSimulatorSettings, env)
    model = settings.model()
    assert model is not None
    assert model.model == "openai/x"
    assert model.api_key.get_secret_value() == "sk-very-secret"
    assert "very-secret" not in repr(settings) + repr(model)
    with pytest.raises(ConfigurationError, match="WINDTUNNEL_USER_MODEL"):
        load_settings(UserSimulatorSettings, {"WINDTUNNEL_USER_SIMULATOR": "llm"})


def test_moves_are_values() -> None:
    assert replace(UserMove("a"), text="b") == UserMove("b")
    assert hash(UserMove("a")) == hash(UserMove("a"))
