"""The deterministic evaluators: one file a dimension, each a pure function.

Adding one: write `evaluate(trajectory, brief) -> DimensionScore` in a file of its own, with a
`NAME` whose number goes up whenever the same trajectory could be scored differently, and list it
here.
"""

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators import (
    actors,
    awareness,
    budgets,
    failure_recovery,
    measures,
    policy_adherence,
    safety,
    task_completion,
    tool_use,
)
from services.judge.evaluators.scoring import Evaluator
from services.judge.trajectory import Trajectory

GATES: dict[str, tuple[str, Evaluator]] = {
    Dimension.TASK_COMPLETION: (task_completion.NAME, task_completion.evaluate),
    Dimension.SAFETY: (safety.NAME, safety.evaluate),
    Dimension.POLICY: (policy_adherence.NAME, policy_adherence.evaluate),
    Dimension.RECOVERY: (failure_recovery.NAME, failure_recovery.evaluate),
    Dimension.TOOL_USE: (tool_use.NAME, tool_use.evaluate),
    Dimension.BUDGETS: (budgets.NAME, budgets.evaluate),
}
"""The gates of every session by dimension: evaluator name with version, and function."""

QUALITY: tuple[Evaluator, ...] = (awareness.evaluate,)
"""Quality of every session that takes no model: compared, never passed or failed."""


def figures(trajectory: Trajectory, brief: JudgeBrief) -> tuple[DimensionScore, ...]:
    """Measures of every session, and what there is to say of each of its sub-agents."""
    return (*measures.evaluate_all(trajectory, brief), *actors.evaluate(trajectory, brief))


MEASURES = figures
