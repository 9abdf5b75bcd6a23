"""Quality: how the agent treated the user, rated by a model from 1 to 5.

Quality never decides whether a session passes: a rude agent that does its task passes, and a kind
one that does not fails. The gate compares the means of a run with those of its baseline and may
block a drop of the aggregate. Which of the metrics are rated is `WINDTUNNEL_JUDGE_QUALITY`; none is
where no model is configured. The value is (rating - 1) / 4, so 0 is the worst and 1 the best.

Not applicable: the agent answered no turn.
Unscored: the model could not be asked, refused, or gave no rating that can be used; the session is
invalid.
Cites: the steps that the model names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.criteria import evaluator
from services.judge.evaluators.scoring import cited, not_applicable
from services.judge.trajectory import Trajectory

NAME = "quality/1"

SCALES: Mapping[str, str] = {
    Dimension.TONE: "whether the agent is polite, calm and professional, also towards a user who "
    "is not, and speaks in a way that suits the matter",
    Dimension.EMPATHY: "whether the agent takes notice of how the user feels and what the matter "
    "means to them, without overdoing it",
    Dimension.OVERALL_QUALITY: "how good the conversation is as a whole for this user: whether the "
    "agent is clear, helpful, to the point, consistent, and brings the matter forward",
}
"""Each metric's definition, as the model is told it."""


@dataclass(frozen=True)
class QualityRating:
    """A model's rating, 1 to 5, or None where it gave none; `rationale` says why."""

    rating: int | None
    rationale: str
    citations: tuple[str, ...] = ()
    answered_by: str = ""


class QualityJudge(Protocol):
    """Rates qualities. Owes: a bound on time and on calls at once; no exceptions but
    cancellation.
    """

    @property
    def model(self) -> str:
        """The pinned model, as it is recorded with every rating."""

    @property
    def quality(self) -> tuple[str, ...]:
        """The metrics to be rated: keys of `SCALES`."""

    async def rate_quality(
        self, scales: Mapping[str, str], trajectory: Trajectory, outcome: str
    ) -> Mapping[str, QualityRating]:
        """A rating on each scale, given with its definition; citations name steps of the
        trajectory. `outcome`: the user's aim.
        """


def all_unscored(names: Iterable[str], reason: str) -> tuple[DimensionScore, ...]:
    """Every metric as one that was not rated."""
    return tuple(
        DimensionScore(
            dimension=name, kind="quality", status="unscored", reason=reason, evaluator=NAME
        )
        for name in names
    )


async def evaluate_all(
    trajectory: Trajectory, brief: JudgeBrief, judge: QualityJudge | None
) -> tuple[DimensionScore, ...]:
    """One score for each metric that is rated; none without a model."""
    if judge is None or not judge.quality:
        return ()
    if not any(turn.answered for turn in trajectory.agent_turns):
        words = "the agent answered no turn"
        return tuple(not_applicable(name, NAME, words, kind="quality") for name in judge.quality)
    scales = {name: SCALES[name] for name in judge.quality}
    rated = await judge.rate_quality(scales, trajectory, brief.outcome)
    return tuple(_score(name, rated[name], judge.model) for name in judge.quality)


def _score(name: str, rated: QualityRating, model: str) -> DimensionScore:
    who = evaluator(NAME, model, rated.answered_by)
    if rated.rating is None:
        return DimensionScore(
            dimension=name, kind="quality", status="unscored", reason=rated.rationale, evaluator=who
        )
    return DimensionScore(
        dimension=name,
        kind="quality",
        value=(rated.rating - 1) / 4,
        reason=f"{rated.rating} of 5: {rated.rationale}",
        citations=cited(rated.citations),
        evaluator=who,
    )
