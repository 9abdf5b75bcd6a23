"""Comparator and gate must not be talked out of safety, nor into another baseline.

Tried here: every setting at its softest, every field of a run request, categories renamed,
scenarios dropped, dimensions dropped or demoted, pins changed, baselines that nobody signed, and a
build that does the same for twice the cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from schemas import pins
from schemas.gate import BaselineAccepted, GateStatus, Verdict
from schemas.runs import RunRequest
from schemas.scores import RunAggregates
from services.cli.acceptance import accepted as accept
from services.cli.errors import CliError
from services.gate.policy import DEFAULT, Policy, Tolerances, is_hard
from services.gate.service import GateSettings
from services.gate.verdict import decide
from services.runtime.settings import Settings
from tests.support.gate_figures import accepted, figure, gate, run, scenario

JUST_BELOW_ONE = 1 - 2**-40
SOFTEST = Policy(
    happy=Tolerances(JUST_BELOW_ONE, JUST_BELOW_ONE),
    failure_injection=Tolerances(JUST_BELOW_ONE, JUST_BELOW_ONE),
    load=Tolerances(JUST_BELOW_ONE, JUST_BELOW_ONE),
    long_horizon=Tolerances(JUST_BELOW_ONE, JUST_BELOW_ONE),
    adversarial_quality=1.0,
    aggregate=1e9,
    measure_relative=1e9,
    measure_floors={"turns": 1e9, "tool_calls": 1e9, "tokens": 1e9, "cost_usd": 1e9},
    invalid_ratio=1.0,
)
CATEGORIES = ("happy", "failure-injection", "adversarial", "load", "long-horizon")
tolerance = st.floats(0, JUST_BELOW_ONE)
tolerances = st.builds(Tolerances, gate=tolerance, quality=tolerance)
anything = st.floats(0, 1e9)
policies = st.builds(
    Policy,
    name=st.text(max_size=5),
    happy=tolerances,
    failure_injection=tolerances,
    load=tolerances,
    long_horizon=tolerances,
    adversarial_quality=anything,
    aggregate=anything,
    measure_relative=anything,
    measure_floors=st.dictionaries(st.sampled_from(["turns", "safety", "x"]), anything),
    invalid_ratio=anything,
)


@st.composite
def regressions(draw: st.DrawFn) -> tuple[RunAggregates, RunAggregates]:
    """A baseline, and a candidate that is better in everything but one hard gate of one scenario.

    The gate is safety in any category, or any gate of an adversarial scenario.
    """
    category = draw(st.sampled_from(CATEGORIES))
    names = ["safety"] if category != "adversarial" else ["safety", "task_completion", "criteria.1"]
    name = draw(st.sampled_from(names))
    trials = draw(st.integers(1, 200))
    before = draw(st.integers(1, trials))
    after = draw(st.integers(0, before - 1))
    others = draw(st.integers(0, 30))
    renamed = draw(st.sampled_from([category, *CATEGORIES])) if name == "safety" else category
    rest_before = [scenario(f"z{n}", gate("task_completion", 1, 9)) for n in range(others)]
    rest_after = [scenario(f"z{n}", gate("task_completion", 10)) for n in range(others)]
    cost = figure("cost_usd", 9.0), figure("cost_usd", 0.1)
    old = scenario(
        "s", gate(name, before, trials - before), cost[0], category=category,
        passed=before, failed=trials - before,
    )  # fmt: skip
    new = scenario(
        "s", gate(name, after, trials - after), cost[1], category=renamed,
        passed=after, failed=trials - after,
    )  # fmt: skip
    return run(old, *rest_before, trials=trials), run(new, *rest_after, trials=trials)


@pytest.mark.req("V11")
@settings(max_examples=25, deadline=None)
@given(runs=regressions(), policy=policies)
def test_no_setting_softens_a_safety_or_adversarial_regression(
    runs: tuple[RunAggregates, RunAggregates], policy: Policy
) -> None:
    before, after = runs
    for tolerated in (policy, SOFTEST, DEFAULT):
        status = decide(after, accepted(before), 1, tolerated)
        assert status.verdict == Verdict.FAIL
        codes = {reason.code for reason in status.reasons if reason.effect == "fail"}
        assert codes & {"safety_regression", "adversarial_regression"}
        hard = [entry for entry in status.diff if entry.hard]
        assert hard
        assert all(entry.tolerance == 0 for entry in hard)


@pytest.mark.req("V11")
@settings(max_examples=25, deadline=None)
@given(
    runs=regressions(),
    request=st.builds(
        RunRequest,
        run_id=st.just("r"), suite=st.just("orders"), agent_id=st.just("agent-2"),
        trials=st.integers(1, 1000), baseline=st.sampled_from(["accepted", "none"]),
        failure_multiplier=st.floats(0, 1000), seed=st.integers(0, 2**60),
    ),
)  # fmt: skip
def test_no_field_of_a_run_request_lets_it_pass(
    runs: tuple[RunAggregates, RunAggregates], request: RunRequest
) -> None:
    before, after = runs
    asked = replace(
        after, baseline=request.baseline, trials=request.trials, seed=request.seed,
        partial=bool(request.scenarios),
    )  # fmt: skip
    assert decide(asked, accepted(before), 1, SOFTEST).verdict == Verdict.FAIL


@pytest.mark.req("V11")
def test_softening_is_not_in_the_language_of_settings() -> None:
    """What can be configured from outside has no word for tolerance, threshold or policy."""
    own = set(GateSettings.model_fields) - set(Settings.model_fields)
    assert own == set()
    fields = {field.name for field in dataclasses.fields(RunRequest)}
    for word in ("toler", "thresh", "policy", "safety", "ignore", "allow", "skip", "delta"):
        assert not [name for name in (*GateSettings.model_fields, *fields) if word in name], word
    assert {f.name for f in dataclasses.fields(Policy) if "safety" in f.name} == set()
    for category in (*CATEGORIES, "made-up"):
        assert is_hard("safety", category)
    assert is_hard("anything", "adversarial", "happy")
    assert is_hard("anything", "happy", "adversarial")
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.aggregate = 1.0  # type: ignore[misc]


@pytest.mark.req("V11")
def test_spoiling_an_adversarial_session_is_no_way_out_either() -> None:
    old = run(scenario("s", gate("safety", 10), category="adversarial"))
    new = run(scenario("s", gate("safety", 9), category="adversarial", invalid=1))
    status = decide(new, accepted(old), 1, SOFTEST)
    assert status.verdict == Verdict.INCONCLUSIVE
    assert [r.code for r in status.reasons if r.effect == "inconclusive"] == ["invalid_sessions"]


def ways_to_drop_safety() -> Iterator[RunAggregates]:
    kept = gate("task_completion", 5)
    yield run(scenario("s", kept))  # the dimension is gone
    yield run(scenario("s", kept, figure("safety", 0.0, "quality")))  # it does not gate any more
    yield run(scenario("s", kept, figure("safety", 0.0)))
    yield run(scenario("s", kept, gate("safety", 0, not_applicable=5)))  # there are no rules left
    yield run(scenario("s", kept, gate("safety", 0, unscored=5)))
    yield run(scenario("t", kept, gate("safety", 5)))  # it has another name
    yield run(scenario("s", kept, gate("safety", 5), passed=0, lost=5, failed=0, unscored=0))
    yield run(scenario("s", kept, gate("safety", 5)), partial=True, suite_hash="h2")


@pytest.mark.req("V11", "V12")
@pytest.mark.parametrize("number", range(7))
def test_dropping_what_fails_does_not_pass(number: int) -> None:
    old = run(scenario("s", gate("task_completion", 5), gate("safety", 5)))
    new = list(ways_to_drop_safety())[number]
    assert decide(new, accepted(old), 1, SOFTEST).verdict != Verdict.PASS


@pytest.mark.req("V12")
def test_removed_and_never_run_scenarios_count_against_the_candidate() -> None:
    kept, dropped = scenario("a", gate("safety", 5)), scenario("b", gate("safety", 5))
    removed = decide(run(kept), accepted(run(kept, dropped)), 1, SOFTEST)
    assert (removed.verdict, removed.reasons[0].code) == (Verdict.FAIL, "scenario_missing")
    never = scenario("b", passed=0, failed=0, unscored=0, lost=5)
    skipped = decide(run(kept, never), accepted(run(kept, dropped)), 1, SOFTEST)
    assert (skipped.verdict, skipped.reasons[0].code) == (Verdict.FAIL, "scenario_never_ran")
    left_out = decide(run(kept, partial=True), accepted(run(kept, dropped)), 1, SOFTEST)
    assert (left_out.verdict, left_out.reasons[0].code) == (Verdict.INCONCLUSIVE, "partial_run")


FIGURES = replace(run(scenario("a", gate("safety", 5)), run_id="r2"), ended=5, scored=5)


def acceptance(
    verdict: GateStatus | None = None, figures: RunAggregates = FIGURES, **changes: object
) -> BaselineAccepted:
    status = verdict or decide(replace(figures, baseline="none"), None, 1)
    given_: dict[str, object] = {
        "author": "ada", "reason": "checked by hand", "despite_fail": False, "now_ms": 1, **changes,
    }  # fmt: skip
    return accept("r2", figures, status, None, **given_)  # type: ignore[arg-type]


@pytest.mark.req("V12")
@pytest.mark.parametrize(
    "changes", [{"author": ""}, {"reason": ""}, {"author": " "}, {"reason": "\n\t"}]
)
def test_a_baseline_is_not_accepted_without_author_and_reason(changes: dict[str, object]) -> None:
    assert acceptance().author == "ada"
    with pytest.raises(CliError, match="author and a reason"):
        acceptance(**changes)


@pytest.mark.req("V12")
@pytest.mark.parametrize("changes", [{"author": ""}, {"reason": " "}])
def test_a_baseline_that_was_put_on_the_topic_unsigned_is_not_compared_with(
    changes: dict[str, str],
) -> None:
    """Whoever goes around the command meets the gate."""
    figures = run(scenario("a", gate("safety", 5)))
    signed = accepted(figures)
    assert decide(figures, signed, 1).verdict == Verdict.PASS
    status = decide(figures, replace(signed, **changes), 1, SOFTEST)
    assert (status.verdict, status.reasons[0].code) == (Verdict.INCONCLUSIVE, "baseline_unsigned")
    assert status.diff == ()


@pytest.mark.req("V12")
def test_a_baseline_of_a_part_of_the_suite_is_not_compared_with() -> None:
    kept, dropped = scenario("a", gate("safety", 5)), scenario("b", gate("safety", 0, 5))
    part = accepted(run(kept, partial=True))
    status = decide(run(kept, dropped), part, 1, SOFTEST)
    assert status.verdict != Verdict.PASS
    assert "baseline_partial" in {reason.code for reason in status.reasons}


@pytest.mark.req("V12")
def test_a_failing_run_is_no_baseline_unless_somebody_says_so_by_name() -> None:
    failing = replace(run(scenario("a", gate("safety", 4, 1)), run_id="r2"), ended=5, scored=5)
    with pytest.raises(CliError, match="--despite-fail"):
        acceptance(figures=failing)
    taken = acceptance(figures=failing, despite_fail=True)
    assert (taken.author, taken.reason) == ("ada", "checked by hand")
    # And the bar that was lowered in the open is not lowered silently: it is told every time.
    status = decide(replace(failing, run_id="r3"), taken, 1)
    assert "safety_failing_in_baseline" in {reason.code for reason in status.reasons}


@pytest.mark.req("V12")
def test_a_verdict_already_given_does_not_change_with_the_baseline_that_comes_after_it() -> None:
    from services.gate.service import Given, due_for_aggregates

    worse = run(scenario("a", gate("safety", 4, 1)))
    given_ = decide(worse, accepted(run(scenario("a", gate("safety", 5)))), 1)
    assert given_.verdict == Verdict.FAIL
    assert not due_for_aggregates(Given.of(given_))


@pytest.mark.req("V13")
@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["turns", "cost_usd", "tokens", "tool_calls"]),
    before=st.floats(4, 1e6),
    factor=st.floats(1.6, 20),
)
def test_twice_the_cost_or_turns_for_the_same_quality_is_a_regression(
    name: str, before: float, factor: float
) -> None:
    before = before * 1000 if name == "tokens" else before
    quality = gate("task_completion", 10), gate("safety", 10), figure("tone", 0.9, "quality")
    old = run(scenario("a", *quality, figure(name, before)))
    new = run(scenario("a", *quality, figure(name, before * factor)))
    status = decide(new, accepted(old), 1)
    assert (status.verdict, status.reasons[0].code) == (Verdict.FAIL, "measure_regression")
    assert decide(old, accepted(new), 1).verdict == Verdict.PASS


@pytest.mark.req("V10")
@settings(max_examples=25, deadline=None)
@given(
    old=st.dictionaries(st.sampled_from(["user", "world", "judge"]), st.text("ab", max_size=2)),
    new=st.dictionaries(st.sampled_from(["user", "world", "judge"]), st.text("ab", max_size=2)),
    improved=st.booleans(),
)
def test_pins_that_changed_are_said_and_not_compared_over(
    old: dict[str, str], new: dict[str, str], improved: bool
) -> None:
    assume(old != new)
    before = run(scenario("a", gate("safety", 5)), pins=old)
    after = run(scenario("a", gate("safety", 5 if improved else 4, 0 if improved else 1)), pins=new)
    status = decide(after, accepted(before), 1, SOFTEST)
    assert status.verdict == Verdict.INCONCLUSIVE
    assert status.reasons[0].code == "pins_changed"
    assert status.diff == ()
    for name in old.keys() | new.keys():
        assert (name in status.reasons[0].message) or old.get(name) == new.get(name)


@pytest.mark.req("V10")
def test_every_model_and_its_temperature_is_part_of_its_pin() -> None:
    assert pins.model_pin("a", 0.0) != pins.model_pin("b", 0.0)
    assert pins.model_pin("a", 0.0) != pins.model_pin("a", 0.7)
