"""The judge's pure core: from a session's events and its brief to its scores.

`judge_session` is the whole of it. Everything is deterministic but the criteria, the quality
metrics and those assertions that score generated text, which ask a model where one is given.

When a session passed: every gate that applies passed; quality and measures have no say in it. One
failed gate makes it fail, whatever else is unscored; with none failed and one unscored nobody can
say (None). An invalid session is neither (see `validity`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from schemas.briefs import JudgeBrief
from schemas.pins import judge_pin
from schemas.scores import Dimension, DimensionScore, SessionScored
from schemas.trajectory import TrajectoryEvent
from services.judge.assertions.rating import ResponseJudge
from services.judge.evaluators import (
    GATES,
    MEASURES,
    QUALITY,
    assertions,
    criteria,
    foreign,
    quality,
)
from services.judge.evaluators.criteria import CriterionJudge
from services.judge.evaluators.quality import QualityJudge
from services.judge.evaluators.scoring import Evaluator, unscored
from services.judge.outcomes import MalformedBrief
from services.judge.timing import timing_of
from services.judge.trajectory import Trajectory, UnreadableTrajectory, read
from services.judge.validity import invalid_reason, spoilt_by

_NOT_JUDGED = "not judged, since the session is invalid"


class SessionJudge(CriterionJudge, QualityJudge, ResponseJudge, Protocol):
    """A model that judges whatever of a session needs one."""

    @property
    def pin(self) -> str:
        """The judge's version, its model, and how that is asked."""


async def judge_session(
    events: Iterable[TrajectoryEvent],
    brief: JudgeBrief,
    at_ms: int,
    llm: SessionJudge | None = None,
) -> SessionScored:
    """Every dimension of one ended session. `events` are in the order of the log.

    Nothing of an invalid session is put to the model; what needs one stays unscored.

    Raises:
        UnreadableTrajectory: start or end is missing, or the events are of several sessions.
    """
    events = tuple(events)
    trajectory = read(events)
    scores = score(trajectory, brief) + await foreign.evaluate_all(trajectory, brief)
    try:
        invalid = invalid_reason(trajectory, brief, scores, _failure_multiplier(trajectory))
    except UnreadableTrajectory as error:
        invalid = str(error)  # what was injected cannot be told from what was not
    if invalid:
        scores += criteria.all_unscored(brief, _NOT_JUDGED)
        scores += await assertions.evaluate_all(trajectory, brief, None, _NOT_JUDGED)
        scores += quality.all_unscored(llm.quality if llm else (), _NOT_JUDGED)
    else:
        judged = await asyncio.gather(
            criteria.evaluate_all(trajectory, brief, llm),
            assertions.evaluate_all(trajectory, brief, llm),
            quality.evaluate_all(trajectory, brief, llm),
        )
        scores += tuple(score for group in judged for score in group)
    return replace(_scored(trajectory, scores, invalid, at_ms, llm), timing=timing_of(events))


def score(trajectory: Trajectory, brief: JudgeBrief) -> tuple[DimensionScore, ...]:
    """All dimensions that never need a model."""
    gates = tuple(
        _guarded(dimension, name, evaluate, trajectory, brief)
        for dimension, (name, evaluate) in GATES.items()
    )
    by_rules = (evaluate(trajectory, brief) for evaluate in QUALITY)
    return (*gates, *by_rules, *MEASURES(trajectory, brief))


def cannot_judge(events: Iterable[TrajectoryEvent], reason: str, at_ms: int) -> SessionScored:
    """A session whose brief nobody could find: every gate is unscored for this reason.

    Raises:
        UnreadableTrajectory: start or end is missing, or the events are of several sessions.
    """
    events = tuple(events)
    trajectory = read(events)
    names = {dimension: name for dimension, (name, _) in GATES.items()}
    gates = tuple(unscored(dimension, name, reason) for dimension, name in names.items())
    whole = unscored(Dimension.CRITERIA, criteria.NAME, reason)
    scored = _scored(trajectory, (*gates, whole), spoilt_by(trajectory), at_ms, None)
    return replace(scored, timing=timing_of(events))


def passed(scores: Iterable[DimensionScore]) -> bool | None:
    """Whether all gates passed; None when none failed and one is unscored."""
    gates = [s for s in scores if s.kind == "gate" and s.status != "not_applicable"]
    if any(gate.passed is False for gate in gates):
        return False
    return None if any(gate.passed is None for gate in gates) else True


def _guarded(
    dimension: str, name: str, evaluate: Evaluator, trajectory: Trajectory, brief: JudgeBrief
) -> DimensionScore:
    # What the record or the scenario lacks is a reason not to score, never one to pass.
    try:
        return evaluate(trajectory, brief)
    except (UnreadableTrajectory, MalformedBrief) as error:
        return unscored(dimension, name, str(error))


def _scored(
    trajectory: Trajectory,
    scores: Iterable[DimensionScore],
    invalid: str,
    at_ms: int,
    llm: SessionJudge | None,
) -> SessionScored:
    start = trajectory.start
    ordered = tuple(sorted(scores, key=lambda score: score.dimension))
    return SessionScored(
        run_id=trajectory.run_id,
        session_id=trajectory.session_id,
        scenario_id=start.scenario_id,
        scenario_version=start.scenario_version,
        category=start.category,
        trial=start.trial,
        end_reason=trajectory.end.reason,
        valid=not invalid,
        invalid_reason=invalid,
        passed=None if invalid else passed(ordered),
        dimensions=ordered,
        judge=llm.pin if llm else judge_pin(),
        at_ms=at_ms,
        attempt=start.attempt,
    )


def _failure_multiplier(trajectory: Trajectory) -> float:
    """The run's factor on injected failures, which the session's start tells the tool proxy."""
    try:
        brief = json.loads(trajectory.start.tool_brief)
        return float(brief.get("failure_multiplier", 1.0))
    except (ValueError, TypeError, AttributeError) as error:
        raise UnreadableTrajectory(f"the tool brief cannot be read: {error}") from None
