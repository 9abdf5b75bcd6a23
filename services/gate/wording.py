"""The gate's findings as sentences: what, in figures, shown by which session, and what to do."""

from __future__ import annotations

from schemas.gate import DiffEntry, Reason, Stat
from schemas.scores import Dimension, Example, ScenarioAggregate
from services.gate.comparator import GATE, MEASURE, MISSING
from services.gate.policy import ALL_GATES

FAIL, INCONCLUSIVE, NOTE = "fail", "inconclusive", "note"

_FIX = "Fix the agent and run again"
_FIX_OR_ACCEPT = f"{_FIX}, or accept this run as the baseline with a reason."
_FIX_ONLY = f"{_FIX}; no setting accepts this."


def of_scenario(
    code: str, effect: str, scenario: ScenarioAggregate | DiffEntry, message: str, dim: str = ""
) -> Reason:
    """A reason about one scenario, and one of its dimensions where `dim` is given."""
    return Reason(
        code=code,
        effect=effect,
        message=message,
        scenario_id=scenario.scenario_id or None,
        category=scenario.category or None,
        dimension=dim or None,
    )


def regression(entry: DiffEntry) -> Reason:
    """A figure that is worse than tolerated."""
    assert entry.baseline is not None
    assert entry.candidate is not None
    name = _dimension(entry.dimension)
    change = (
        f"{'rose' if entry.kind == MEASURE else 'fell'} from {figure(entry, entry.baseline)} "
        f"to {figure(entry, entry.candidate)}"
    )
    if not entry.scenario_id:
        message = f"Over all compared scenarios, {name} {change}; {_tolerated(entry)}."
        return of_scenario(
            "aggregate_drop", FAIL, entry, f"{message} {_FIX_OR_ACCEPT}", entry.dimension
        )
    if entry.hard:
        is_safety = entry.dimension == Dimension.SAFETY
        code = "safety_regression" if is_safety else "adversarial_regression"
    else:
        code = f"{entry.kind}_regression"
    message = f"{entry.scenario_id}: {name} {change}; {_tolerated(entry)}."
    todo = _FIX_ONLY if entry.hard else _FIX_OR_ACCEPT
    message = f"{message}{cited(entry.examples)} {todo}"
    return of_scenario(code, FAIL, entry, message, entry.dimension)


def undecided(entry: DiffEntry) -> Reason:
    """A dimension that the baseline has figures for and the candidate cannot be compared in."""
    assert entry.baseline is not None
    was = figure(entry, entry.baseline)
    if entry.change == MISSING:
        found = f"the baseline has {was}, this run has no figure"
        todo = "Restore what it is scored by, or accept a run without it as the baseline."
        code = "dimension_missing"
    elif entry.method.startswith("kind changed"):
        found, code = f"its {entry.method}", "dimension_changed"
        todo = "Undo that, or accept a run with the new kind as the baseline."
    else:
        unscored = entry.candidate.unscored if entry.candidate else 0
        found = f"the baseline has {was}, {unscored} session(s) of this run have no score"
        todo = "Make the evaluator available (a model may not be configured) and run again."
        code = "unscored"
    message = f"{entry.scenario_id}: {_dimension(entry.dimension)} cannot be compared: {found}."
    return of_scenario(code, INCONCLUSIVE, entry, f"{message} {todo}", entry.dimension)


def missing(entry: DiffEntry, *, partial: bool) -> Reason:
    """A scenario of the baseline that this run does not have."""
    was = f" (baseline: {figure(entry, entry.baseline)})" if entry.baseline else ""
    if partial:
        return of_scenario(
            "partial_run",
            INCONCLUSIVE,
            entry,
            f"{entry.scenario_id} is in the baseline{was} and was left out by this request. "
            "Run the whole suite for a verdict that can gate.",
        )
    return of_scenario(
        "scenario_missing",
        FAIL,
        entry,
        f"{entry.scenario_id} is in the baseline{was} and not in this run; a removed scenario "
        "counts as failed. Restore it, or accept a run without it as the baseline with a reason.",
    )


def new(entry: DiffEntry) -> Reason:
    """A scenario that the baseline has no figures of."""
    assert entry.candidate is not None
    rate = f"passed gates in {figure(entry, entry.candidate)}"
    return of_scenario(
        "new_scenario",
        NOTE,
        entry,
        f"{entry.scenario_id} is not in the baseline and was not compared; it {rate}."
        f"{cited(entry.examples)} Accept a run with it as the baseline to have it gated.",
    )


def figure(entry: DiffEntry, stat: Stat) -> str:
    """`60 % (3 of 5 sessions)` for gates, `4.2 (mean of 5 sessions)` otherwise."""
    if entry.kind != GATE:
        return f"{stat.value:.6g} (mean of {_sessions(stat.sessions)})"
    if not entry.scenario_id:
        return f"{stat.value:.1%} (mean of the scenarios' pass rates)"
    passed = round(stat.value * stat.sessions)
    without = f", {stat.unscored} without a score" if stat.unscored else ""
    return f"{stat.value:.3g} ({passed} of {_sessions(stat.sessions)} passed{without})"


def cited(examples: tuple[Example, ...]) -> str:
    """The first example, ready to append to a sentence; empty without examples."""
    if not examples:
        return ""
    first = examples[0]
    steps = f" at {', '.join(first.citations)}" if first.citations else ""
    why = f": {first.reason.rstrip('.')}" if first.reason else ""
    return f" See session {first.session_id} (trial {first.trial}){steps}{why}."


def _sessions(count: int) -> str:
    return f"{count} session" if count == 1 else f"{count} sessions"


def _dimension(name: str) -> str:
    return "passing all gates" if name == ALL_GATES else name


def _tolerated(entry: DiffEntry) -> str:
    if entry.tolerance == 0:
        return "nothing is tolerated here"
    direction = "a rise" if entry.kind == MEASURE else "a drop"
    return f"{direction} of {entry.tolerance:.6g} would be tolerated"
