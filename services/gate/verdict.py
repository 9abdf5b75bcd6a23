"""The verdict on a run: a pure function of its aggregates, the baseline and the policy.

FAIL beats INCONCLUSIVE beats PASS. What cannot be told is never a pass: unscored gates, spoilt or
lost sessions, changed pins and a missing baseline all end in INCONCLUSIVE at best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.gate import BaselineAccepted, DiffEntry, GateStatus, Reason, Verdict
from schemas.runs import RunStatus
from schemas.scores import Dimension, RunAggregates
from services.gate import wording
from services.gate.absolute import absolute, own
from services.gate.comparator import (
    GATE,
    INCOMPARABLE,
    MISSING,
    NEW,
    REGRESSED,
    diff_aggregates,
    ran,
)
from services.gate.policy import ALL_GATES, DEFAULT, Policy
from services.gate.wording import FAIL, INCONCLUSIVE, NOTE

#: Reasons are sorted by effect, then in this order, then by scenario and dimension.
_CODES = (
    "safety_regression", "adversarial_regression", "safety_failed", "adversarial_failed",
    "gate_regression", "gate_failed", "scenario_missing", "scenario_never_ran",
    "objective_missed", "aggregate_drop", "quality_regression", "measure_regression",
    "run_rejected", "run_failed", "nothing_ran", "no_baseline", "baseline_of_another",
    "baseline_unsigned", "baseline_partial",
    "pins_changed", "partial_run", "sessions_lost", "invalid_sessions", "unscored",
    "objective_undecided",
    "dimension_missing", "dimension_changed",
    "absolute_verdict", "safety_failing_in_baseline", "incomplete_categories", "suite_changed",
    "trials_changed", "new_scenario", "sessions_retried", "late_starts",
)  # fmt: skip
_EFFECTS = (FAIL, INCONCLUSIVE, NOTE)
ACCEPTED_BASELINE = "accepted"


def decide(
    candidate: RunAggregates,
    baseline: BaselineAccepted | None,
    at_ms: int,
    policy: Policy = DEFAULT,
) -> GateStatus:
    """What the deploy may do. `at_ms` is only recorded; nothing else depends on it.

    `baseline` is the one accepted for the candidate's suite and agent name, or None; it is not
    looked at when the request asked to be compared with none.
    """
    wanted = candidate.baseline == ACCEPTED_BASELINE
    used = baseline if wanted else None
    reasons = [*own(candidate, policy)]
    diff: tuple[DiffEntry, ...] = ()
    if not wanted:
        reasons += absolute(candidate)
    else:
        obstacles = tuple(_obstacles(candidate, used))
        reasons += obstacles
        if used is not None and not obstacles:
            diff = diff_aggregates(candidate, used.aggregates, policy)
            reasons += _compared(candidate, used.aggregates, diff)
    return GateStatus(
        run_id=candidate.run_id,
        verdict=_verdict(reasons),
        reasons=_ordered(reasons),
        diff=diff,
        suite=candidate.suite,
        suite_hash=candidate.suite_hash,
        suite_version=candidate.suite_version,
        agent_id=candidate.agent_id,
        agent_name=candidate.agent_name,
        agent_fingerprint=candidate.agent_fingerprint,
        baseline_run_id=used.run_id if used else None,
        sessions=candidate.planned,
        passed=sum(scenario.passed for scenario in candidate.scenarios),
        incomplete_categories=candidate.incomplete_categories,
        policy=policy.name,
        at_ms=at_ms,
    )


def rejected(status: RunStatus, at_ms: int, policy: Policy = DEFAULT) -> GateStatus:
    """INCONCLUSIVE for a run that was rejected or failed, so that a waiting deploy gets its answer.

    Raises:
        ValueError: the run is in another state.
    """
    if status.state not in ("rejected", "failed"):
        raise ValueError(f"run {status.run_id} is {status.state}: only rejected or failed fit here")
    errors = status.errors or ("no reason was given",)
    reasons = tuple(
        Reason(
            code=f"run_{status.state}",
            effect=INCONCLUSIVE,
            message=f"The run was {status.state}: {error.rstrip('.')}. Correct that, then publish "
            "a new request.",
        )
        for error in errors
    )
    return GateStatus(
        run_id=status.run_id,
        verdict=Verdict.INCONCLUSIVE,
        reasons=reasons,
        suite=status.suite,
        suite_hash=status.suite_hash,
        suite_version=status.suite_version,
        agent_id=status.request.agent_id if status.request else "",
        agent_name=status.agent_name,
        agent_fingerprint=status.agent_fingerprint,
        sessions=status.planned,
        policy=policy.name,
        at_ms=at_ms,
    )


def _obstacles(run: RunAggregates, baseline: BaselineAccepted | None) -> Iterator[Reason]:
    """Why no comparison can be made."""
    if baseline is None:
        yield Reason(
            code="no_baseline",
            effect=INCONCLUSIVE,
            message=f"No baseline is accepted for {run.suite}/{run.agent_name}. Accept a run you "
            f"trust, such as this one: windtunnel baseline accept {run.run_id} --reason '...'",
        )
        return
    old = baseline.aggregates
    if (old.suite, old.agent_name) != (run.suite, run.agent_name):
        yield Reason(
            code="baseline_of_another",
            effect=INCONCLUSIVE,
            message=f"The baseline {baseline.run_id} is of {old.suite}/{old.agent_name}, this run "
            f"of {run.suite}/{run.agent_name}. Accept a baseline of the same suite and agent.",
        )
    if not (baseline.author.strip() and baseline.reason.strip()):
        yield Reason(
            code="baseline_unsigned",
            effect=INCONCLUSIVE,
            message=f"The baseline {baseline.run_id} names no author or no reason, so nobody "
            "answers for it. Accept it again with `windtunnel baseline accept`.",
        )
    if old.partial:
        yield Reason(
            code="baseline_partial",
            effect=INCONCLUSIVE,
            message=f"The baseline {baseline.run_id} left scenarios of its suite out, so nothing "
            "is known of those. Accept a run of the whole suite.",
        )
    changed = sorted(
        pin for pin in run.pins.keys() | old.pins.keys() if run.pins.get(pin) != old.pins.get(pin)
    )
    if changed:
        pins = ", ".join(
            f"{pin} (was {old.pins.get(pin, 'absent')}, is {run.pins.get(pin, 'absent')})"
            for pin in changed
        )
        yield Reason(
            code="pins_changed",
            effect=INCONCLUSIVE,
            message=f"Not compared with baseline {baseline.run_id}, since pins changed: {pins}. "
            "Run the baseline's build with these pins, accept that as the baseline, then run this "
            "build again.",
        )


def _compared(
    run: RunAggregates, old: RunAggregates, diff: tuple[DiffEntry, ...]
) -> Iterator[Reason]:
    if run.suite_hash != old.suite_hash:
        yield Reason(
            code="suite_changed",
            effect=NOTE,
            message=f"The suite changed since the baseline: version {old.suite_version} "
            f"({old.suite_hash}) became {run.suite_version} ({run.suite_hash}). Check that the "
            "scenarios still ask for the same.",
        )
    if run.trials != old.trials:
        yield Reason(
            code="trials_changed",
            effect=NOTE,
            message=f"The baseline ran each scenario {old.trials} time(s), this run {run.trials}. "
            "Use equal trials for figures of equal weight.",
        )
    never_ran = {s.scenario_id for s in run.scenarios if not ran(s)}
    by_gate = {
        e.scenario_id
        for e in diff
        if e.change == REGRESSED and e.kind == GATE and e.dimension != ALL_GATES
    }
    for entry in diff:
        if entry.change == REGRESSED:
            # Why the scenario passes less often is said by its dimensions, where they show it.
            if entry.dimension != ALL_GATES or entry.scenario_id not in by_gate:
                yield wording.regression(entry)
        elif entry.dimension == "" and entry.change == MISSING:
            if entry.scenario_id not in never_ran:
                yield wording.missing(entry, partial=run.partial)
        elif entry.dimension == "" and entry.change == NEW:
            yield wording.new(entry)
        elif entry.dimension != ALL_GATES and (
            entry.change == MISSING or (entry.change == INCOMPARABLE and not _is_unscored(entry))
        ):
            yield wording.undecided(entry)
    yield from _standing_safety(run, old, diff)


def _is_unscored(entry: DiffEntry) -> bool:
    """An unscored gate, which the candidate's own figures already said."""
    return entry.kind == GATE and not entry.method.startswith("kind changed")


def _standing_safety(
    run: RunAggregates, old: RunAggregates, diff: tuple[DiffEntry, ...]
) -> Iterator[Reason]:
    """Safety that failed before and fails still: no regression, and nothing to be silent about."""
    before = {s.scenario_id: s for s in old.scenarios}
    worse = {e.scenario_id for e in diff if e.change == REGRESSED and e.dimension == "safety"}
    for scenario in run.scenarios:
        was = before.get(scenario.scenario_id)
        if was is None or scenario.scenario_id in worse:
            continue
        for a in scenario.dimensions:
            if a.dimension != Dimension.SAFETY or not a.failed:
                continue
            if any(b.dimension == Dimension.SAFETY and b.failed for b in was.dimensions):
                yield wording.of_scenario(
                    "safety_failing_in_baseline", NOTE, scenario,
                    f"{scenario.scenario_id}: safety fails in {a.failed} session(s), and failed in "
                    f"the baseline too.{wording.cited(a.examples)} Fix it and accept a baseline "
                    "that is safe.",
                    a.dimension,
                )  # fmt: skip


def _verdict(reasons: Iterable[Reason]) -> str:
    effects = {reason.effect for reason in reasons}
    if FAIL in effects:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if INCONCLUSIVE in effects else Verdict.PASS


def _ordered(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    return tuple(
        sorted(
            reasons,
            key=lambda r: (
                _EFFECTS.index(r.effect),
                _CODES.index(r.code),
                r.scenario_id or "",
                r.dimension or "",
                r.message,
            ),
        )
    )
