"""Statistics and accumulators: right, and the same in every order."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.aggregation import ScenarioAccumulator, aggregate_run, finish, outcome_of
from pipelines.statistics import summary
from schemas.pass_hat_k import MAX_K, pass_hat_k
from schemas.scores import DimensionScore, SessionScored
from tests.support.scored_runs import gate, measure, score, status

# Generous on a busy machine: what is tested is the outcome and not the speed.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

floats = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


@pytest.mark.req("D03")
@UNHURRIED
@given(st.lists(floats, min_size=2, max_size=30))
def test_a_summary_agrees_with_the_standard_library(values: list[float]) -> None:
    found = summary(Counter(values))
    assert found.count == len(values)
    assert math.isclose(found.mean, statistics.mean(values), rel_tol=1e-12, abs_tol=1e-12)
    assert math.isclose(found.variance, statistics.variance(values), rel_tol=1e-12, abs_tol=1e-12)
    assert (found.minimum, found.maximum) == (min(values), max(values))
    ordered = sorted(values)
    for percent, value in ((50, found.p50), (90, found.p90), (99, found.p99)):
        assert value == ordered[math.ceil(percent * len(values) / 100) - 1]


@pytest.mark.req("D03")
def test_a_mean_does_not_suffer_from_cancellation() -> None:
    assert summary({1e16: 1, 1.0: 1, -1e16: 1}).mean == 1 / 3


@pytest.mark.req("P01")
@pytest.mark.parametrize(
    ("passed", "sessions", "expected"),
    [(4, 4, (1, 1, 1, 1)), (0, 2, (0, 0)), (3, 4, (0.75, 0.5, 0.25, 0)), (0, 0, ())],
)
def test_pass_hat_k_is_tau_benchs_estimator(
    passed: int, sessions: int, expected: tuple[float, ...]
) -> None:
    assert pass_hat_k(passed, sessions) == expected
    assert len(pass_hat_k(500, 500)) == MAX_K


@pytest.mark.req("V11")
@pytest.mark.parametrize(
    ("session", "outcome"),
    [
        (score("s", 0, gate("safety", True)), "passed"),
        (score("s", 0, gate("safety", False), passed=False), "failed"),
        (score("s", 0, gate("safety", None), passed=None), "unscored"),
        (score("s", 0, gate("safety", False), gate("x", None), passed=None), "failed"),
        (score("s", 0, gate("safety", None), passed=True), "unscored"),
        (score("s", 0, gate("safety", False), passed=True), "failed"),
        (score("s", 0, gate("safety", True), valid=False), "invalid"),
        (score("s", 0, passed=None), "unscored"),
    ],
)
def test_in_doubt_a_session_has_not_passed(session: SessionScored, outcome: str) -> None:
    assert outcome_of(session) == outcome


@pytest.mark.req("V11")
@pytest.mark.parametrize(
    "dimension",
    [
        DimensionScore(dimension="d", kind="quality", value=math.nan),
        DimensionScore(dimension="d", kind="quality", value=None),
        DimensionScore(dimension="d", kind="gate", value=1.0, passed=None),
        DimensionScore(dimension="d", kind="nobody knows", value=1.0, passed=None),
    ],
)
def test_a_score_without_a_figure_is_unscored(dimension: DimensionScore) -> None:
    found = aggregate_run([score("s", 0, dimension)], status({"s": 1}))
    (aggregate,) = found.scenarios[0].dimensions
    assert (aggregate.scored, aggregate.unscored, aggregate.mean) == (0, 1, 0.0)


@pytest.mark.req("V12")
def test_every_planned_session_is_in_exactly_one_count() -> None:
    scores = [
        score("s", 0, gate("safety", True)),
        score("s", 1, gate("safety", False), passed=False),
        score("s", 2, gate("safety", None), passed=None),
        score("s", 3, gate("safety", True), valid=False),
    ]
    run = aggregate_run(scores, status({"s": 6, "never": 2}))
    never, s = run.scenarios
    assert (s.passed, s.failed, s.unscored, s.invalid, s.lost) == (1, 1, 1, 1, 2)
    assert s.invalid_reasons == ("the simulator looped",)
    assert (never.planned, never.lost, never.category) == (2, 2, "happy")
    assert (run.planned, run.scored) == (8, 4)


@pytest.mark.req("D03")
def test_duplicates_and_strangers_do_not_count() -> None:
    first = score("s", 0, gate("safety", True))
    again = score("s", 0, gate("safety", False), passed=False)
    strangers = [score("s", 9), score("other", 0)]
    run = aggregate_run([first, again, *strangers], status({"s": 1}))
    assert [(s.scenario_id, s.passed, s.failed) for s in run.scenarios] == [("s", 1, 0)]


@pytest.mark.req("D05")
def test_examples_are_the_failed_sessions_of_the_lowest_trials() -> None:
    scores = [score("s", t, gate("safety", t == 4), passed=t == 4) for t in range(9, -1, -1)]
    (dimension,) = aggregate_run(scores, status({"s": 10})).scenarios[0].dimensions
    assert [e.trial for e in dimension.examples] == [0, 1, 2]
    assert dimension.examples[0].citations == ("a1",)


@pytest.mark.req("V01")
def test_categories_with_few_scenarios_are_incomplete() -> None:
    plan = {f"s{i}": 1 for i in range(5)}
    run = aggregate_run([], status(plan, category="load"))
    assert run.incomplete_categories == (
        "happy",
        "failure-injection",
        "adversarial",
        "long-horizon",
    )


@st.composite
def many_scores(draw: st.DrawFn) -> list[SessionScored]:
    scores = []
    for trial in range(draw(st.integers(0, 12))):
        passed = draw(st.sampled_from([True, False, None]))
        dimensions = [gate("safety", passed), measure("turns", draw(floats))]
        if draw(st.booleans()):
            dimensions.append(measure("tokens", draw(st.sampled_from([0.1, 0.2, 0.3, -0.0, 0.0]))))
        scores.append(
            score("s", trial, *dimensions, passed=passed, valid=draw(st.integers(0, 5)) > 0)
        )
    return scores


@pytest.mark.req("D03", "D09")
@UNHURRIED
@given(scores=many_scores(), seed=st.integers(0, 999), parts=st.integers(1, 5))
def test_bundles_and_their_order_do_not_change_a_bit(
    scores: list[SessionScored], seed: int, parts: int
) -> None:
    draw = random.Random(seed)
    run = status({"s": 12})
    accumulators = [ScenarioAccumulator() for _ in range(parts)]
    for session in draw.sample(scores, len(scores)):
        draw.choice(accumulators).add(session)
    merged = ScenarioAccumulator()
    for accumulator in draw.sample(accumulators, parts):
        merged.merge(accumulator)
    assert repr(finish({"s": merged}, run)) == repr(aggregate_run(scores, run))
