"""What several samples of one verdict come to.

The majority's verdict stands when at least a given share of *all* samples that were asked for gave
it: a sample without a usable answer agrees with nobody. Otherwise the judges disagree, and that is
no verdict. Half against half never is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from services.judge.evaluators.criteria import Judgement
from services.judge.evaluators.scoring import count

Outcome = Literal["unanimous", "majority", "disagree", "no_verdict"]

_QUOTED = 200


def majority(votes: Sequence[Judgement], agreement: float) -> tuple[Judgement, Outcome]:
    """The verdict of several samples, and how it came about.

    Its rationale and citations are those of the first sample on the winning side, its value the
    share of verdicts that say *pass*.
    """
    if len(votes) == 1:
        only = votes[0]
        return only, "no_verdict" if only.passed is None else "unanimous"
    sides = {side: [v for v in votes if v.passed is side] for side in (True, False)}
    passing, failing = len(sides[True]), len(sides[False])
    given = passing + failing
    if not given:
        return votes[0], "no_verdict"
    value = passing / given
    winning = passing > failing
    most = max(passing, failing)
    flips = flipped(votes)
    order = f", {count(flips, 'pair')} shown in opposite order contradicting" if flips else ""
    tally = f"{passing} of {len(votes)} samples say pass, {failing} fail"
    if passing == failing or most < agreement * len(votes):
        words = [f"the judges disagree: {tally}{order}; {agreement:g} have to agree"]
        words += [f"{name}: {_quoted(sides[side])}" for side, name in _SIDES if sides[side]]
        if given < len(votes):
            missing = next(vote.rationale for vote in votes if vote.passed is None)
            words.append(f"no verdict: {missing}")
        return Judgement(passed=None, rationale="; ".join(words), value=value), "disagree"
    first = sides[winning][0]
    rationale = f"{first.rationale} ({most} of {len(votes)} samples agree)"
    outcome: Outcome = "unanimous" if most == len(votes) else "majority"
    return replace(first, rationale=rationale, value=value), outcome


def pairs(votes: Sequence[Judgement]) -> list[tuple[Judgement, Judgement]]:
    """Samples that saw everything in opposite order, where both gave a verdict."""
    both = zip(votes[::2], votes[1::2], strict=False)
    return [(a, b) for a, b in both if a.passed is not None and b.passed is not None]


def flipped(votes: Sequence[Judgement]) -> int:
    """How many such pairs contradict themselves."""
    return sum(a.passed is not b.passed for a, b in pairs(votes))


_SIDES = ((True, "pass"), (False, "fail"))


def _quoted(votes: Sequence[Judgement]) -> str:
    text = votes[0].rationale
    return f"“{text if len(text) <= _QUOTED else text[: _QUOTED - 1] + '…'}”"
