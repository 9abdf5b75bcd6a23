"""What one check found, and how findings over many calls are put into words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from services.cli.conformance.model import Outcome
from services.cli.conformance.posting import Turn
from services.cli.conformance.recording import Seen


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    id: str
    outcome: Outcome
    seen: str


def passed(id: str, seen: str) -> Finding:
    return Finding(id, "passed", seen)


def failed(id: str, seen: str) -> Finding:
    return Finding(id, "failed", seen)


def not_applicable(id: str, why: str) -> Finding:
    return Finding(id, "not_applicable", why)


def of_calls(id: str, turns: Sequence[Turn], wrong: Callable[[Seen], str]) -> Finding:
    """A finding over every call: failed with what `wrong` says of some."""
    calls = [one for turn in turns for one in turn.run.calls]
    if not calls:
        return not_applicable(id, "no tool call was made")
    found = [problem for one in calls if (problem := wrong(one))]
    return failed(id, several(found)) if found else passed(id, f"{len(calls)} calls")


def several(items: Iterable[str]) -> str:
    """Each item once, the first three of them."""
    unique = list(dict.fromkeys(items))
    more = f" and {len(unique) - 3} more" if len(unique) > 3 else ""
    return "; ".join(unique[:3]) + more
