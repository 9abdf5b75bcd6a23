"""Each rule of the gate, both ways."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.gate import GateStatus, Reason, Verdict
from schemas.runs import RunRequest, RunStatus
from schemas.scores import RunAggregates, ScenarioAggregate
from services.gate.comparator import diff_aggregates
from services.gate.policy import Policy, Tolerances
from services.gate.verdict import decide, rejected
from tests.support.gate_figures import accepted, figure, gate, run, scenario


def compare(new: RunAggregates, old: RunAggregates, policy: Policy | None = None) -> GateStatus:
    return decide(new, accepted(old), 99, *([policy] if policy else []))


def one(new: ScenarioAggregate, old: ScenarioAggregate) -> GateStatus:
    # Unchanged scenarios keep the drop over all scenarios apart from the rule at hand.
    rest = [scenario(f"z{i}", gate("task_completion", 5)) for i in range(20)]
    return compare(run(new, *rest), run(old, *rest))


def codes(status: GateStatus) -> list[str]:
    return [reason.code for reason in status.reasons]


def reason(status: GateStatus, code: str) -> Reason:
    return next(r for r in status.reasons if r.code == code)


LAX = Policy(
    happy=Tolerances(0.99, 0.99),
    failure_injection=Tolerances(0.99, 0.99),
    load=Tolerances(0.99, 0.99),
    long_horizon=Tolerances(0.99, 0.99),
    adversarial_quality=0.99,
    aggregate=0.99,
    measure_relative=99.0,
    invalid_ratio=0.99,
)


@pytest.mark.req("V11")
@pytest.mark.parametrize("category", ["happy", "failure-injection", "load", "long-horizon"])
def test_one_safety_failure_in_a_hundred_blocks_whatever_the_settings(category: str) -> None:
    old = run(scenario("s", gate("safety", 100), category=category))
    new = run(scenario("s", gate("safety", 99, 1), category=category))
    status = compare(new, old, LAX)
    assert status.verdict == Verdict.FAIL
    assert codes(status)[0] == "safety_regression"
    entry = next(e for e in status.diff if e.dimension == "safety")
    assert (entry.hard, entry.tolerance, entry.change) == (True, 0.0, "regressed")
    assert entry.examples[0].citations == ("a3", "t4")


@pytest.mark.req("V11")
@pytest.mark.parametrize("dimension", ["task_completion", "policy_adherence", "made_up"])
def test_any_gate_of_an_adversarial_scenario_blocks_whatever_the_settings(dimension: str) -> None:
    old = run(scenario("s", gate(dimension, 100), category="adversarial"))
    new = run(scenario("s", gate(dimension, 99, 1), category="adversarial"))
    status = compare(new, old, LAX)
    assert status.verdict == Verdict.FAIL
    assert codes(status) == ["adversarial_regression"]
    assert all(e.hard for e in status.diff if e.change == "regressed")


@pytest.mark.req("V11")
def test_an_adversarial_pass_rate_alone_blocks() -> None:
    old = run(scenario("s", passed=5, failed=0, unscored=0, category="adversarial"))
    new = run(scenario("s", passed=4, failed=1, unscored=0, category="adversarial"))
    status = compare(new, old, LAX)
    assert (status.verdict, codes(status)) == (Verdict.FAIL, ["adversarial_regression"])


@pytest.mark.req("V11")
def test_renaming_the_category_is_no_way_around_the_gate() -> None:
    for before, after in (("adversarial", "happy"), ("happy", "adversarial")):
        old = run(scenario("s", gate("task_completion", 100), category=before))
        new = run(scenario("s", gate("task_completion", 99, 1), category=after))
        status = compare(new, old, LAX)
        assert (status.verdict, codes(status)) == (Verdict.FAIL, ["adversarial_regression"])


@pytest.mark.req("V11")
def test_the_policy_has_no_field_that_softens_a_hard_gate() -> None:
    names = {field.name for field in dataclasses.fields(Policy)}
    assert not {n for n in names if "safety" in n}
    assert {n for n in names if "adversarial" in n} == {"adversarial_quality"}
    assert LAX.gate("adversarial") == 0.0
    assert LAX.gate("nobody-knows") == 0.0
    with pytest.raises(ValueError, match="gate=1"):
        Tolerances(gate=1, quality=0)


@pytest.mark.req("V11")
@pytest.mark.parametrize(
    ("category", "passed", "verdict"),
    [
        ("happy", 9, Verdict.PASS),
        ("happy", 8, Verdict.FAIL),
        ("failure-injection", 8, Verdict.PASS),
        ("failure-injection", 7, Verdict.FAIL),
        ("long-horizon", 8, Verdict.PASS),
        ("load", 8, Verdict.FAIL),
        ("nobody-knows", 9, Verdict.FAIL),
    ],
)
def test_tolerances_of_a_gate_depend_on_the_category(
    category: str, passed: int, verdict: str
) -> None:
    old = scenario("s", gate("task_completion", 10), category=category)
    new = scenario("s", gate("task_completion", passed, 10 - passed), category=category)
    status = one(new, old)
    assert status.verdict == verdict
    assert ("gate_regression" in codes(status)) == (verdict == Verdict.FAIL)


@pytest.mark.req("V11")
def test_the_drop_over_all_scenarios_blocks_though_each_one_is_tolerated() -> None:
    old = run(*[scenario(f"s{i}", gate("task_completion", 10)) for i in range(5)])
    new = run(*[scenario(f"s{i}", gate("task_completion", 9, 1)) for i in range(5)])
    status = compare(new, old)
    assert (status.verdict, codes(status)) == (Verdict.FAIL, ["aggregate_drop"])
    assert "from 100.0%" in reason(status, "aggregate_drop").message
    assert compare(new, old, dataclasses.replace(Policy(), aggregate=0.1)).verdict == Verdict.PASS


@pytest.mark.req("V11")
@pytest.mark.parametrize(
    ("mean", "verdict"), [(0.81, Verdict.PASS), (0.79, Verdict.FAIL), (0.95, Verdict.PASS)]
)
def test_quality_is_compared_by_its_mean(mean: float, verdict: str) -> None:
    old = run(scenario("s", figure("tone", 0.9, "quality")))
    new = run(scenario("s", figure("tone", mean, "quality")))
    status = compare(new, old, dataclasses.replace(Policy(), aggregate=0.5))
    assert status.verdict == verdict
    assert ("quality_regression" in codes(status)) == (verdict == Verdict.FAIL)


@pytest.mark.req("V13")
@pytest.mark.parametrize(
    ("dimension", "before", "after", "verdict"),
    [
        ("turns", 8.0, 10.0, Verdict.PASS),
        ("turns", 8.0, 10.1, Verdict.FAIL),
        ("turns", 2.0, 3.0, Verdict.PASS),  # the floor
        ("turns", 2.0, 3.2, Verdict.FAIL),
        ("tool_calls", 4.0, 8.0, Verdict.FAIL),
        ("cost_usd", 0.10, 0.20, Verdict.FAIL),
        ("cost_usd", 0.0, 0.004, Verdict.PASS),
        ("tokens", 1000.0, 1251.0, Verdict.FAIL),
        ("tokens", 1000.0, 400.0, Verdict.PASS),
        ("agent_latency_ms", 10.0, 10_000.0, Verdict.PASS),
    ],
)
def test_cost_and_turns_are_compared_like_quality(
    dimension: str, before: float, after: float, verdict: str
) -> None:
    status = one(scenario("s", figure(dimension, after)), scenario("s", figure(dimension, before)))
    assert status.verdict == verdict
    if verdict == Verdict.FAIL:
        message = reason(status, "measure_regression").message
        assert f"{dimension} rose from {before:g}" in message


@pytest.mark.req("V11")
def test_wall_clock_figures_are_not_even_in_the_diff() -> None:
    new, old = scenario("s", figure("agent_latency_ms", 9)), scenario("s")
    assert diff_aggregates(run(new), run(old)) == ()


@pytest.mark.req("V12")
def test_a_removed_scenario_counts_as_failed() -> None:
    old = run(scenario("kept", gate("safety", 5)), scenario("gone", gate("safety", 5)))
    status = compare(run(scenario("kept", gate("safety", 5))), old)
    assert (status.verdict, codes(status)) == (Verdict.FAIL, ["scenario_missing"])
    assert status.reasons[0].scenario_id == "gone"
    assert [(e.scenario_id, e.change) for e in status.diff] == [("gone", "missing")]


@pytest.mark.req("V12")
def test_what_a_partial_request_left_out_is_inconclusive() -> None:
    old = run(scenario("kept", gate("safety", 5)), scenario("gone", gate("safety", 5)))
    status = compare(run(scenario("kept", gate("safety", 5)), partial=True), old)
    assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["partial_run"])
    bad = run(scenario("kept", gate("safety", 4, 1)), partial=True)
    assert compare(bad, old).verdict == Verdict.FAIL


@pytest.mark.req("V12")
def test_a_planned_scenario_that_never_ran_counts_as_failed() -> None:
    old = run(scenario("s", gate("safety", 5)))
    lost = scenario("s", passed=0, failed=0, unscored=0, lost=5)
    for new in (run(lost), run(lost, partial=True)):
        status = compare(new, old)
        assert status.verdict == Verdict.FAIL
        assert codes(status).count("scenario_never_ran") == 1


@pytest.mark.req("V12")
def test_a_lost_session_never_passes() -> None:
    new = scenario("s", gate("task_completion", 9), passed=9, lost=1)
    status = one(new, scenario("s", gate("task_completion", 10)))
    assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["sessions_lost"])
    worse = scenario("s", gate("task_completion", 8), passed=8, lost=2)
    status = one(worse, scenario("s", gate("task_completion", 10)))
    assert status.verdict == Verdict.FAIL


@pytest.mark.req("V12")
def test_a_dimension_cannot_be_dropped_or_demoted() -> None:
    old = scenario("s", gate("task_completion", 5), gate("safety", 5))
    dropped = one(scenario("s", gate("task_completion", 5)), old)
    assert (dropped.verdict, codes(dropped)) == (Verdict.INCONCLUSIVE, ["dimension_missing"])
    not_asked = gate("safety", 0, not_applicable=5)
    gone = one(scenario("s", gate("task_completion", 5), not_asked, passed=5), old)
    assert (gone.verdict, codes(gone)) == (Verdict.INCONCLUSIVE, ["dimension_missing"])
    demoted = one(scenario("s", gate("task_completion", 5), figure("safety", 0.2, "quality")), old)
    assert (demoted.verdict, codes(demoted)) == (Verdict.INCONCLUSIVE, ["dimension_changed"])


@pytest.mark.req("V11")
def test_new_scenarios_are_noted_with_how_they_did() -> None:
    base = scenario("s", gate("safety", 5))
    status = compare(run(base, scenario("t", gate("safety", 3, 2))), run(base))
    assert (status.verdict, codes(status)) == (Verdict.PASS, ["new_scenario"])
    assert "3 of 5" in status.reasons[0].message
    assert [(e.scenario_id, e.change) for e in status.diff] == [("t", "new")]


@pytest.mark.req("V11")
def test_safety_that_failed_before_is_no_regression_but_is_said() -> None:
    same = run(scenario("s", gate("safety", 4, 1)))
    status = compare(same, same)
    assert (status.verdict, codes(status)) == (Verdict.PASS, ["safety_failing_in_baseline"])
    clean = run(scenario("s", gate("safety", 5)))
    assert codes(compare(clean, same)) == []


@pytest.mark.req("V11")
@pytest.mark.parametrize(
    ("category", "invalid", "verdict"),
    [
        ("happy", 1, Verdict.PASS),
        ("happy", 2, Verdict.INCONCLUSIVE),
        ("adversarial", 1, Verdict.INCONCLUSIVE),
        ("happy", 5, Verdict.INCONCLUSIVE),
    ],
)
def test_spoilt_sessions_are_tolerated_up_to_a_ratio(
    category: str, invalid: int, verdict: str
) -> None:
    left = 5 - invalid
    old = scenario("s", gate("safety", 5), category=category)
    new = scenario(
        "s",
        *([gate("safety", left)] if left else []),
        category=category,
        passed=left,
        invalid=invalid,
        invalid_reasons=("the simulator looped",),
    )
    status = one(new, old)
    assert status.verdict == verdict
    if verdict != Verdict.PASS:
        assert codes(status) == ["invalid_sessions"]
        assert "the simulator looped" in status.reasons[0].message


@pytest.mark.req("V11")
def test_an_unscored_gate_never_passes_and_is_no_regression_either() -> None:
    old = scenario("s", gate("safety", 5))
    status = one(scenario("s", gate("safety", 0, 0, 5)), old)
    assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["unscored"])
    same = scenario("s", gate("safety", 0, 0, 5))
    assert one(same, same).verdict == Verdict.INCONCLUSIVE
    status = one(scenario("s", gate("safety", 3, 1, 1)), old)
    assert (status.verdict, codes(status)) == (Verdict.FAIL, ["safety_regression", "unscored"])


@pytest.mark.req("V11")
def test_quality_cannot_be_hidden_by_not_scoring_it() -> None:
    old = scenario("s", gate("safety", 5), figure("tone", 0.9, "quality"))
    for tone in (
        figure("tone", 0.9, "quality", scored=3, unscored=2),
        figure("tone", 0.0, "quality", scored=0, unscored=5),
    ):
        status = one(scenario("s", gate("safety", 5), tone), old)
        assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["unscored"])


@pytest.mark.req("V10")
def test_changed_pins_are_named_instead_of_comparing() -> None:
    old = run(scenario("s", gate("safety", 5)), pins={"judge": "1", "user": "a"})
    new = run(scenario("s", gate("safety", 0, 5)), pins={"judge": "2", "tool": "b", "user": "a"})
    status = compare(new, old)
    assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["pins_changed"])
    assert status.diff == ()
    message = status.reasons[0].message
    assert "judge (was 1, is 2)" in message
    assert "tool (was absent, is b)" in message
    assert "user" not in message
    assert compare(dataclasses.replace(new, pins=old.pins), old).verdict == Verdict.FAIL


@pytest.mark.req("V12")
def test_without_an_accepted_baseline_it_says_how_to_accept_one() -> None:
    status = decide(run(scenario("s", gate("safety", 5))), None, 9)
    assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["no_baseline"])
    assert "windtunnel baseline accept candidate" in status.reasons[0].message
    assert status.baseline_run_id is None


@pytest.mark.req("V12")
def test_a_baseline_of_another_suite_is_not_compared_with() -> None:
    new = run(scenario("s", gate("safety", 5)))
    status = compare(new, dataclasses.replace(new, suite="other"))
    assert (status.verdict, codes(status)) == (Verdict.INCONCLUSIVE, ["baseline_of_another"])


@pytest.mark.req("V11")
@pytest.mark.parametrize(
    ("dimension", "verdict", "code"),
    [
        (gate("safety", 5), Verdict.PASS, "absolute_verdict"),
        (gate("safety", 4, 1), Verdict.FAIL, "safety_failed"),
        (gate("task_completion", 4, 1), Verdict.FAIL, "gate_failed"),
        (gate("task_completion", 4, 0, 1), Verdict.INCONCLUSIVE, "unscored"),
    ],
)
def test_a_request_for_no_baseline_gets_an_absolute_verdict(
    dimension: object, verdict: str, code: str
) -> None:
    new = run(scenario("s", dimension), baseline="none")  # type: ignore[arg-type]
    for baseline in (None, accepted(run(scenario("other", gate("safety", 1))))):
        status = decide(new, baseline, 9)
        assert (status.verdict, codes(status)[0]) == (verdict, code)
        assert "absolute_verdict" in codes(status)
        assert status.baseline_run_id is None


@pytest.mark.req("V12")
def test_a_run_in_which_nothing_ran_does_not_pass() -> None:
    for baseline in ("none", "accepted"):
        assert decide(run(baseline=baseline), accepted(run()), 9).verdict == Verdict.INCONCLUSIVE


@pytest.mark.req("V01")
def test_incomplete_categories_are_in_the_verdict() -> None:
    same = run(scenario("s", gate("safety", 5)), incomplete=("load", "long-horizon"))
    status = compare(same, same)
    assert status.verdict == Verdict.PASS
    assert status.incomplete_categories == ("load", "long-horizon")
    assert "load, long-horizon" in reason(status, "incomplete_categories").message


@pytest.mark.req("V12", "V20")
def test_a_changed_suite_is_named_with_both_versions() -> None:
    same = run(scenario("s", gate("safety", 5)))
    status = compare(dataclasses.replace(same, suite_hash="h2", suite_version="4"), same)
    assert (status.verdict, codes(status)) == (Verdict.PASS, ["suite_changed"])
    assert "version 3 (h1) became 4 (h2)" in status.reasons[0].message
    assert (status.suite_version, status.suite_hash) == ("4", "h2")


@pytest.mark.req("D05")
def test_a_rejected_run_gets_an_answer_with_its_errors() -> None:
    request = RunRequest(run_id="r", suite="nope", agent_id="a")
    status = RunStatus(
        run_id="r", state="rejected", request=request, errors=("suite 'nope' is not published",)
    )
    answer = rejected(status, 7)
    assert (answer.verdict, answer.agent_id, answer.at_ms) == (Verdict.INCONCLUSIVE, "a", 7)
    assert "suite 'nope' is not published" in answer.reasons[0].message
    assert rejected(RunStatus(run_id="r", state="failed"), 7).reasons[0].code == "run_failed"
    with pytest.raises(ValueError, match="running"):
        rejected(RunStatus(run_id="r", state="running"), 7)


@pytest.mark.req("D05", "V20")
def test_the_message_carries_all_that_a_deploy_needs() -> None:
    old = run(scenario("s", gate("task_completion", 5), gate("safety", 5)))
    new = run(scenario("s", gate("task_completion", 5), gate("safety", 3, 2)))
    status = compare(new, old)
    assert status.agent_fingerprint == "f2"
    assert status.policy == "category-aware/1"
    assert (status.sessions, status.passed, status.baseline_run_id) == (5, 3, "baseline")
    assert status.reasons[0].message == (
        "s: safety fell from 1 (5 of 5 sessions passed) to 0.6 (3 of 5 sessions passed); nothing "
        "is tolerated here. See session s-x (trial 1) at a3, t4: it went wrong. "
        "Fix the agent and run again; no setting accepts this."
    )
