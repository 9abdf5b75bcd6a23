"""V15: open-loop sessions are admitted when they arrive, up to a bound, and say how late they were.

V02: a trial that its user simulator spoilt is played again within a budget, and counted.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.briefs import ToolBrief, UserBrief
from schemas.codec import Codec
from schemas.registry import AgentRegistration, Suite
from schemas.runs import RunRequest, RunState, RunStatus, SessionNotice
from schemas.scenario import Scenario
from schemas.trajectory import SessionStarted, TrajectoryEvent
from services.dispatcher import coordinator as coordinating
from services.dispatcher.coordinator import Coordinator
from services.dispatcher.expansion import (
    MAX_ATTEMPTS,
    Planned,
    RequestRefused,
    check_request,
    make_plan,
    started_event,
)
from services.dispatcher.run_core import Admit, Complete, RunCore
from services.dispatcher.run_core import RunState as Conducted
from services.runtime.bus.records import Incoming

CODEC = Codec()
CORE = RunCore(CODEC)
USER = {"goals": [{"say": ["hi"], "done_when": ["done"]}], "personas": ["terse", "hostile"]}
SUITE = Suite(suite_hash="h", name="s", version="1", owner="o", scenarios=())
AGENT = AgentRegistration(agent_id="a", name="a", endpoint="http://x")


def scenario(name: str, **more: Any) -> Scenario:
    return Scenario.model_validate({"id": name, "name": name, "user": USER} | more)


def load(**more: Any) -> Scenario:
    return scenario("l", category="load", load={"sessions": 4, "concurrency": 2} | more)


EVEN = load(arrival={"per_s": 4, "spacing": "even"}, objectives={"turn_p95_ms": 800})


def accepted(*scenarios: Scenario, **request: Any) -> Conducted:
    asked = RunRequest(**({"run_id": "r", "suite": "s", "agent_id": "a"} | request))
    state = CORE.start(asked)
    state.suite, state.agent = SUITE, AGENT
    state.accept(make_plan(asked, scenarios, can_improvise=False))
    return state


def end(state: Conducted, one: Planned, reason: str = "goal_met") -> None:
    for what in ("ended", "scored"):
        notice = SessionNotice(
            run_id="r", session_id=one.session_id, scenario_id=one.scenario_id,
            category="happy", trial=one.trial, what=what, reason=reason,
        )  # fmt: skip
        CORE.foreign(state, Incoming("t", 0, 0, "r", CODEC.encode(notice), {}, 0))


class Conductor:
    """The coordinator's effects on a clock that moves when somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000
        self.started: list[TrajectoryEvent] = []
        self.statuses: list[RunStatus] = []
        self.ends_while_asleep: list[tuple[Conducted, Planned]] = []
        service = SimpleNamespace(
            codec=CODEC,
            clock=SimpleNamespace(now_ms=lambda: self.now),
            settings=SimpleNamespace(admission_batch=50, service="dispatcher"),
            metrics=SimpleNamespace(add=lambda *_, **__: None),
            publish=self._publish,
        )
        monkeypatch.setattr(coordinating.asyncio, "sleep", self._sleep)
        nothing: Any = None
        self._coordinator = Coordinator(
            service, nothing, nothing, nothing, nothing, pins={}  # type: ignore[arg-type]
        )  # fmt: skip

    def act(self, state: Conducted) -> None:
        wanted = CORE.wants(state)
        assert isinstance(wanted, Admit)
        asyncio.run(self._coordinator.act(state, wanted))

    def starts(self) -> list[tuple[int, int]]:
        """(when it started, when it was to start) of each session."""
        return [(event.at_ms, body(event).planned_at_ms) for event in self.started]

    async def _sleep(self, seconds: float) -> None:
        self.now += max(1, round(seconds * 1000))

    async def _publish(self, *publications: Any) -> None:
        for one in publications:
            if isinstance(one.record, RunStatus):
                self.statuses.append(one.record)
            else:
                self.started.append(one.record)


def body(event: TrajectoryEvent) -> SessionStarted:
    assert event.session_started is not None
    return event.session_started


@pytest.mark.req("V15")
def test_sessions_arrive_by_the_clock_and_late_ones_say_when_they_were_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, conductor = accepted(EVEN), Conductor(monkeypatch)
    conductor.act(state)
    # Two are admitted in time; the bound keeps the others out, whose time comes all the same.
    assert conductor.starts() == [(1000, 1000), (1250, 1250)]
    assert CORE.wants(state) is None
    conductor.now = 2600
    end(state, state.current()[0])
    conductor.act(state)
    assert conductor.starts()[2:] == [(2600, 1500)]
    end(state, state.current()[1])
    conductor.act(state)
    assert conductor.starts()[3:] == [(2600, 1750)]


@pytest.mark.req("V15")
def test_arrivals_do_not_wait_for_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    state = accepted(load(concurrency=9, arrival={"per_s": 4, "spacing": "even"}))
    conductor = Conductor(monkeypatch)
    conductor.act(state)
    assert conductor.starts() == [(at, at) for at in (1000, 1250, 1500, 1750)]


@pytest.mark.req("V15", "D04")
def test_a_successor_goes_by_the_same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    first, conductor = accepted(EVEN), Conductor(monkeypatch)
    conductor.act(first)
    (said,) = conductor.statuses
    assert said.arrivals_began_ms == {"l#0": 1000}
    assert [one.bounds for one in said.objectives] == [{"turn_p95_ms": 800.0}]
    successor = accepted(EVEN)
    successor.began_ms = dict(said.arrivals_began_ms)
    for one in successor.current()[:2]:
        end(successor, one)
    conductor.now = 9000
    conductor.act(successor)
    assert conductor.starts()[2:] == [(9000, 1500), (9000, 1750)]
    assert len(conductor.statuses) == 1


@pytest.mark.req("V15")
def test_each_trial_of_an_open_loop_is_a_phase_with_arrivals_of_its_own() -> None:
    poisson = load(arrival={"per_s": 4})
    state = accepted(poisson, scenario("a"), trials=2, seed=5)
    assert [len(phase.sessions) for phase in state.phases] == [2, 4, 4]
    assert state.phases[1].arrivals != state.phases[2].arrivals
    assert state.phases[1].arrivals == accepted(poisson, run_id="q", seed=5).phases[0].arrivals
    assert state.phases[0].arrivals == ()


@pytest.mark.req("V15")
def test_arrivals_after_the_deadline_are_refused() -> None:
    with pytest.raises(RequestRefused, match="arrives after 300 s"):
        accepted(load(arrival={"per_s": 0.01, "spacing": "even"}), deadline_s=299)


SPOILT = "simulator_invalid"


def run_through(state: Conducted, spoilt: set[tuple[str, int, int]], order: Any) -> list[Planned]:
    """Play a run to its end. `spoilt`: (scenario, trial, attempt) that the simulator spoils."""
    played: list[Planned] = []
    while not isinstance(wanted := CORE.wants(state), Complete):
        assert isinstance(wanted, Admit)
        if wanted.phase != state.phase:
            state.phase, state.admitted = wanted.phase, 0
        chosen = list(state.current()[state.admitted :][: state.room()])
        state.admitted += len(chosen)
        order.shuffle(chosen)
        for one in chosen:
            is_spoilt = (one.scenario_id, one.trial, one.attempt) in spoilt
            end(state, one, SPOILT if is_spoilt else "goal_met")
        played += chosen
    return played


@pytest.mark.req("V02")
@given(
    st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 4), st.integers(0, 2))),
    st.sampled_from([0, 0.1, 0.25, 1]),
    st.randoms(use_true_random=False),
    st.randoms(use_true_random=False),
)
def test_spoilt_trials_are_played_again_within_the_budget_whoever_ends_first(
    spoilt: set[tuple[str, int, int]], share: float, one: Any, other: Any
) -> None:
    plans = [
        accepted(scenario("a"), scenario("b"), trials=5, retry_budget=share, concurrency=3)
        for _ in range(2)
    ]
    played, again = (
        run_through(state, spoilt, order) for state, order in zip(plans, (one, other), strict=True)
    )
    assert {p.session_id for p in played} == {p.session_id for p in again}
    assert len({p.session_id for p in played}) == len(played)
    retried = [p for p in played if p.attempt]
    assert len(retried) == len(plans[0].superseded) <= -(-share * 10 // 1)
    assert all(p.attempt < MAX_ATTEMPTS for p in retried)
    assert all((p.scenario_id, p.trial, p.attempt - 1) in spoilt for p in retried)
    first = {(p.scenario_id, p.trial) for p in played if not p.attempt}
    wanted = sum((*key, 0) in spoilt for key in first)
    assert len([p for p in retried if p.attempt == 1]) == min(wanted, -(-share * 10 // 1))
    # Whoever takes over and has only the notices comes to the same phases.
    successor = accepted(scenario("a"), scenario("b"), trials=5, retry_budget=share)
    fresh = CORE.start(successor.request)
    for p in played:
        end(fresh, p, SPOILT if (p.scenario_id, p.trial, p.attempt) in spoilt else "goal_met")
    assert successor.plan is not None
    fresh.accept(successor.plan)
    assert [ph.sessions for ph in fresh.phases] == [ph.sessions for ph in plans[0].phases]
    assert CORE.wants(fresh) == Complete()


@pytest.mark.req("V02")
def test_the_status_counts_a_trial_once_and_says_how_many_were_played_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state, conductor = accepted(scenario("a"), trials=3), Conductor(monkeypatch)
    conductor.act(state)
    first, *others = state.current()
    end(state, first, SPOILT)
    for one in others:
        end(state, one)
    conductor.act(state)
    end(state, state.current()[0])
    assert CORE.wants(state) == Complete()
    status = conductor._coordinator._status(state, RunState.SESSIONS_DONE)
    assert (status.planned, status.started, status.ended, status.scored) == (3, 3, 3, 3)
    assert (status.retried, status.reasons) == (1, {"goal_met": 3})
    assert status.categories == {"happy": 3}
    assert [body(event).attempt for event in conductor.started] == [0, 0, 0, 1]


@pytest.mark.req("V02", "V04")
def test_a_trial_is_played_again_with_the_same_user_and_world_in_other_words() -> None:
    state = accepted(scenario("a"), trials=1)
    (one,) = state.current()
    end(state, one, SPOILT)
    (again,) = state.phases[1].sessions
    assert state.plan is not None
    before, after = (
        body(started_event(state.request, state.plan, planned, SUITE, AGENT, 0))
        for planned in (one, again)
    )
    users = [UserBrief.model_validate_json(start.user_brief) for start in (before, after)]
    assert users[0].persona == users[1].persona
    assert users[0].seed != users[1].seed
    assert ToolBrief.model_validate_json(before.tool_brief) == ToolBrief.model_validate_json(
        after.tool_brief
    )
    assert (before.seed, before.trial) == (after.seed, after.trial)
    assert before.task_id != after.task_id


@pytest.mark.req("V02")
def test_what_infrastructure_spoils_is_not_the_simulators_and_not_played_again() -> None:
    state = accepted(scenario("a"), trials=1)
    end(state, state.current()[0], "infrastructure_error")
    assert CORE.wants(state) == Complete()


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_budget_is_a_share(share: float) -> None:
    with pytest.raises(RequestRefused, match="retry_budget"):
        check_request(RunRequest(run_id="r", suite="s", agent_id="a", retry_budget=share))
