"""What holds of every verdict, whatever the figures."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from schemas.gate import Verdict
from schemas.scores import DimensionAggregate, RunAggregates, ScenarioAggregate
from services.gate.comparator import diff_aggregates
from services.gate.verdict import decide
from tests.support.gate_figures import accepted, figure, gate, run, scenario

# Generous on a busy machine: what is tested is the outcome and not the speed.
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CATEGORIES = ("happy", "failure-injection", "adversarial", "load", "long-horizon")


@st.composite
def scenarios(draw: st.DrawFn, name: str, *, clean: bool = False) -> ScenarioAggregate:
    trials = draw(st.integers(1, 6))
    dimensions: list[DimensionAggregate] = []
    for dimension in ("safety", "task_completion"):
        failed = draw(st.integers(0, trials))
        unscored = 0 if clean else draw(st.integers(0, trials - failed))
        dimensions.append(gate(dimension, trials - failed - unscored, failed, unscored))
    if draw(st.booleans()):
        mean = draw(st.integers(0, 20)) / 20
        dimensions.append(figure("tone", mean, "quality", scored=trials))
    dimensions.append(figure("turns", float(draw(st.integers(1, 12))), scored=trials))
    failed = max(d.failed for d in dimensions[:2])
    unscored = min(trials - failed, max(d.unscored for d in dimensions[:2]))
    return scenario(
        name,
        *dimensions,
        category=draw(st.sampled_from(CATEGORIES)),
        passed=trials - failed - unscored,
        failed=failed,
        unscored=unscored,
        invalid=0 if clean else draw(st.integers(0, 2)),
        lost=0 if clean else draw(st.integers(0, 2)),
    )


@st.composite
def runs(draw: st.DrawFn, *, clean: bool = False) -> RunAggregates:
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    return run(*[draw(scenarios(name, clean=clean)) for name in names])


def replace_dimension(
    scenario_: ScenarioAggregate, changed: DimensionAggregate
) -> tuple[DimensionAggregate, ...]:
    return tuple(changed if d.dimension == changed.dimension else d for d in scenario_.dimensions)


@st.composite
def worse(draw: st.DrawFn, before: RunAggregates) -> RunAggregates:
    """The run with one thing made worse."""
    index = draw(st.integers(0, len(before.scenarios) - 1))
    target = before.scenarios[index]
    how = draw(st.sampled_from(["fail", "unscore", "lose", "remove", "turns", "tone", "spoil"]))
    if how == "remove":
        left = before.scenarios[:index] + before.scenarios[index + 1 :]
        return dataclasses.replace(before, scenarios=left)
    if how in ("turns", "tone"):
        found = [d for d in target.dimensions if d.dimension == how]
        assume(found)
        by = draw(st.floats(0.01, 5)) * (1 if how == "turns" else -0.1)
        changed = dataclasses.replace(found[0], mean=found[0].mean + by)
        target = dataclasses.replace(target, dimensions=replace_dimension(target, changed))
    elif how in ("lose", "spoil"):
        assume(target.passed > 0 and all(d.passed > 0 for d in target.dimensions[:1]))
        safety = next(d for d in target.dimensions if d.dimension == "safety")
        assume(safety.passed > 0)
        field = "lost" if how == "lose" else "invalid"
        target = dataclasses.replace(
            target,
            passed=target.passed - 1,
            dimensions=replace_dimension(
                target,
                dataclasses.replace(safety, passed=safety.passed - 1, scored=safety.scored - 1),
            ),
            **{field: getattr(target, field) + 1},
        )
    else:
        name = draw(st.sampled_from(["safety", "task_completion"]))
        found = [d for d in target.dimensions if d.dimension == name and d.passed > 0]
        assume(found and target.passed > 0)
        field = "failed" if how == "fail" else "unscored"
        changed = dataclasses.replace(
            found[0],
            passed=found[0].passed - 1,
            **{field: getattr(found[0], field) + 1},
        )
        target = dataclasses.replace(
            target,
            passed=target.passed - 1,
            dimensions=replace_dimension(target, changed),
            **{field: getattr(target, field) + 1},
        )
    rest = list(before.scenarios)
    rest[index] = target
    return dataclasses.replace(before, scenarios=tuple(rest))


@pytest.mark.req("V11")
@UNHURRIED
@given(candidate=runs(), baseline=runs(), data=st.data())
def test_making_a_run_worse_never_lets_it_pass(
    candidate: RunAggregates, baseline: RunAggregates, data: st.DataObject
) -> None:
    # Against itself a run is on the edge of everything; against another one it mostly fails.
    if data.draw(st.booleans(), "against itself"):
        baseline = candidate
        candidate = data.draw(worse(candidate))
        assume(candidate.scenarios)
    for asked in ("accepted", "none"):
        before = dataclasses.replace(candidate, baseline=asked)
        after = data.draw(worse(before))
        if decide(after, accepted(baseline), 1).verdict == Verdict.PASS:
            assert decide(before, accepted(baseline), 1).verdict == Verdict.PASS


@pytest.mark.req("V11")
@UNHURRIED
@given(candidate=runs(clean=True))
def test_a_run_passes_against_itself(candidate: RunAggregates) -> None:
    status = decide(candidate, accepted(candidate), 1)
    assert (status.verdict, status.diff) == (Verdict.PASS, ())
    assert {reason.effect for reason in status.reasons} <= {"note"}


@pytest.mark.req("V11")
@UNHURRIED
@given(candidate=runs(), baseline=runs(), seed=st.integers(0, 99))
def test_the_order_of_scenarios_and_dimensions_does_not_matter(
    candidate: RunAggregates, baseline: RunAggregates, seed: int
) -> None:
    def shuffled(aggregates: RunAggregates) -> RunAggregates:
        draw = random.Random(seed)
        mixed = [
            dataclasses.replace(s, dimensions=tuple(draw.sample(s.dimensions, len(s.dimensions))))
            for s in aggregates.scenarios
        ]
        return dataclasses.replace(aggregates, scenarios=tuple(draw.sample(mixed, len(mixed))))

    expected = decide(candidate, accepted(baseline), 1)
    found = decide(shuffled(candidate), accepted(shuffled(baseline)), 1)
    assert found.reasons == expected.reasons
    assert found.diff == expected.diff


@pytest.mark.req("V11", "V12")
@UNHURRIED
@given(candidate=runs(), baseline=runs())
def test_fail_and_inconclusive_always_have_a_reason_and_reasons_say_what_to_do(
    candidate: RunAggregates, baseline: RunAggregates
) -> None:
    status = decide(candidate, accepted(baseline), 1)
    effects = [reason.effect for reason in status.reasons]
    assert effects == sorted(effects, key=["fail", "inconclusive", "note"].index)
    worst = effects[0] if effects else "note"
    assert (
        status.verdict
        == {
            "fail": Verdict.FAIL,
            "inconclusive": Verdict.INCONCLUSIVE,
            "note": Verdict.PASS,
        }[worst]
    )
    verbs = ("Fix", "Restore", "Accept", "accept", "Run", "run again", "Make", "Add", "Check")
    for reason in status.reasons:
        assert any(verb in reason.message for verb in verbs), reason.message
        if reason.scenario_id:
            assert reason.message.startswith(reason.scenario_id)
        if reason.dimension and reason.dimension != "all_gates":
            assert reason.dimension in reason.message


@pytest.mark.req("V11")
@UNHURRIED
@given(candidate=runs(), baseline=runs())
def test_hard_entries_are_the_regressions_that_nothing_softens(
    candidate: RunAggregates, baseline: RunAggregates
) -> None:
    adversarial = {
        s.scenario_id
        for s in (*candidate.scenarios, *baseline.scenarios)
        if s.category == "adversarial"
    }
    for entry in diff_aggregates(candidate, baseline):
        gated = entry.kind == "gate" and (
            entry.dimension == "safety" or entry.scenario_id in adversarial
        )
        if entry.hard:
            assert gated
            assert entry.change == "regressed"
        elif entry.change == "regressed":
            assert not gated
    if any(e.hard for e in diff_aggregates(candidate, baseline)):
        assert decide(candidate, accepted(baseline), 1).verdict == Verdict.FAIL
