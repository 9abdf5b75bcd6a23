"""Criteria: each statement of `goals.criteria` judged by a model over the whole trajectory.

Criterion n is the gate `criteria.n`, in the order in which the scenario lists them. The model says
whether the statement is true of the session, why, and on which steps that rests; any criterion that
is not true fails the session. Where `WINDTUNNEL_JUDGE_SAMPLES` asks for several verdicts the
majority counts, and the value is the share of verdicts that say *pass*.

Not applicable: never; a scenario without criteria has no such gate.
Unscored: no model is configured; it could not be asked, refused, or gave no verdict that can be
used, with citations that exist; fewer of its samples agree than `WINDTUNNEL_JUDGE_AGREEMENT` asks
for; the session is invalid.
Cites: the steps that the model names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.scoring import cited, unscored
from services.judge.trajectory import Trajectory

NAME = "criteria/2"
NO_MODEL = "no judge model is configured (WINDTUNNEL_JUDGE_MODEL)"


@dataclass(frozen=True)
class Judgement:
    """A model's word on one criterion. `passed` is None when it gave none; `rationale` says why."""

    passed: bool | None
    rationale: str
    citations: tuple[str, ...] = ()
    answered_by: str = ""
    value: float | None = None
    """The share of the verdicts that say *pass*; None where there was one, or none."""


class CriterionJudge(Protocol):
    """Judges criteria. Owes: a bound on time and on calls at once; no exceptions but
    cancellation.
    """

    @property
    def model(self) -> str:
        """The pinned model, as it is recorded with every verdict."""

    async def judge(
        self, criteria: Sequence[str], trajectory: Trajectory, outcome: str
    ) -> Sequence[Judgement]:
        """A verdict on each; citations name steps of the trajectory. `outcome`: the user's aim."""


def dimension(number: int) -> str:
    """The dimension of the criterion with this number, from 1."""
    return f"{Dimension.CRITERIA}.{number}"


def all_unscored(brief: JudgeBrief, reason: str) -> tuple[DimensionScore, ...]:
    """Every criterion as a gate that was not judged."""
    numbers = range(1, len(brief.goals.criteria) + 1)
    return tuple(unscored(dimension(number), NAME, reason) for number in numbers)


async def evaluate_all(
    trajectory: Trajectory, brief: JudgeBrief, judge: CriterionJudge | None
) -> tuple[DimensionScore, ...]:
    """One gate per criterion."""
    criteria = brief.goals.criteria
    if judge is None or not criteria:
        return all_unscored(brief, NO_MODEL)
    said = await judge.judge(criteria, trajectory, brief.outcome)
    numbered = enumerate(zip(criteria, said, strict=True), start=1)
    return tuple(_score(number, text, one, judge.model) for number, (text, one) in numbered)


def _score(number: int, criterion: str, said: Judgement, model: str) -> DimensionScore:
    decided = said.passed is not None
    return DimensionScore(
        dimension=dimension(number),
        status="scored" if decided else "unscored",
        value=float(said.passed or 0) if decided and said.value is None else said.value,
        passed=said.passed,
        reason=f"“{criterion}”: {said.rationale}",
        citations=cited(said.citations),
        evaluator=evaluator(NAME, model, said.answered_by),
    )


def evaluator(name: str, model: str, answered_by: str) -> str:
    """Who scored: evaluator, pinned model, and as what that answered if it goes by another name."""
    by = f" ({answered_by})" if answered_by and answered_by != model else ""
    return f"{name} {model}{by}"
