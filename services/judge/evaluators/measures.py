"""Measures: turns, tool calls, latency, tokens and cost, compared but never passed or failed.

Latency is the mean over all turns put to the agent, failed and timed-out ones included, so that an
agent does not look faster for not answering. What cannot be known is not applicable, not nought.
"""

from __future__ import annotations

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.scoring import not_applicable
from services.judge.trajectory import Trajectory
from services.judge.usage import consumption

NAME = "measures/1"


def evaluate_all(trajectory: Trajectory, brief: JudgeBrief) -> tuple[DimensionScore, ...]:
    used = consumption(trajectory)
    latencies = [turn.body.latency_ms for turn in trajectory.agent_turns]
    mean = sum(latencies) / len(latencies) if latencies else None
    silent = "the agent does not report its usage"
    return (
        *_replayed(trajectory),
        _measure(Dimension.TURNS, used.turns, "user turns put to the agent"),
        _measure(Dimension.TOOL_CALLS, used.tool_calls, "tool calls recorded"),
        _measure(Dimension.AGENT_LATENCY, mean, "mean over all turns", "the agent had no turn"),
        _measure(
            Dimension.TOKENS, used.tokens if used.tokens_known else None, "as reported", silent
        ),
        _measure(
            Dimension.COST,
            used.cost_usd if used.cost_known else None,
            "as reported",
            silent if not used.tokens_known else "the price of the agent's model is not known",
        ),
    )


def _replayed(trajectory: Trajectory) -> tuple[DimensionScore, ...]:
    """How much of what the user said was said again from a recording; nothing without one."""
    turns = [turn for turn in trajectory.user_turns if turn.body.replayed is not None]
    if not turns:
        return ()
    again = sum(turn.body.replayed is True for turn in turns)
    left = next((turn.step for turn in turns if turn.body.replayed is False), None)
    reason = f"{again} of {len(turns)} user turns said again from the recording"
    reason += f"; the agent led away from it before {left}" if left else ""
    return (_measure(Dimension.REPLAYED, again / len(turns), reason),)


def _measure(dimension: str, value: float | None, reason: str, unknown: str = "") -> DimensionScore:
    if value is None:
        return not_applicable(dimension, NAME, unknown, kind="measure")
    return DimensionScore(
        dimension=dimension, kind="measure", value=float(value), reason=reason, evaluator=NAME
    )
