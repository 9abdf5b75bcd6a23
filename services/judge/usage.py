"""What the agent consumed, as far as it reports it.

Tokens and cost are the agent's own; what simulators and judge consume is not the agent's to
answer for. A total is unknown (None) when an answered turn reports no usage, and a cost is
unknown also when tokens were used at no reported price: nought would be a lie in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.judge.trajectory import Trajectory


@dataclass(frozen=True)
class Consumption:
    """Totals of one session. `tokens` and `cost_usd` are what is known at least."""

    turns: int
    tool_calls: int
    tokens: int
    cost_usd: float
    tokens_known: bool
    cost_known: bool


def consumption(trajectory: Trajectory) -> Consumption:
    """What one session's agent used; turns are user turns put to it, failed ones included."""
    turns = trajectory.agent_turns
    usages = [turn.body.usage for turn in turns if turn.body.usage is not None]
    answered = [turn for turn in turns if turn.answered]
    reported = bool(usages) and all(turn.body.usage is not None for turn in answered)
    priced = all(usage.cost_usd or not usage.input_tokens + usage.output_tokens for usage in usages)
    return Consumption(
        turns=len(turns),
        tool_calls=len(trajectory.calls),
        tokens=sum(usage.input_tokens + usage.output_tokens for usage in usages),
        cost_usd=sum(usage.cost_usd for usage in usages),
        tokens_known=reported,
        cost_known=reported and priced,
    )
