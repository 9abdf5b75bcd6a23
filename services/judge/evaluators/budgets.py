"""Budgets: whether the session stayed within what a good one may use.

The value is the fraction of set budgets that were kept; all must be kept to pass. A token or cost
budget cannot be called kept when the agent does not report what it uses: unless another budget is
exceeded, the dimension is then unscored. Not applicable where no budget is set.
"""

from __future__ import annotations

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.scoring import Finding, gate_of, not_applicable, unscored
from services.judge.trajectory import Trajectory
from services.judge.usage import consumption

NAME = "budgets/1"


def evaluate(trajectory: Trajectory, brief: JudgeBrief) -> DimensionScore:
    used = consumption(trajectory)
    budgets = brief.budgets
    bounds: tuple[tuple[str, float | None, float, bool], ...] = (
        ("turns", budgets.turns, used.turns, True),
        ("tool calls", budgets.tool_calls, used.tool_calls, True),
        ("tokens", budgets.tokens, used.tokens, used.tokens_known),
        ("US dollars", budgets.cost_usd, used.cost_usd, used.cost_known),
    )
    findings = [
        Finding(amount <= budget, f"{amount:g} {unit} used, budget {budget:g}")
        for unit, budget, amount, _ in bounds
        if budget is not None
    ]
    if not findings:
        return not_applicable(Dimension.BUDGETS, NAME, "the scenario sets no budget")
    unknown = [unit for unit, budget, _, known in bounds if budget is not None and not known]
    if unknown and all(finding.holds for finding in findings):
        reason = f"a budget of {' and '.join(unknown)} is set, but the agent does not report them"
        return unscored(Dimension.BUDGETS, NAME, reason)
    kept = "within budget: " + "; ".join(finding.words for finding in findings)
    return gate_of(Dimension.BUDGETS, NAME, findings, when_all_hold=kept)
