"""A verdict as people read it: the word, what got worse and which session shows it, and the rest.

A regression is shown once, under its scenario, though the message has it both as a reason and as an
entry of the diff.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from schemas.gate import DiffEntry, GateStatus, Reason, Stat
from services.cli.output import tell

_CHANGES = ("regressed", "missing", "incomparable", "improved", "new", "unchanged")
_EFFECTS = {"fail": "FAIL", "inconclusive": "UNCLEAR", "note": "note"}
_ALL_GATES = "all_gates"
_MAX_REASON = 240
_MAX_LISTED = 8


def tell_verdict(status: GateStatus) -> None:
    """Print the verdict with everything that explains it."""
    compared = status.baseline_run_id or "nothing"
    tell(f"{status.verdict}  {status.run_id}, {status.passed} of {status.sessions} sessions passed")
    if status.suite:
        tell(
            f"  suite {status.suite} {status.suite_version}, agent {status.agent_id} "
            f"({status.agent_name or 'unknown'}), compared with {compared}"
        )
    regressed = {(e.scenario_id, e.dimension) for e in status.diff if e.change == "regressed"}
    for reason in status.reasons:
        if reason.effect != "fail" or _subject(reason) not in regressed:
            tell(f"  {_EFFECTS.get(reason.effect, reason.effect)}: {reason.message}")
    tell_diff(status.diff)


def tell_diff(diff: Sequence[DiffEntry]) -> None:
    """Print what changed, worst first, and count the rest."""
    if not diff:
        return
    counts = Counter(entry.change for entry in diff)
    tell("")
    tell(
        f"Of {len(diff)} figures: "
        + ", ".join(f"{counts[name]} {name}" for name in _CHANGES if counts[name])
    )
    regressed = [entry for entry in diff if entry.change == "regressed"]
    if regressed:
        by_dimension = Counter(e.dimension for e in regressed if e.dimension != _ALL_GATES)
        worse = ", ".join(f"{name} in {n}" for name, n in by_dimension.most_common())
        tell(f"  Worse, by scenarios: {worse}")
    hard = {entry.scenario_id for entry in regressed if entry.hard}
    regressed.sort(key=lambda e: (e.scenario_id not in hard, e.category, e.scenario_id))
    for scenario, entries in groupby(regressed, key=lambda entry: entry.scenario_id):
        _tell_regressed(scenario, list(entries), is_hard=scenario in hard)
    for change in ("missing", "incomparable", "improved", "new"):
        _tell_listed(change, [entry for entry in diff if entry.change == change])


def _tell_regressed(scenario: str, entries: list[DiffEntry], *, is_hard: bool) -> None:
    block = ", hard block" if is_hard else ""
    tell(f"  {scenario} ({entries[0].category}{block})" if scenario else "  all scenarios together")
    shown = [entry for entry in entries if entry.kind != "measure"]
    if any(entry.dimension != _ALL_GATES for entry in shown):
        shown = [entry for entry in shown if entry.dimension != _ALL_GATES]
    for entry in shown:
        tell(f"    {entry.dimension:<17} {_change(entry)}{_evidence(entry)}")
    measures = [f"{e.dimension} {_change(e)}" for e in entries if e.kind == "measure"]
    if measures:
        tell(f"    also {', '.join(measures)}")


def _tell_listed(change: str, entries: Sequence[DiffEntry]) -> None:
    if not entries:
        return
    names = [
        f"{entry.scenario_id or 'all'} {entry.dimension or 'scenario'} {_change(entry)}".rstrip()
        for entry in entries[:_MAX_LISTED]
    ]
    rest = len(entries) - len(names)
    more = f"; and {rest} more (all with --json)" if rest else ""
    tell(f"  {change}: {'; '.join(names)}{more}")


def _subject(reason: Reason) -> tuple[str, str]:
    return reason.scenario_id or "", reason.dimension or ""


def _change(entry: DiffEntry) -> str:
    return f"{_figure(entry, entry.baseline)} -> {_figure(entry, entry.candidate)}"


def _figure(entry: DiffEntry, stat: Stat | None) -> str:
    if stat is None:
        return "nothing"
    if entry.kind != "gate":
        return f"{stat.value:.4g}"
    if not entry.scenario_id:
        return f"{stat.value:.1%}"
    return f"{round(stat.value * stat.sessions)}/{stat.sessions}"


def _evidence(entry: DiffEntry) -> str:
    if not entry.examples:
        return ""
    first = entry.examples[0]
    steps = f" at {', '.join(first.citations)}" if first.citations else ""
    reason = first.reason if len(first.reason) <= _MAX_REASON else first.reason[:_MAX_REASON] + "…"
    return f"  session {first.session_id}{steps}: {reason}"
