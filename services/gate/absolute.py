"""What a run's figures say by themselves, without a baseline."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.gate import Reason
from schemas.scenario import Category
from schemas.scores import Dimension, RunAggregates, ScenarioAggregate
from services.gate import wording
from services.gate.comparator import GATE, all_gates, ran, stat
from services.gate.objectives import under_load
from services.gate.policy import ALL_GATES, Policy
from services.gate.wording import FAIL, INCONCLUSIVE, NOTE


def own(run: RunAggregates, policy: Policy) -> Iterator[Reason]:
    """What the candidate's own figures say, whatever they are compared with."""
    if run.incomplete_categories:
        names = ", ".join(run.incomplete_categories)
        yield Reason(
            code="incomplete_categories",
            effect=NOTE,
            message=f"Fewer than five scenarios are in: {names}. Add some: this verdict says "
            "little about such categories.",
        )
    if not any(ran(scenario) for scenario in run.scenarios):
        yield Reason(
            code="nothing_ran",
            effect=INCONCLUSIVE,
            message="No session of this run was judged. Look at its run-status and the services' "
            "logs, then run again.",
        )
    for scenario in run.scenarios:
        yield from _own_scenario(scenario, policy)


def _own_scenario(scenario: ScenarioAggregate, policy: Policy) -> Iterator[Reason]:
    name = scenario.scenario_id
    if not ran(scenario):
        yield wording.of_scenario(
            "scenario_never_ran", FAIL, scenario,
            f"{name}: none of its {scenario.planned} planned session(s) was judged, which counts "
            "as failed. See run-status for what was lost, then run again.",
        )  # fmt: skip
        return
    yield from under_load(scenario)
    if scenario.retried:
        yield wording.of_scenario(
            "sessions_retried", NOTE, scenario,
            f"{name}: {scenario.retried} session(s) were played again because the user simulator "
            "had spoilt them. Look at why if there are many: run-status counts them.",
        )  # fmt: skip
    if scenario.lost:
        yield wording.of_scenario(
            "sessions_lost", INCONCLUSIVE, scenario,
            f"{name}: {scenario.lost} of {scenario.planned} planned session(s) never came to a "
            "score. Raise the run's deadline or look at the services' logs, then run again.",
        )  # fmt: skip
    if scenario.invalid > policy.invalid(scenario.category) * scenario.planned:
        why = f" ({'; '.join(scenario.invalid_reasons)})" if scenario.invalid_reasons else ""
        yield wording.of_scenario(
            "invalid_sessions", INCONCLUSIVE, scenario,
            f"{name}: simulator or infrastructure spoilt {scenario.invalid} of {scenario.planned} "
            f"session(s){why}. Correct the cause and run again.",
        )  # fmt: skip
    gates = [d for d in scenario.dimensions if d.kind == GATE and d.unscored]
    for dimension, count in [(d.dimension, d.unscored) for d in gates] or [("", scenario.unscored)]:
        if count:
            yield wording.of_scenario(
                "unscored", INCONCLUSIVE, scenario,
                f"{name}: {dimension or 'a gate'} has no score in {count} session(s), and unscored "
                "never passes. Make its evaluator available (a model may not be configured) and "
                "run again.",
                dimension,
            )  # fmt: skip


def absolute(run: RunAggregates) -> Iterator[Reason]:
    """The verdict without any baseline: every gate has to pass."""
    yield Reason(
        code="absolute_verdict",
        effect=NOTE,
        message="The request asked for no baseline: every gate had to pass. Request baseline "
        "'accepted' to compare with an accepted run.",
    )
    for scenario in run.scenarios:
        failing = [d for d in scenario.dimensions if d.kind == GATE and d.failed]
        for dimension in failing or ([all_gates(scenario)] if scenario.failed else []):
            if dimension.dimension == Dimension.SAFETY:
                code = "safety_failed"
            else:
                code = (
                    "adversarial_failed"
                    if scenario.category == Category.ADVERSARIAL
                    else "gate_failed"
                )
            what = "some gate" if dimension.dimension == ALL_GATES else dimension.dimension
            yield wording.of_scenario(
                code, FAIL, scenario,
                f"{scenario.scenario_id}: {what} failed in {dimension.failed} of "
                f"{stat(dimension).sessions} session(s).{wording.cited(dimension.examples)} "
                "Fix the agent and run again.",
                dimension.dimension,
            )  # fmt: skip
