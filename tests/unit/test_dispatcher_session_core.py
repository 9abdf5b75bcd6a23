"""V07, V14 and the guarantee that every session ends exactly once, for one reason."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.trajectory import (
    AgentTurn,
    EndReason,
    Injection,
    Limits,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TrajectoryEvent,
    Usage,
    UserTurn,
)
from services.dispatcher.session_core import DispatcherCore, End, Notify, Post, SessionState

CORE = DispatcherCore()


def event(step: str, turn: int = 0, **body: object) -> TrajectoryEvent:
    kind = next(iter(body))
    return TrajectoryEvent(
        event_id=f"s:{step}", session_id="s", run_id="r", kind=kind, turn=turn, at_ms=1000,
        **body,  # type: ignore[arg-type]
    )  # fmt: skip


def begin(conversations: int = 1, **limits: float) -> SessionState:
    started = SessionStarted(
        scenario_id="x", category="happy", trial=0, seed=1, suite="s", suite_hash="h",
        agent_id="a", agent_fingerprint="f", task_id=1, user_brief="{}", tool_brief="{}",
        conversations=conversations, limits=Limits(**limits),  # type: ignore[arg-type]
    )  # fmt: skip
    return CORE.start(event("start", session_started=started))


def fold(state: SessionState, events: Sequence[TrajectoryEvent]) -> SessionState:
    for one in events:
        CORE.apply(state, one)
    return state


def user(n: int, text: str = "hello", **more: object) -> TrajectoryEvent:
    return event(f"u{n}", n, user_turn=UserTurn(text=text, **more))  # type: ignore[arg-type]


def agent(n: int, **more: object) -> TrajectoryEvent:
    turn = {"outcome": "ok", "final_response": "yes"} | more
    return event(f"a{n}", n, agent_turn=AgentTurn(**turn))  # type: ignore[arg-type]


def test_the_user_speaks_first_and_then_the_turn_is_posted() -> None:
    state = begin()
    assert CORE.wants(state) is None
    fold(state, [user(1)])
    assert CORE.wants(state) == Post(1)
    fold(state, [agent(1)])
    assert CORE.wants(state) is None
    assert state.history == [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "yes"},
    ]


@pytest.mark.parametrize("ending", ["goal_met", "gave_up"])
def test_the_user_ends_the_session(ending: str) -> None:
    state = fold(begin(), [user(1), agent(1), user(2, "", ending=ending)])
    assert CORE.wants(state) == End(ending)


@pytest.mark.req("V14")
def test_a_conversation_that_is_over_is_followed_by_one_with_an_empty_history() -> None:
    state = begin(conversations=2)
    fold(state, [user(1), agent(1), user(2, "", ending="conversation_over")])
    assert (state.conversation, state.history) == (2, [])
    assert CORE.wants(state) is None
    fold(state, [user(3)])
    assert CORE.wants(state) == Post(3)


def test_ending_the_last_conversation_without_a_reason_is_the_simulators_fault() -> None:
    state = fold(begin(), [user(1), agent(1), user(2, "", ending="conversation_over")])
    wanted = CORE.wants(state)
    assert isinstance(wanted, End)
    assert wanted.reason == EndReason.SIMULATOR_INVALID


@pytest.mark.req("V07")
@pytest.mark.parametrize(
    ("limits", "events", "reason"),
    [
        ({"turns": 1}, [user(1), agent(1), user(2)], EndReason.LIMIT_TURNS),
        (
            {"tokens": 10},
            [user(1), agent(1, usage=Usage(input_tokens=8, output_tokens=3))],
            EndReason.LIMIT_TOKENS,
        ),
        ({"tokens": 10}, [user(1, usage=Usage(output_tokens=11))], EndReason.LIMIT_TOKENS),
        ({"cost_usd": 0.1}, [user(1), agent(1, usage=Usage(cost_usd=0.2))], EndReason.LIMIT_COST),
        (
            {"tool_calls": 1},
            [
                user(1),
                event("t1", 1, tool_called=ToolCalled(
                    call=1, tool="x", arguments="{}", response="", source="error", status=403,
                    error_code="tool_call_limit")),
                agent(1),
            ],
            EndReason.LIMIT_TOOL_CALLS,
        ),
        ({}, [user(1), agent(1, outcome="timeout")], EndReason.AGENT_TIMEOUT),
        ({}, [user(1), agent(1, outcome="error", error_code="x")], EndReason.AGENT_ERROR),
        ({}, [user(1), agent(1, outcome="infrastructure")], EndReason.INFRASTRUCTURE_ERROR),
        ({}, [user(1), agent(1, ended=True)], EndReason.AGENT_ENDED),
        ({}, [user(1, invalid="speaks as the agent")], EndReason.SIMULATOR_INVALID),
    ],
)  # fmt: skip
def test_every_bound_ends_the_session_under_its_name(
    limits: dict[str, float], events: list[TrajectoryEvent], reason: str
) -> None:
    wanted = CORE.wants(fold(begin(**limits), events))
    assert isinstance(wanted, End)
    assert wanted.reason == reason


def test_wall_time_ends_the_session_when_the_clock_says_so() -> None:
    state = fold(begin(wall_ms=500), [user(1)])
    assert state.deadline_ms == 1500
    state.expired = True
    wanted = CORE.wants(state)
    assert isinstance(wanted, End)
    assert wanted.reason == EndReason.LIMIT_WALL_TIME


def test_an_ended_session_is_notified_once_and_then_finished() -> None:
    state = fold(begin(), [user(1), event("end", session_ended=SessionEnded(reason="gave_up"))])
    assert CORE.wants(state) == Notify()
    assert not CORE.finished(state)
    state.notified = True
    assert CORE.wants(state) is None
    assert CORE.finished(state)


def test_nothing_after_the_end_counts() -> None:
    state = fold(begin(), [event("end", session_ended=SessionEnded(reason="gave_up"))])
    fold(state, [user(1), agent(1, outcome="error")])
    assert state.ended == "gave_up"
    assert CORE.wants(state) == Notify()


def test_an_answer_to_a_turn_that_is_not_pending_changes_nothing() -> None:
    state = fold(begin(), [user(1), agent(1), agent(1, outcome="error")])
    assert CORE.wants(state) is None


def test_injections_and_calls_are_counted() -> None:
    call = ToolCalled(
        call=1, tool="x", arguments="{}", response="{}", source="injected",
        injection=Injection(rule_id="down", kind="outage", occurrence=1),
    )  # fmt: skip
    state = fold(begin(), [user(1), event("t1", 1, tool_called=call)])
    assert (state.tool_calls, state.injected) == (1, {"down": 1})


@pytest.mark.req("V07")
@given(
    st.lists(
        st.sampled_from(["hello", "goal_met", "gave_up", "conversation_over", "ok", "timeout"]),
        max_size=40,
    )
)
def test_whatever_the_parties_do_the_session_wants_at_most_one_thing_and_stays_bounded(
    moves: list[str],
) -> None:
    state = begin(conversations=2, turns=4)
    turn = 0
    for move in moves:
        wanted = CORE.wants(state)
        if isinstance(wanted, End):
            break
        if isinstance(wanted, Post):
            outcome = move if move == "timeout" else "ok"
            fold(state, [agent(wanted.turn, outcome=outcome)])
        else:
            turn += 1
            ending = move if move in ("goal_met", "gave_up", "conversation_over") else None
            fold(state, [user(turn, "" if ending else "hello", ending=ending)])
    assert state.posted <= 4
