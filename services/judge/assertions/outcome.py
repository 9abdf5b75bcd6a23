"""What became of one assertion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether an assertion holds. The last two are neither a pass nor a fail."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_APPLICABLE = "not applicable"
    """The session cannot show it, such as a slot where the agent reports no slots."""
    UNSCORED = "unscored"
    """It could be shown, but was not: there is no model, or the assertion is malformed."""


@dataclass(frozen=True)
class Outcome:
    """A verdict, why, and the steps that it rests on."""

    verdict: Verdict
    words: str
    steps: tuple[str, ...] = ()
    model: str = ""
    """Who scored it, where a model did."""

    @property
    def decided(self) -> bool:
        return self.verdict in (Verdict.HOLDS, Verdict.FAILS)


def holds(words: str, steps: Iterable[str] = ()) -> Outcome:
    return Outcome(Verdict.HOLDS, words, tuple(steps))


def fails(words: str, steps: Iterable[str] = ()) -> Outcome:
    return Outcome(Verdict.FAILS, words, tuple(steps))


def not_applicable(words: str, steps: Iterable[str] = ()) -> Outcome:
    return Outcome(Verdict.NOT_APPLICABLE, words, tuple(steps))


def unscored(words: str, steps: Iterable[str] = ()) -> Outcome:
    return Outcome(Verdict.UNSCORED, words, tuple(steps))


def missing(words: str, blind: str, steps: Iterable[str] = ()) -> Outcome:
    """Something that had to be there is not: a failure, unless nobody could have seen it."""
    return not_applicable(f"{words}, but {blind}", steps) if blind else fails(words, steps)


def absent(words: str, blind: str) -> Outcome:
    """Something that must not be there is not: it holds, unless nobody could have seen it."""
    return not_applicable(f"{words}, but {blind}") if blind else holds(words)


def all_of(parts: Iterable[Outcome]) -> Outcome:
    """Several outcomes that must all hold, as one: a failure counts first, then what is open."""
    return _first(parts, (Verdict.FAILS, Verdict.UNSCORED, Verdict.NOT_APPLICABLE, Verdict.HOLDS))


def any_of(parts: Iterable[Outcome]) -> Outcome:
    """Several outcomes of which one must hold, as one: what is open counts before a failure."""
    return _first(parts, (Verdict.HOLDS, Verdict.UNSCORED, Verdict.NOT_APPLICABLE, Verdict.FAILS))


def _first(parts: Iterable[Outcome], order: tuple[Verdict, ...]) -> Outcome:
    parts = list(parts)
    verdict = min((part.verdict for part in parts), key=order.index)
    telling = [part for part in parts if part.verdict is verdict]
    return Outcome(
        verdict,
        "; ".join(part.words for part in telling),
        tuple(dict.fromkeys(step for part in telling for step in part.steps)),
        next((part.model for part in telling if part.model), ""),
    )
