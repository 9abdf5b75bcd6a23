"""How evaluators put their findings: as a score with a reason and the steps it rests on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from schemas.briefs import JudgeBrief
from schemas.scores import DimensionScore
from services.judge.trajectory import Trajectory

Evaluator = Callable[[Trajectory, JudgeBrief], DimensionScore]

_LISTED = 3
_CITED = 20


@dataclass(frozen=True)
class Finding:
    """One thing that an evaluator looked at: whether it holds, in words, and where it shows."""

    holds: bool
    words: str
    steps: tuple[str, ...] = ()


def gate(
    dimension: str,
    evaluator: str,
    *,
    passed: bool,
    value: float,
    reason: str,
    steps: Iterable[str] = (),
) -> DimensionScore:
    """A gate that was scored."""
    return DimensionScore(
        dimension=dimension,
        value=value,
        passed=passed,
        reason=reason,
        citations=cited(steps),
        evaluator=evaluator,
    )


def gate_of(
    dimension: str, evaluator: str, findings: Sequence[Finding], *, when_all_hold: str
) -> DimensionScore:
    """A gate that passes when all findings hold; its value is the fraction that does.

    The citations are those of the failing findings, or of all when none fails.
    """
    failing = [finding for finding in findings if not finding.holds]
    return gate(
        dimension,
        evaluator,
        passed=not failing,
        value=(len(findings) - len(failing)) / len(findings),
        reason=listed([finding.words for finding in failing]) if failing else when_all_hold,
        steps=(step for finding in failing or findings for step in finding.steps),
    )


def not_applicable(
    dimension: str, evaluator: str, reason: str, kind: str = "gate"
) -> DimensionScore:
    """The question does not arise in this session."""
    return DimensionScore(
        dimension=dimension, kind=kind, status="not_applicable", reason=reason, evaluator=evaluator
    )


def unscored(dimension: str, evaluator: str, reason: str) -> DimensionScore:
    """A gate that nobody could score: neither passed nor failed, and never a pass."""
    return DimensionScore(
        dimension=dimension, status="unscored", reason=reason, evaluator=evaluator
    )


def listed(items: Sequence[str]) -> str:
    """The first three, and how many more."""
    more = len(items) - _LISTED
    return "; ".join(items[:_LISTED]) + (f"; and {more} more" if more > 0 else "")


def cited(steps: Iterable[str]) -> tuple[str, ...]:
    """Each step once, in the order given, at most twenty."""
    return tuple(dict.fromkeys(steps))[:_CITED]


def count(number: int, thing: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {thing}" + ("" if number == 1 else "s")
