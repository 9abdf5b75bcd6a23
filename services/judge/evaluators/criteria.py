"""Criteria: each statement of `goals.criteria` judged by a model over the whole trajectory.

Criterion n is the gate `criteria.n`, in the order in which the scenario lists them. The model is
behind `CriterionJudge`; without one, or when it gives no usable verdict, the gate is unscored and
says why. It is never a pass by default.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.scoring import gate, unscored
from services.judge.trajectory import Trajectory

NAME = "criteria/1"
NO_MODEL = "no judge model is configured (WINDTUNNEL_JUDGE_MODEL)"


@dataclass(frozen=True)
class Judgement:
    """A model's word on one criterion. `passed` is None when it gave none; `rationale` says why."""

    passed: bool | None
    rationale: str
    citations: tuple[str, ...] = ()
    answered_by: str = ""


class CriterionJudge(Protocol):
    """Judges one criterion. Owes: a bound on time and on calls at once; no exceptions but
    cancellation.
    """

    @property
    def model(self) -> str:
        """The pinned model, as it is recorded with every verdict."""

    async def judge(self, criterion: str, trajectory: Trajectory, outcome: str) -> Judgement:
        """The verdict; every citation names a step of the trajectory. `outcome`: the user's aim."""


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
    """One gate per criterion, each judged by itself."""
    if judge is None:
        return all_unscored(brief, NO_MODEL)

    async def one(number: int, criterion: str) -> DimensionScore:
        said = await judge.judge(criterion, trajectory, brief.outcome)
        evaluator = f"{NAME} {judge.model}"
        if said.answered_by and said.answered_by != judge.model:
            evaluator += f" ({said.answered_by})"
        if said.passed is None:
            return unscored(dimension(number), evaluator, f"“{criterion}”: {said.rationale}")
        return gate(
            dimension(number),
            evaluator,
            passed=said.passed,
            value=float(said.passed),
            reason=f"“{criterion}”: {said.rationale}",
            steps=said.citations,
        )

    numbered = enumerate(brief.goals.criteria, start=1)
    return tuple(await asyncio.gather(*(one(number, text) for number, text in numbered)))
