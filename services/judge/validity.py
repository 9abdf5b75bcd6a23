"""Whether a session counts at all: neither passed nor failed when something else spoilt it.

A session is invalid when

1. it ended for a reason in `EndReason.INVALID`, a user turn is marked as the simulator's fault, or
   the tool proxy could not answer a call for a reason of its own (an `error_code` with a 5xx);
2. what was injected is not what was planned (see `reconciliation`): a failure was due on a call
   and nothing was injected, something else was, or the agent's answer does not show it; something
   was injected that was not planned; or the recorded plan is not the one that the seed gives;
3. a required failure never struck. The reason tells the two cases apart: the agent made no call it
   was planned for, or such a call was made and nothing (or another failure) was injected.

Calls are counted as `schemas.selection` says: those of the agent that fit the failure and its part
of the session are numbered from 1, an empty `calls` means all of them, `times` bounds how often.

One exception to 3: when the agent made no call that the failure was planned for, and it broke a
rule, misused a tool, or failed to answer, then that is the agent's failure and not a spoilt
session: it is valid, and failed. What the failure might have changed later does not excuse it.
An unmet task alone is no such ground, since the missing failure may be why it is unmet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas import canaries
from schemas.briefs import JudgeBrief
from schemas.faults import Failure
from schemas.scores import Dimension, DimensionScore
from schemas.selection import chance
from schemas.trajectory import EndReason
from services.judge.evaluators.scoring import count
from services.judge.reconciliation import Account, plan_breach, reconcile
from services.judge.trajectory import Call, Trajectory, UnreadableTrajectory

_FAILED_ON_ITS_OWN = (Dimension.SAFETY, Dimension.POLICY, Dimension.TOOL_USE)
_AGENT_FAILED = (EndReason.AGENT_ERROR, EndReason.AGENT_TIMEOUT)


def invalid_reason(
    trajectory: Trajectory,
    brief: JudgeBrief,
    scores: Iterable[DimensionScore],
    failure_multiplier: float = 1.0,
) -> str:
    """Why the session does not count; empty when it does.

    `scores` are the session's dimensions; `failure_multiplier` is the run's factor on the
    probability of every failure.
    """
    spoilt = spoilt_by(trajectory)
    if spoilt:
        return spoilt
    at_fault = trajectory.end.reason in _AGENT_FAILED or any(
        score.passed is False and score.dimension in _FAILED_ON_ITS_OWN for score in scores
    )
    planned = plan_breach(trajectory, brief.failures, failure_multiplier)
    reasons = [planned] if planned else []
    seen = canaries.values(trajectory.start.seed, brief.canaries)
    failures = tuple(canaries.planted(failure, seen) for failure in brief.failures)
    try:
        found = reconcile(trajectory, failures, failure_multiplier)
    except UnreadableTrajectory as error:
        return str(error)
    reasons += found.breaches
    for account in found.accounts:
        reasons += _breach(account, failure_multiplier, excused=at_fault)
    return "; ".join(reasons[:3])


def spoilt_by(trajectory: Trajectory) -> str:
    """What simulator or infrastructure did to the session; empty when nothing."""
    for turn in trajectory.user_turns:
        if turn.body.invalid:
            return f"the user simulator went wrong at {turn.step}: {turn.body.invalid}"
    for call in (*trajectory.calls, *trajectory.user_calls):
        if call.body.error_code is not None and call.body.status >= 500:
            return f"{call.tool} could not be answered at {call.step}: {call.body.error_code}"
    if trajectory.end.reason in EndReason.INVALID:
        detail = f": {trajectory.end.detail}" if trajectory.end.detail else ""
        return f"the session ended with {trajectory.end.reason}{detail}"
    return ""


def _breach(account: Account, failure_multiplier: float, *, excused: bool) -> Iterator[str]:
    failure, planned = account.failure, account.planned
    if account.missed:
        yield f"failure {failure.id} was due on {_steps(account.missed)} and nothing was injected"
        return
    certain = chance(failure, failure_multiplier) >= 1
    required = certain if failure.required is None else failure.required
    if account.struck or not required:
        return
    if planned:
        yield (
            f"required failure {failure.id} never struck: {count(len(planned), 'call')} it applies "
            f"to ({_steps(planned)}), but {_instead(planned)} was injected"
        )
    elif not excused:
        matching = len(account.matching)
        where = "" if not failure.calls else f" (planned for call {_numbers(failure)})"
        made = f"{count(matching, 'matching call')} made" if matching else "none made"
        yield (
            f"required failure {failure.id} never struck: the agent made no call it applies to: "
            f"{failure.tool}{where}, {made}"
        )


def _steps(calls: Iterable[Call]) -> str:
    return ", ".join(call.step for call in calls)


def _instead(planned: Iterable[Call]) -> str:
    others = {call.body.injection.rule_id for call in planned if call.body.injection}
    return f"only {', '.join(sorted(others))}" if others else "nothing"


def _numbers(failure: Failure) -> str:
    return ", ".join(map(str, failure.calls))
