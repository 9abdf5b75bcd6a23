"""V04, D09 and guarantee 6: same seed, same run - however many replicas, whatever is killed."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.gate import GateStatus
from schemas.runs import RunRequest, RunStatus
from schemas.scores import RunAggregates
from tests.support.equality import assert_equal
from tests.support.running_stack import (
    DEMO_SUITE,
    RunningStack,
    comparable,
    comparable_score,
    read_suite,
    running_stack,
    wait_until,
)

pytestmark = pytest.mark.timeout(600)
# Every category, and of the load scenarios one: enough to go wrong, and quick on two cores.
LEFT_OUT = ("load-cancellations", "load-complaints", "load-invoices", "load-refunds")
SERVICES = ("dispatcher", "tool_proxy", "user_simulator", "judge", "pipelines_runner", "gate")
_runs = itertools.count()


def request(name: str, **more: object) -> RunRequest:
    """A run of its own: a test's second try must not be shown the first one's."""
    fields: dict[str, object] = {
        "run_id": f"{name}-{next(_runs)}",
        "suite": "order-support", "agent_id": "good", "baseline": "none",
        "trials": 1, "seed": 11, "concurrency": 6,
        "scenarios": tuple(
            scenario.scenario_id
            for scenario in read_suite(DEMO_SUITE).scenarios
            if scenario.scenario_id not in LEFT_OUT
        ),
    }  # fmt: skip
    return RunRequest(**(fields | more))  # type: ignore[arg-type]


def outcome(stack: RunningStack, run_id: str) -> dict[str, object]:
    """All that must be equal between two runs with one seed."""
    aggregates = stack.aggregates(run_id)
    return {
        "trajectories": {
            key: [comparable(event) for event in events]
            for key, events in stack.trajectories(run_id).items()
        },
        "scores": {key: comparable_score(score) for key, score in stack.scores(run_id).items()},
        "aggregates": comparable_aggregates(aggregates),
        "verdict": comparable_verdict(stack.verdict(run_id)),
    }


def comparable_aggregates(aggregates: RunAggregates) -> RunAggregates:
    scenarios = tuple(
        replace(
            scenario,
            load=None,
            dimensions=tuple(
                replace(one, examples=tuple(replace(e, session_id="") for e in one.examples))
                for one in scenario.dimensions
                if one.dimension != "agent_latency_ms"
            ),
        )
        for scenario in aggregates.scenarios
    )
    return replace(aggregates, run_id="", at_ms=0, ranges=(), scenarios=scenarios)


def comparable_verdict(verdict: GateStatus) -> GateStatus:
    diff = tuple(
        replace(one, examples=()) for one in verdict.diff if one.dimension != "agent_latency_ms"
    )
    return replace(verdict, run_id="", at_ms=0, diff=diff)


@pytest.fixture(scope="module")
def reference(stack: RunningStack) -> dict[str, object]:
    status = stack.run(request("reference"))
    assert status.state == "aggregated"
    return outcome(stack, status.run_id)


def test_a_second_run_with_the_same_seed_is_equal(
    stack: RunningStack, reference: dict[str, object]
) -> None:
    status = stack.run(request("again"))
    assert_equal(outcome(stack, status.run_id), reference)


def test_another_seed_gives_other_trajectories(
    stack: RunningStack, reference: dict[str, object]
) -> None:
    status = stack.run(request("other-seed", seed=12))
    assert outcome(stack, status.run_id)["trajectories"] != reference["trajectories"]


@pytest.mark.req("D01", "D09")
@pytest.mark.parametrize("replicas", [2, 4])
def test_more_replicas_give_the_same_run(
    stack: RunningStack, tmp_path: Path, reference: dict[str, object], replicas: int
) -> None:
    with running_stack(tmp_path, "--replicas", str(replicas)) as replicated:
        replicated.publish_suite()
        replicated.register_agent("good", stack.agent_urls["good"])
        status = replicated.run(request("replicated"), timeout_s=400)
        assert status.state == "aggregated"
        assert_equal(outcome(replicated, status.run_id), reference)


@pytest.mark.parametrize("victim", SERVICES)
def test_kill_9_in_the_middle_of_a_run_changes_nothing(
    stack: RunningStack, reference: dict[str, object], victim: str
) -> None:
    asked = request(f"kill-{victim}")
    stack.request(asked)
    with killing(stack, victim, asked.run_id):
        status = stack.final_status(asked.run_id, timeout_s=400)
    assert (status.state, status.lost) == ("aggregated", 0)
    assert set(status.reasons) <= {"goal_met", "gave_up"}
    assert_equal(outcome(stack, asked.run_id), reference)


class killing:
    """Kills a service once the run is well under way (gate and pipelines: when it is at their
    turn), and insists that it did."""

    def __init__(self, stack: RunningStack, victim: str, run_id: str) -> None:
        self._stack, self._victim, self._run_id = stack, victim, run_id
        self._killed = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.join(60)
        if kind is None:
            assert self._killed.is_set(), f"{self._victim} was not killed during the run"

    def _kill(self) -> None:
        at = 0.95 if self._victim in ("gate", "pipelines_runner") else 0.3

        def due() -> bool:
            status: RunStatus | None = self._stack.status(self._run_id)
            return status is not None and status.ended >= at * max(1, status.planned)

        wait_until(due, 120, f"the moment to kill {self._victim}")
        self._stack.kill(self._victim)
        self._killed.set()
        time.sleep(0.1)
