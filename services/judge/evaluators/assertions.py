"""Assertions over the events of an agent's own runtime (`goals.assertions`).

This version cannot evaluate them. A scenario that has some gets one unscored gate, so that none of
its sessions passes on the strength of checks that nobody made.
"""

from __future__ import annotations

from schemas.briefs import JudgeBrief
from schemas.scores import DimensionScore
from services.judge.evaluators.scoring import count, unscored

NAME = "assertions/0"
DIMENSION = "assertions"


def evaluate_all(brief: JudgeBrief) -> tuple[DimensionScore, ...]:
    """One unscored gate where the scenario has assertions, else none."""
    number = len(brief.goals.assertions)
    if not number:
        return ()
    reason = f"{count(number, 'assertion')}: this version cannot evaluate assertions"
    return (unscored(DIMENSION, NAME, reason),)
