"""From scores to a run's aggregates: plain accumulators, and the whole as one function.

Everything here commutes: adding scores in any order, into any number of accumulators, merged in
any order, gives the same aggregates. Beam runs the same accumulators; `aggregate_run` is what its
result has to equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from math import isfinite

from pipelines.load import LoadAccumulator
from pipelines.statistics import summary
from schemas.pass_hat_k import pass_hat_k
from schemas.runs import RunStatus
from schemas.scenario import Category
from schemas.scores import (
    DimensionAggregate,
    DimensionScore,
    Example,
    RunAggregates,
    ScenarioAggregate,
    SessionScored,
)

EXAMPLES = 3
INVALID_REASONS = 3
ENOUGH_SCENARIOS = 5
_KINDS = ("gate", "quality", "measure")  # strictest first


@dataclass(slots=True)
class DimensionAccumulator:
    """One dimension over some sessions of one scenario."""

    kind: str = "measure"
    values: Counter[float] = field(default_factory=Counter)
    unscored: int = 0
    not_applicable: int = 0
    passed: int = 0
    failed: int = 0
    examples: list[Example] = field(default_factory=list)

    def add(self, session: SessionScored, score: DimensionScore) -> None:
        self.kind = min(self.kind, kind_of(score), key=_KINDS.index)
        outcome = status_of(score)
        if outcome == "not_applicable":
            self.not_applicable += 1
        elif outcome == "unscored":
            self.unscored += 1
        else:
            value = float(bool(score.passed)) if score.value is None else score.value
            self.values[value + 0.0] += 1  # of the two zeros, the positive one
            if kind_of(score) != "gate":
                return
            self.passed += bool(score.passed)
            self.failed += not score.passed
            if not score.passed:
                self._show(
                    [
                        Example(
                            session_id=session.session_id,
                            trial=session.trial,
                            reason=score.reason,
                            citations=score.citations,
                        )
                    ]
                )

    def merge(self, other: DimensionAccumulator) -> None:
        self.kind = min(self.kind, other.kind, key=_KINDS.index)
        self.values.update(other.values)
        self.unscored += other.unscored
        self.not_applicable += other.not_applicable
        self.passed += other.passed
        self.failed += other.failed
        self._show(other.examples)

    def _show(self, examples: Iterable[Example]) -> None:
        self.examples = nsmallest(
            EXAMPLES, [*self.examples, *examples], key=lambda e: (e.trial, e.session_id)
        )

    def result(self, dimension: str) -> DimensionAggregate:
        stats = summary(self.values)
        return DimensionAggregate(
            dimension=dimension,
            kind=self.kind,
            scored=stats.count,
            unscored=self.unscored,
            not_applicable=self.not_applicable,
            passed=self.passed,
            failed=self.failed,
            mean=stats.mean,
            variance=stats.variance,
            minimum=stats.minimum,
            maximum=stats.maximum,
            p50=stats.p50,
            p90=stats.p90,
            p99=stats.p99,
            examples=tuple(self.examples),
        )


@dataclass(slots=True)
class ScenarioAccumulator:
    """Some sessions of one scenario, each added once."""

    versions: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)
    outcomes: Counter[str] = field(default_factory=Counter)
    end_reasons: Counter[str] = field(default_factory=Counter)
    invalid_reasons: set[str] = field(default_factory=set)
    dimensions: dict[str, DimensionAccumulator] = field(default_factory=dict)
    retried: int = 0
    load: LoadAccumulator = field(default_factory=LoadAccumulator)

    def add(self, session: SessionScored) -> None:
        self.retried += session.attempt
        self.versions.add(session.scenario_version)
        self.categories.add(session.category)
        outcome = outcome_of(session)
        self.outcomes[outcome] += 1
        self.end_reasons[session.end_reason] += 1
        if outcome == "invalid":
            # What a spoilt session would have scored says nothing about the agent.
            self._spoilt({session.invalid_reason} - {""})
            return
        self.load.add(session)
        for score in session.dimensions:
            self.dimensions.setdefault(score.dimension, DimensionAccumulator()).add(session, score)

    def merge(self, other: ScenarioAccumulator) -> None:
        self.retried += other.retried
        self.load.merge(other.load)
        self.versions |= other.versions
        self.categories |= other.categories
        self.outcomes.update(other.outcomes)
        self.end_reasons.update(other.end_reasons)
        self._spoilt(other.invalid_reasons)
        for name, dimension in other.dimensions.items():
            self.dimensions.setdefault(name, DimensionAccumulator()).merge(dimension)

    def _spoilt(self, reasons: set[str]) -> None:
        self.invalid_reasons = set(nsmallest(INVALID_REASONS, self.invalid_reasons | reasons))

    def result(self, scenario_id: str, status: RunStatus) -> ScenarioAggregate:
        planned = status.scenario_plan[scenario_id]
        passed, failed = self.outcomes["passed"], self.outcomes["failed"]
        unscored = self.outcomes["unscored"]
        category = status.scenario_categories.get(scenario_id)
        return ScenarioAggregate(
            scenario_id=scenario_id,
            scenario_version=max(self.versions, default="1"),
            category=category or max(self.categories, default=""),
            planned=planned,
            passed=passed,
            failed=failed,
            unscored=unscored,
            invalid=self.outcomes["invalid"],
            lost=max(0, planned - self.outcomes.total()),
            pass_hat_k=pass_hat_k(passed, passed + failed + unscored),
            end_reasons=dict(sorted(self.end_reasons.items())),
            invalid_reasons=tuple(sorted(self.invalid_reasons)),
            dimensions=tuple(d.result(name) for name, d in sorted(self.dimensions.items())),
            retried=self.retried,
            load=self.load.result(
                planned // max(1, status.request.trials if status.request else 1)
            ),
            objectives=next(
                (dict(o.bounds) for o in status.objectives if o.scenario_id == scenario_id), {}
            ),
        )


def kind_of(score: DimensionScore) -> str:
    """gate, quality or measure; what nobody knows is a gate, which has to pass."""
    return score.kind if score.kind in _KINDS else "gate"


def status_of(score: DimensionScore) -> str:
    """scored, unscored or not_applicable; a score without a usable figure is unscored."""
    if score.status == "not_applicable":
        return "not_applicable"
    usable = score.value is not None and isfinite(score.value)
    if kind_of(score) == "gate":
        usable = score.passed is not None and (usable or score.value is None)
    return "scored" if score.status == "scored" and usable else "unscored"


def outcome_of(session: SessionScored) -> str:
    """passed, failed, unscored or invalid. In doubt a session has not passed: one failed gate
    fails it, and one without a score keeps it from passing."""
    if not session.valid:
        return "invalid"
    gates = [(status_of(d), d.passed) for d in session.dimensions if kind_of(d) == "gate"]
    if session.passed is False or ("scored", False) in gates:
        return "failed"
    unscored = any(status == "unscored" for status, _ in gates)
    return "passed" if session.passed and not unscored else "unscored"


def is_planned(session: SessionScored, status: RunStatus) -> bool:
    """Whether the session is one of the run's: a stranger's record must not change its figures."""
    planned = status.scenario_plan.get(session.scenario_id, 0)
    return session.run_id == status.run_id and 0 <= session.trial < planned


def trial_of(session: SessionScored) -> tuple[str, int]:
    """Which of the planned sessions this one stands for."""
    return session.scenario_id, session.trial


def last_attempt(sessions: Iterable[SessionScored]) -> SessionScored:
    """Of one trial's sessions the one that counts: those before it were spoilt."""
    return max(sessions, key=lambda session: (session.attempt, session.session_id))


def finish(accumulators: Mapping[str, ScenarioAccumulator], status: RunStatus) -> RunAggregates:
    """The run's aggregates; scenarios of the plan without any score are there, all lost.

    `status` is the record that said sessions_done. Times come from it and not from a clock, so
    that aggregating again gives the same record.
    """
    request = status.request
    scenarios = tuple(
        accumulators.get(scenario_id, ScenarioAccumulator()).result(scenario_id, status)
        for scenario_id in sorted(status.scenario_plan)
    )
    per_category = Counter(status.scenario_categories.values())
    return RunAggregates(
        run_id=status.run_id,
        suite=status.suite,
        suite_hash=status.suite_hash,
        suite_version=status.suite_version,
        agent_id=request.agent_id if request else "",
        agent_name=status.agent_name,
        agent_fingerprint=status.agent_fingerprint,
        baseline=request.baseline if request else "accepted",
        seed=request.seed if request else 0,
        trials=request.trials if request else 1,
        partial=bool(request and request.scenarios),
        pins=dict(sorted(status.pins.items())),
        planned=status.planned,
        ended=status.ended,
        scored=sum(s.passed + s.failed + s.unscored + s.invalid for s in scenarios),
        scenarios=scenarios,
        incomplete_categories=tuple(
            c.value for c in Category if per_category[c.value] < ENOUGH_SCENARIOS
        ),
        ranges=status.ranges,
        at_ms=status.at_ms,
    )


def aggregate_run(scores: Iterable[SessionScored], status: RunStatus) -> RunAggregates:
    """A run's aggregates from its scores in log order; of several records of one session the
    first counts, and of several sessions of one trial the last."""
    trials: dict[tuple[str, int], dict[str, SessionScored]] = {}
    for session in scores:
        if is_planned(session, status):
            trials.setdefault(trial_of(session), {}).setdefault(session.session_id, session)
    accumulators: dict[str, ScenarioAccumulator] = {}
    for attempts in trials.values():
        counts = last_attempt(attempts.values())
        accumulators.setdefault(counts.scenario_id, ScenarioAccumulator()).add(counts)
    return finish(accumulators, status)
