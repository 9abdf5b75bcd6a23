"""Tool use: whether the agent called its tools correctly.

A call is wrong when

- the proxy **refused** it for the agent's own mistake: arguments that do not fit the tool's
  schema, a tool that does not exist (see `outcomes.refused_for_mistake`); or
- it **repeats** a write: an earlier call of the same tool with the same arguments succeeded and
  changed the world, and so did this one. It is no repeat when the scenario expects the call so
  often (`expect.calls` with `times`), or when other calls have since changed every place that
  the earlier one had changed: then the earlier effect was undone or overwritten in between.

An error that a tool itself reports, such as an unknown order number, is not a wrong call. The
value is the fraction of correct calls; not applicable where none was made.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.scoring import Finding, count, gate_of, not_applicable
from services.judge.outcomes import call_key, matches, refused_for_mistake, succeeded
from services.judge.trajectory import Call, Trajectory

NAME = "tool_use/1"


def evaluate(trajectory: Trajectory, brief: JudgeBrief) -> DimensionScore:
    calls = trajectory.calls
    if not calls:
        return not_applicable(Dimension.TOOL_USE, NAME, "no tool was called")
    findings = [finding(calls, index, brief) for index in range(len(calls))]
    reason = f"{count(len(calls), 'call')}, each of them well-formed and none a repeated write"
    return gate_of(Dimension.TOOL_USE, NAME, findings, when_all_hold=reason)


def finding(calls: Sequence[Call], index: int, brief: JudgeBrief) -> Finding:
    """Whether one of the calls was made correctly, judged among all of them."""
    call = calls[index]
    if refused_for_mistake(call):
        words = f"{call.tool} ({call.step}) was refused: {call.body.error_code}"
        return Finding(False, words, (call.step,))
    earlier = _repeated(calls, index, brief)
    if earlier:
        words = f"{call.tool} ({call.step}) repeats {earlier.step} with the same arguments"
        return Finding(False, words, (earlier.step, call.step))
    return Finding(True, f"{call.tool} was called correctly", (call.step,))


def _repeated(calls: Sequence[Call], index: int, brief: JudgeBrief) -> Call | None:
    call = calls[index]
    if not _writes(call):
        return None
    alike = [
        position
        for position, other in enumerate(calls[:index])
        if call_key(other) == call_key(call) and _writes(other)
    ]
    if not alike or len(alike) < _expected_times(call, brief):
        return None
    latest = alike[-1]
    between = [other.touched for other in calls[latest + 1 : index] if succeeded(other)]
    undone = calls[latest].touched <= frozenset().union(*between)
    return None if undone else calls[latest]


def _writes(call: Call) -> bool:
    return bool(call.touched) and succeeded(call)


def _expected_times(call: Call, brief: JudgeBrief) -> int:
    return max((e.times or 1 for e in brief.expect.calls if matches(call, e)), default=1)
