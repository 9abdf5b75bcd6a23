"""The difference between two trajectories in words: what is missing, nearest to what, what is
extra, and where the order diverges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from services.judge.matching.arguments import Rule
from services.judge.matching.calls import Call
from services.judge.matching.result import Candidate, Divergence, Match, Missing, Pair

MAX_EXAMINED = 30
"""Missing calls whose nearest candidate is looked for, and candidates per tool: a reader needs
the first few, and every pair of them is compared."""

MAX_MENTIONED = 5
"""Calls of one kind that the explanation mentions; the others are counted."""


def missing_of(
    actual: Sequence[Call],
    reference: Sequence[Call],
    pairs: Sequence[Pair],
    rule_of: Callable[[str], Rule],
) -> tuple[Missing, ...]:
    """The reference calls without a partner, each with its nearest candidate.

    Candidates are calls of the same tool. Those without a partner come first, each for one
    missing call only, the fewest differing arguments first; then those that have one.
    """
    holder = {pair.actual: pair.reference for pair in pairs}
    held = set(holder.values())
    indexes = [index for index in range(len(reference)) if index not in held]
    by_tool: dict[str, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for index, call in enumerate(actual):
        kinds = by_tool[call.tool]
        kind = kinds[index in holder]
        if len(kind) < MAX_EXAMINED:
            kind.append(index)

    def candidate(reference_index: int, index: int) -> Candidate:
        want = reference[reference_index]
        differences = rule_of(want.tool).differences(actual[index], want)
        return Candidate(index, actual[index], differences, holder.get(index))

    def distance(reference_index: int, found: Candidate) -> tuple[int, int, int, int]:
        away = abs(found.actual - reference_index)
        return len(found.differences), away, reference_index, found.actual

    examined = indexes[:MAX_EXAMINED]
    options = [
        (distance(want, found), want, found)
        for want in examined
        for found in (candidate(want, index) for index in by_tool[reference[want].tool][0])
    ]
    nearest: dict[int, Candidate] = {}
    used: set[int] = set()
    for _, want, found in sorted(options, key=lambda option: option[0]):
        if want not in nearest and found.actual not in used:
            nearest[want] = found
            used.add(found.actual)
    for want in examined:
        taken = [candidate(want, index) for index in by_tool[reference[want].tool][1]]
        if want not in nearest and taken:
            nearest[want] = min(taken, key=lambda found: distance(want, found))
    return tuple(Missing(index, reference[index], nearest.get(index)) for index in indexes)


def explain(match: Match, actual: Sequence[Call], reference: Sequence[Call]) -> Match:
    """The match with its explanation."""
    sentences = [_summary(match, len(actual), len(reference))]
    if match.divergence is not None:
        sentences.append(_diverged(match.divergence))
    if match.missing and match.mode != "subset":
        sentences += _some([_missed(missing) for missing in match.missing], "reference calls")
    if match.extra and match.mode != "superset":
        sentences += _some(
            [f"{_at(extra.actual, extra.call)} is not in the reference" for extra in match.extra],
            "calls",
        )
    return replace(match, explanation="; ".join(sentences) + ".")


def _summary(match: Match, actual: int, reference: int) -> str:
    paired = len(match.pairs)
    if match.mode == "subset":
        return f"subset: {paired} of {actual} calls are in the reference"
    if match.mode == "superset":
        return f"superset: {paired} of {reference} reference calls were made"
    if match.matched:
        order = "in order" if match.mode == "strict" else "in any order"
        return f"{match.mode}: the {reference} reference calls were made {order}, and no others"
    return f"{match.mode}: {paired} of {reference} reference calls were made, in {actual} calls"


def _diverged(divergence: Divergence) -> str:
    expected = " or ".join(str(call) for call in divergence.expected[:MAX_MENTIONED])
    found = str(divergence.found) if divergence.found else "no call"
    return (
        f"the order diverges at call {divergence.position + 1}: "
        f"expected {expected or 'no more calls'}, found {found}"
    )


def _missed(missing: Missing) -> str:
    text = f"reference call {missing.reference + 1}, {missing.call}, was not made"
    nearest = missing.nearest
    if nearest is None:
        return text
    differences = ", ".join(map(str, nearest.differences))
    where = _where(nearest.actual, nearest.call)
    if not differences:
        return f"{text} another time ({where} is the partner of reference call {_taken(nearest)})"
    return f"{text}; nearest is {where}, where {differences}"


def _taken(nearest: Candidate) -> int:
    return 0 if nearest.taken_by is None else nearest.taken_by + 1


def _at(index: int, call: Call) -> str:
    return f"{_where(index, call)}, {call},"


def _where(index: int, call: Call) -> str:
    return f"call {index + 1} ({call.label})" if call.label else f"call {index + 1}"


def _some(sentences: list[str], what: str) -> list[str]:
    rest = len(sentences) - MAX_MENTIONED
    return sentences[:MAX_MENTIONED] + ([f"and {rest} more {what}"] if rest > 0 else [])
