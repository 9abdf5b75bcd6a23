"""An open-loop run with objectives, and a user that cannot be played: from request to verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.loader import scenario_of
from schemas.runs import RunRequest
from schemas.topics import SUITES
from services.dispatcher.arrivals import arrivals
from services.runtime.service import Publication
from tests.support.running_stack import RunningStack, read_suite

pytestmark = pytest.mark.timeout(240)

FILES = {
    "suite.yaml": """
name: peak
version: "1"
owner: me
defaults:
  world: {name: order_support}
  setup: {initial_slots: {customer_id: cus_1004}}
""",
    "arriving.yaml": """
scenario:
  name: Customers arrive whether or not others were served
  category: load
  user:
    think: {max_ms: 50}
    goals: [{say: ['Where is ORD-1008?'], done_when: ['should arrive on 17 January 2026']}]
  load:
    sessions: 12
    concurrency: 12
    arrival: {per_s: 10, ramp_s: 0.5}
    objectives: {turn_p50_ms: 1, error_rate: 0.5, completion_rate: 1}
""",
    "unplayable.yaml": """
scenario:
  name: A user that does not know what it is to say
  user: {goals: [{say: ['Where is {nowhere}?'], done_when: [arrive]}]}
""",
}


@pytest.mark.req("V15", "V02")
def test_load_arrives_by_the_clock_and_broken_users_are_played_again_within_the_budget(
    stack: RunningStack, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    suite = read_suite(tmp_path)
    stack.publish(Publication(SUITES, suite.suite_hash, suite))
    status = stack.run(
        RunRequest(
            run_id="peak", suite="peak", agent_id="good", baseline="none", seed=5,
            retry_budget=0.01,
        )
    )  # fmt: skip
    assert (status.state, status.errors) == ("aggregated", ())
    # One session of thirteen may be played again, and that one is not counted twice.
    assert (status.planned, status.ended, status.scored, status.retried) == (13, 13, 13, 1)

    trajectories = stack.trajectories("peak")
    starts = [
        (event.at_ms, event.session_started.planned_at_ms)
        for (name, _), events in sorted(trajectories.items())
        if name == "arriving"
        for event in events
        if event.session_started
    ]
    scenario = next(scenario_of(s) for s in suite.scenarios if s.scenario_id == "arriving")
    assert scenario.load is not None
    assert scenario.load.arrival is not None
    planned = arrivals(scenario.load.arrival, 12, "5:arriving:0:arrivals")
    first = starts[0][1] - planned[0]
    assert [due - first for _, due in starts] == list(planned)
    assert all(began >= due for began, due in starts)
    assert status.arrivals_began_ms == {"arriving#0": first}

    figures = {one.scenario_id: one for one in stack.aggregates("peak").scenarios}
    assert (figures["unplayable"].invalid, figures["unplayable"].retried) == (1, 1)
    load = figures["arriving"].load
    assert load is not None
    assert load.sessions == 12
    assert load.turns == load.timed_turns >= 12
    assert 0 < load.turn_p50_ms <= load.turn_p95_ms <= load.turn_max_ms

    verdict = stack.verdict("peak")
    assert verdict.verdict == "FAIL"
    reasons = {reason.code: reason for reason in verdict.reasons}
    missed = reasons["objective_missed"]
    assert (missed.scenario_id, missed.dimension) == ("arriving", "turn_p50_ms")
    assert f"{load.turn_p50_ms} ms over {load.timed_turns} turns" in missed.message
    assert {"sessions_retried", "invalid_sessions"} <= set(reasons)
    assert sum(reason.code.startswith("objective") for reason in verdict.reasons) == 1
