"""What the doctor asks and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

C = TypeVar("C")


class Outcome(StrEnum):
    """How a check went. Only `failed` is an error of the whole."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """A check: what must be so, and what to do where it is not, as the documentation has it."""

    id: str
    expected: str
    mend: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a check.

    Attributes:
        detail: What was found; the reason where it was skipped.
        mend: What to do about it; empty where nothing is to be done.
        lines: More to tell, each on a line of its own.
    """

    check: str
    outcome: Outcome
    detail: str
    mend: str = ""
    lines: tuple[str, ...] = ()


Tell = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class Step(Generic[C]):
    """Something that is done once and settles one or more checks.

    Attributes:
        checks: The checks it settles. Those that `run` tells nothing of are skipped.
        run: Does it, given the context, and tells each finding as soon as it has it. What it may
            raise is `Settled`; anything else is reported as a fault of the doctor.
        needs: Checks that must have gone well, warnings allowed, or this is skipped. Checks that
            were never asked for are no obstacle.
        timeout_s: Longer than `run` should need by its own bounds.
    """

    checks: tuple[str, ...]
    run: Callable[[C, Tell], Awaitable[None]]
    needs: tuple[str, ...] = ()
    timeout_s: float = 60.0


class Settled(Exception):
    """A step came to its end early, with this finding."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.check)


def ok(check: str, detail: str, *lines: str) -> Finding:
    return Finding(check, Outcome.OK, detail, "", lines)


def warning(check: str, detail: str, mend: str, *lines: str) -> Finding:
    return Finding(check, Outcome.WARNING, detail, mend, lines)


def failed(check: str, detail: str, mend: str, *lines: str) -> Finding:
    return Finding(check, Outcome.FAILED, detail, mend, lines)


def skipped(check: str, reason: str) -> Finding:
    return Finding(check, Outcome.SKIPPED, reason)
