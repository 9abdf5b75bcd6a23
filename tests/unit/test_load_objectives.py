"""V15, V12: objectives of load scenarios are gated by exact figures, and say what they saw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gate import GateStatus, Reason, Verdict
from schemas.scores import LoadFigures, ScenarioAggregate
from services.gate.verdict import decide
from tests.support.gate_figures import accepted, gate, run, scenario

pytestmark = pytest.mark.req("V15", "V12")

FIGURES = LoadFigures(
    sessions=50, turns=200, failed_turns=2, timed_turns=198, turn_p50_ms=300, turn_p95_ms=900,
    turn_p99_ms=1500, turn_max_ms=1700, duration_ms=10_000,
)  # fmt: skip


def loaded(objectives: dict[str, float], counts: dict[str, int] | None = None, **load: Any) -> (
    ScenarioAggregate
):  # fmt: skip
    whole = scenario("l", gate("safety", 50), category="load", **(counts or {}))
    return replace(whole, load=replace(FIGURES, **load), objectives=objectives)


def decided(one: ScenarioAggregate) -> GateStatus:
    """The verdict against a baseline that met everything."""
    baseline = accepted(run(replace(one, load=None, objectives={}), run_id="baseline"))
    return decide(run(one), baseline, 1)


def about(status: GateStatus) -> list[Reason]:
    return [reason for reason in status.reasons if reason.code.startswith("objective")]


MET = {
    "turn_p50_ms": 300, "turn_p95_ms": 900, "turn_p99_ms": 1500, "error_rate": 0.01,
    "completion_rate": 1.0, "sessions_per_s": 5.0,
}  # fmt: skip


def test_a_figure_that_is_exactly_its_bound_meets_it() -> None:
    status = decided(loaded(MET))
    assert status.verdict == Verdict.PASS
    assert about(status) == []


@pytest.mark.parametrize(
    ("objective", "load", "said"),
    [
        ("turn_p50_ms", {"turn_p50_ms": 301}, "301 ms over 198 turns; the objective is at most"),
        ("turn_p95_ms", {"turn_p95_ms": 901}, "901 ms over 198 turns; the objective is at most"),
        ("turn_p99_ms", {"turn_p99_ms": 1501}, "1501 ms over 198 turns"),
        ("error_rate", {"failed_turns": 3}, "0.015 (3 of 200 turns failed); the objective is at"),
        ("sessions_per_s", {"duration_ms": 10_001}, "(50 sessions in 10.001 s)"),
    ],
)  # fmt: skip
def test_a_breach_fails_the_run_with_its_numbers(
    objective: str, load: dict[str, int], said: str
) -> None:
    status = decided(loaded(MET, **load))
    assert status.verdict == Verdict.FAIL
    (reason,) = about(status)
    assert (reason.code, reason.effect, reason.dimension) == ("objective_missed", "fail", objective)
    assert said in reason.message
    assert reason.scenario_id == "l"


@pytest.mark.parametrize(
    ("objective", "load", "needed"),
    [
        ("turn_p50_ms", {"timed_turns": 9}, "takes 10"),
        ("turn_p95_ms", {"timed_turns": 19, "turn_p95_ms": 5000}, "takes 20"),
        ("turn_p99_ms", {"timed_turns": 99}, "takes 100"),
        ("error_rate", {"turns": 99, "failed_turns": 1}, "takes 100"),
        ("sessions_per_s", {"sessions": 9}, "takes 10"),
        ("sessions_per_s", {"duration_ms": 0}, "takes 10"),
    ],
)
def test_too_few_turns_tell_nothing_either_way(
    objective: str, load: dict[str, int], needed: str
) -> None:
    status = decided(loaded({objective: MET[objective]}, **load))
    assert status.verdict == Verdict.INCONCLUSIVE
    (reason,) = about(status)
    assert reason.code == "objective_undecided"
    assert needed in reason.message


def test_a_scenario_without_any_times_does_not_meet_its_objectives() -> None:
    status = decided(replace(loaded({"turn_p95_ms": 900}), load=None))
    assert status.verdict == Verdict.INCONCLUSIVE
    assert "0 turns are too few" in about(status)[0].message


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({"passed": 49, "failed": 1}, []),
        ({"passed": 44, "failed": 6}, ["objective_missed"]),
        ({"passed": 44, "failed": 5, "invalid": 1}, ["objective_undecided"]),
        ({"passed": 43, "failed": 6, "invalid": 1}, ["objective_missed"]),
    ],
)
def test_sessions_of_which_nobody_knows_decide_no_completion_rate(
    counts: dict[str, int], code: list[str]
) -> None:
    status = decided(loaded({"completion_rate": 0.9}, counts))
    assert [reason.code for reason in about(status)] == code


@pytest.mark.parametrize("baseline", ["none", "accepted"])
def test_objectives_hold_with_and_without_a_baseline(baseline: str) -> None:
    status = decide(run(loaded({"turn_p50_ms": 1}), baseline=baseline), None, 1)
    assert status.verdict == Verdict.FAIL


def test_late_starts_and_repeated_sessions_are_told_and_decide_nothing() -> None:
    one = replace(loaded(MET, late_sessions=7, late_max_ms=4200), retried=2)
    status = decided(one)
    assert status.verdict == Verdict.PASS
    told = {reason.code: reason.message for reason in status.reasons}
    assert "7 of 50 sessions started late, by up to 4200 ms" in told["late_starts"]
    assert "2 session(s) were played again" in told["sessions_retried"]


def test_an_objective_that_this_gate_does_not_know_is_never_met() -> None:
    status = decided(loaded({"turn_p999_ms": 10.0}))
    assert status.verdict == Verdict.INCONCLUSIVE
    assert "no objective turn_p999_ms" in about(status)[0].message


BOUNDS = st.dictionaries(
    st.sampled_from([name for name in MET if name != "completion_rate"]), st.floats(0.001, 2000)
)
WORSE = {
    "turn_p50_ms": 1, "turn_p95_ms": 1, "turn_p99_ms": 1, "failed_turns": 1, "duration_ms": 1,
}  # fmt: skip


@given(BOUNDS, st.sampled_from(sorted(WORSE)), st.integers(1, 100))
def test_a_slower_agent_never_does_better_and_the_same_figures_decide_the_same(
    bounds: dict[str, float], what: str, by: int
) -> None:
    order = [Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL]
    good = decided(loaded(bounds))
    bad = decided(loaded(bounds, **{what: getattr(FIGURES, what) + by}))
    assert order.index(bad.verdict) >= order.index(good.verdict)
    assert decided(loaded(dict(reversed(bounds.items())))) == good
