"""Whether a run may become a baseline, and the record of it. Pure.

A baseline must not be laundered: it is a whole run of the whole suite, compared with what it
replaces, and somebody puts name and reason to it.
"""

from __future__ import annotations

from schemas.gate import BaselineAccepted, GateStatus, Verdict
from schemas.scores import RunAggregates
from services.cli.errors import CliError


def accepted(
    run_id: str,
    figures: RunAggregates | None,
    verdict: GateStatus | None,
    current: BaselineAccepted | None,
    *,
    author: str,
    reason: str,
    despite_fail: bool,
    now_ms: int,
) -> BaselineAccepted:
    """The acceptance of a run. Its diff is the gate's, against the baseline it replaces.

    Raises:
        CliError: the run may not become a baseline.
    """
    if not author.strip() or not reason.strip():
        raise CliError("a baseline needs an author and a reason: --author and --reason")
    if figures is None:
        raise CliError(
            f"run {run_id} has no figures: it is unknown, was rejected, or is not done. See "
            f"`windtunnel gate wait {run_id}`"
        )
    if verdict is None:
        raise CliError(
            f"run {run_id} has no verdict yet: wait with `windtunnel gate wait {run_id}`"
        )
    _refuse_unfinished(figures)
    if verdict.verdict == Verdict.FAIL and not despite_fail:
        raise CliError(
            f"the gate failed run {run_id}. To accept what it shows as the new normal, say so with "
            f"--despite-fail; the diff is recorded with your name"
        )
    _refuse_uncompared(verdict, current)
    return BaselineAccepted(
        name=f"{figures.suite}/{figures.agent_name}",
        run_id=run_id,
        author=author.strip(),
        reason=reason.strip(),
        accepted_at_ms=now_ms,
        replaces_run_id=current.run_id if current else None,
        diff=verdict.diff,
        aggregates=figures,
    )


def _refuse_unfinished(figures: RunAggregates) -> None:
    lost = sum(scenario.lost for scenario in figures.scenarios)
    if lost or figures.ended < figures.planned or figures.scored < figures.planned:
        raise CliError(
            f"run {figures.run_id} is not whole: of {figures.planned} sessions {figures.ended} "
            f"ended, {figures.scored} were judged and {lost} were lost. Run it again"
        )
    if figures.partial:
        raise CliError(
            f"run {figures.run_id} left scenarios of the suite out; a baseline needs all of them"
        )


def _refuse_uncompared(verdict: GateStatus, current: BaselineAccepted | None) -> None:
    if current is None:
        return
    if current.run_id == verdict.run_id:
        raise CliError(f"run {verdict.run_id} is the baseline already")
    if verdict.baseline_run_id != current.run_id:
        compared = verdict.baseline_run_id or "none"
        raise CliError(
            f"run {verdict.run_id} was compared with baseline {compared}, and the current one is "
            f"{current.run_id}. Run it again with --baseline accepted, so that the diff says what "
            f"changes"
        )
