"""Whether a session counts at all: neither passed nor failed when something else spoilt it.

A session is invalid when

1. it ended for a reason in `EndReason.INVALID`, a user turn is marked as the simulator's fault, or
   the tool proxy could not answer a call for a reason of its own (an `error_code` with a 5xx);
2. a failure was due and was not injected: the agent made a matching call whose number was planned,
   the failure is certain to strike, and nothing at all was injected into that call;
3. a required failure never struck. The reason tells the two cases apart: the agent made no call it
   was planned for, or such a call was made and nothing (or another failure) was injected.

Calls are counted as `schemas.scenario.CallSelector` says: those of the tool with at least these
arguments are numbered from 1, an empty `calls` means all of them, `times` bounds how often. Calls
that the proxy refused never got as far as injection and are not counted. Where the tool answers
with an error of its own, `content` and `partial` have nothing to be put into and are not due.

One exception to 3: when the agent made no call that the failure was planned for, and it broke a
rule, misused a tool, or failed to answer, then that is the agent's failure and not a spoilt
session: it is valid, and failed. What the failure might have changed later does not excuse it.
An unmet task alone is no such ground, since the missing failure may be why it is unmet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.briefs import JudgeBrief
from schemas.faults import Failure
from schemas.scores import Dimension, DimensionScore
from schemas.trajectory import EndReason
from services.judge.evaluators.scoring import count
from services.judge.outcomes import selected, succeeded
from services.judge.trajectory import Call, Trajectory

_FAILED_ON_ITS_OWN = (Dimension.SAFETY, Dimension.POLICY, Dimension.TOOL_USE)
_ALTERING = ("content", "partial")
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
    reasons: list[str] = []
    for failure in brief.failures:
        chance = min(1.0, failure.probability * failure_multiplier)
        reasons += _breach(trajectory, failure, chance, excused=at_fault)
    return "; ".join(reasons[:3])


def spoilt_by(trajectory: Trajectory) -> str:
    """What simulator or infrastructure did to the session; empty when nothing."""
    for turn in trajectory.user_turns:
        if turn.body.invalid:
            return f"the user simulator went wrong at {turn.step}: {turn.body.invalid}"
    for call in trajectory.calls:
        if call.body.error_code is not None and call.body.status >= 500:
            return f"{call.tool} could not be answered at {call.step}: {call.body.error_code}"
    if trajectory.end.reason in EndReason.INVALID:
        detail = f": {trajectory.end.detail}" if trajectory.end.detail else ""
        return f"the session ended with {trajectory.end.reason}{detail}"
    return ""


def _breach(
    trajectory: Trajectory, failure: Failure, chance: float, *, excused: bool
) -> Iterator[str]:
    answered = (call for call in trajectory.calls if call.body.error_code is None)
    matching = selected(answered, failure)
    planned = [
        call
        for number, call in enumerate(matching, start=1)
        if not failure.calls or number in failure.calls
    ]
    struck = [call for call in planned if _struck(call, failure)]
    missed = list(_missed(planned, failure)) if chance >= 1 else []
    if missed:
        steps = ", ".join(call.step for call in missed)
        yield f"failure {failure.id} was due on {steps} and nothing was injected"
        return
    required = chance >= 1 if failure.required is None else failure.required
    if struck or not required:
        return
    if planned:
        steps = ", ".join(call.step for call in planned)
        yield (
            f"required failure {failure.id} never struck: {count(len(planned), 'call')} it applies "
            f"to ({steps}), but {_instead(planned)} was injected"
        )
    elif not excused:
        where = "" if not failure.calls else f" (planned for call {_numbers(failure)})"
        made = f"{count(len(matching), 'matching call')} made" if matching else "none made"
        yield (
            f"required failure {failure.id} never struck: the agent made no call it applies to: "
            f"{failure.tool}{where}, {made}"
        )


def _missed(planned: Iterable[Call], failure: Failure) -> Iterator[Call]:
    """Planned calls into which nothing was injected though the failure had strikes left."""
    strikes = 0
    for call in planned:
        if failure.times and strikes >= failure.times:
            return
        if _struck(call, failure):
            strikes += 1
        elif call.body.injection is None and (failure.kind not in _ALTERING or succeeded(call)):
            yield call


def _struck(call: Call, failure: Failure) -> bool:
    return call.body.injection is not None and call.body.injection.rule_id == failure.id


def _instead(planned: Iterable[Call]) -> str:
    others = {call.body.injection.rule_id for call in planned if call.body.injection}
    return f"only {', '.join(sorted(others))}" if others else "nothing"


def _numbers(failure: Failure) -> str:
    return ", ".join(map(str, failure.calls))
