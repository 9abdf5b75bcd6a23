"""D04, D09: a run admits within its bound, survives a takeover, and completes exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.runs import RunRequest, SessionNotice
from schemas.scenario import Scenario
from services.dispatcher.expansion import Planned, make_plan
from services.dispatcher.run_core import Accept, Admit, Complete, RunCore, RunState
from services.runtime.bus.records import Incoming

CODEC = Codec()
CORE = RunCore(CODEC)
USER = {"goals": [{"say": ["hi"], "done_when": ["done"]}]}
SCENARIOS = [
    Scenario.model_validate({"id": "a", "name": "a", "user": USER}),
    Scenario.model_validate(
        {
            "id": "l", "name": "l", "user": USER, "category": "load",
            "load": {"sessions": 4, "concurrency": 3},
        }
    ),
]  # fmt: skip


def incoming(planned: Planned, what: str) -> Incoming:
    notice = SessionNotice(
        run_id="r", session_id=planned.session_id, scenario_id=planned.scenario_id,
        category="happy", trial=planned.trial, what=what, reason="goal_met",
    )  # fmt: skip
    return Incoming("t", 0, 0, "r", CODEC.encode(notice), {}, 0)


def accepted(trials: int = 6, concurrency: int = 2) -> RunState:
    request = RunRequest(
        run_id="r", suite="s", agent_id="a", trials=trials, concurrency=concurrency
    )
    state = CORE.start(request)
    assert CORE.wants(state) == Accept()
    state.accept(make_plan(request, SCENARIOS, can_improvise=False))
    return state


def admit(state: RunState) -> list[Planned]:
    """What the coordinator does with an Admit, without the bus."""
    wanted = CORE.wants(state)
    if not isinstance(wanted, Admit):
        return []
    if wanted.phase != state.phase:
        state.phase, state.admitted = wanted.phase, 0
    started = []
    while (room := state.room()) > 0:
        chosen = state.current()[state.admitted : state.admitted + room]
        started += [one for one in chosen if one.session_id not in state.ended]
        state.admitted += len(chosen)
    return started


@pytest.mark.req("D09")
@given(st.randoms(use_true_random=False), st.integers(1, 7))
def test_every_session_runs_once_and_never_more_than_the_bound(random, concurrency) -> None:  # type: ignore[no-untyped-def]
    state = accepted(concurrency=concurrency)
    running: list[Planned] = []
    seen: list[str] = []
    for _ in range(200):
        running += admit(state)
        assert state.plan is not None
        assert len(running) <= state.plan.phases[state.phase].concurrency
        if not running:
            break
        one = running.pop(random.randrange(len(running)))
        seen.append(one.session_id)
        for _ in range(random.choice([1, 2])):
            CORE.foreign(state, incoming(one, "ended"))
        CORE.foreign(state, incoming(one, "scored"))
    assert len(seen) == len(set(seen)) == 6 + 24
    assert CORE.wants(state) == Complete()
    assert sum(state.ended_categories.values()) == 30


def test_a_run_is_not_complete_before_all_are_judged() -> None:
    state = accepted(trials=1)
    assert state.plan is not None
    for phase in state.plan.phases:
        for one in phase.sessions:
            CORE.foreign(state, incoming(one, "ended"))
    state.phase = 1
    state.admitted = len(state.current())
    assert CORE.wants(state) is None
    for phase in state.plan.phases:
        for one in phase.sessions:
            CORE.foreign(state, incoming(one, "scored"))
    assert CORE.wants(state) == Complete()


def test_a_successor_admits_what_had_not_ended_and_nothing_twice_that_had() -> None:
    request = RunRequest(run_id="r", suite="s", agent_id="a", trials=6, concurrency=2)
    plan = make_plan(request, SCENARIOS, can_improvise=False)
    state = CORE.start(request)
    gone = plan.phases[0].sessions[:3]
    for one in gone:
        CORE.foreign(state, incoming(one, "ended"))  # replayed before the plan is known
    state.accept(plan)
    started = admit(state)
    assert [one.session_id for one in started] == [
        one.session_id for one in plan.phases[0].sessions[3:5]
    ]


def test_an_overdue_run_completes_with_what_there_is() -> None:
    state = accepted()
    state.overdue = True
    assert CORE.wants(state) == Complete()


def test_a_damaged_notice_is_a_decode_error() -> None:
    with pytest.raises(DecodeError):
        CORE.foreign(accepted(), Incoming("t", 0, 0, "r", b"junk", {}, 0))
