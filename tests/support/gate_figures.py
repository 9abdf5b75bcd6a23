"""Aggregates in a few words, for the gate's tests."""

from __future__ import annotations

from collections.abc import Mapping

from schemas.gate import BaselineAccepted
from schemas.scores import DimensionAggregate, Example, RunAggregates, ScenarioAggregate


def gate(
    name: str, passed: int, failed: int = 0, unscored: int = 0, not_applicable: int = 0
) -> DimensionAggregate:
    examples = (
        (Example(session_id="s-x", trial=1, reason="it went wrong.", citations=("a3", "t4")),)
        if failed
        else ()
    )
    scored = passed + failed
    return DimensionAggregate(
        dimension=name,
        kind="gate",
        scored=scored,
        unscored=unscored,
        not_applicable=not_applicable,
        passed=passed,
        failed=failed,
        mean=passed / scored if scored else 0.0,
        examples=examples,
    )


def figure(
    name: str, mean: float, kind: str = "measure", scored: int = 5, unscored: int = 0
) -> DimensionAggregate:
    return DimensionAggregate(
        dimension=name, kind=kind, scored=scored, unscored=unscored, mean=mean
    )


def scenario(
    scenario_id: str,
    *dimensions: DimensionAggregate,
    category: str = "happy",
    passed: int | None = None,
    failed: int | None = None,
    unscored: int | None = None,
    invalid: int = 0,
    lost: int = 0,
    invalid_reasons: tuple[str, ...] = (),
) -> ScenarioAggregate:
    """A scenario; without counts they follow from its worst gate."""
    gates = [d for d in dimensions if d.kind == "gate"]
    if failed is None:
        failed = max((d.failed for d in gates), default=0)
    if unscored is None:
        unscored = max((d.unscored for d in gates), default=0)
    if passed is None:
        passed = min((d.passed for d in gates), default=5)
    return ScenarioAggregate(
        scenario_id=scenario_id,
        category=category,
        planned=passed + failed + unscored + invalid + lost,
        passed=passed,
        failed=failed,
        unscored=unscored,
        invalid=invalid,
        lost=lost,
        invalid_reasons=invalid_reasons,
        dimensions=tuple(sorted(dimensions, key=lambda d: d.dimension)),
    )


def run(
    *scenarios: ScenarioAggregate,
    run_id: str = "candidate",
    baseline: str = "accepted",
    pins: Mapping[str, str] | None = None,
    partial: bool = False,
    suite_hash: str = "h1",
    suite: str = "orders",
    trials: int = 5,
    incomplete: tuple[str, ...] = (),
) -> RunAggregates:
    return RunAggregates(
        run_id=run_id,
        suite=suite,
        suite_hash=suite_hash,
        suite_version="3",
        agent_id="agent-2",
        agent_name="shop",
        agent_fingerprint="f2",
        baseline=baseline,
        trials=trials,
        partial=partial,
        pins=pins if pins is not None else {"judge": "1"},
        planned=sum(s.planned for s in scenarios),
        scenarios=tuple(sorted(scenarios, key=lambda s: s.scenario_id)),
        incomplete_categories=incomplete,
        at_ms=77,
    )


def accepted(aggregates: RunAggregates) -> BaselineAccepted:
    return BaselineAccepted(
        name=f"{aggregates.suite}/{aggregates.agent_name}",
        run_id="baseline",
        author="ada",
        reason="known good",
        accepted_at_ms=5,
        aggregates=aggregates,
    )
