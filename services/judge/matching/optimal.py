"""The profile `windtunnel`: calls are paired so that as many as possible find a partner.

Only calls count, not the messages around them. `strict` compares position by position; calls
that one reference message requests together may come in any order in their places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

from services.judge.matching.arguments import Rule
from services.judge.matching.assignment import FREE, maximum_matching
from services.judge.matching.calls import Call
from services.judge.matching.errors import TooManyCalls
from services.judge.matching.explain import explain, missing_of
from services.judge.matching.result import Divergence, Extra, Match, Pair

MAX_COMPARISONS = 1_000_000
"""Of two calls of one tool, where every one must be compared with every other: about a second.
`exact`, `ignore` and lists of names need no comparisons and have no bound."""


def match_calls(
    actual: Sequence[Call], reference: Sequence[Call], mode: str, rule_of: Callable[[str], Rule]
) -> Match:
    """Match calls with optimal assignment.

    Raises:
        TooManyCalls: more than MAX_COMPARISONS would be needed for one tool.
        MatcherFailed: a function given as an override raised.
        UnreadableMessages: arguments are no JSON value.
    """
    everywhere = range(len(actual)), range(len(reference))
    divergence = None
    if mode == "strict":
        pairs, divergence = _in_place(actual, reference, rule_of)
        score = _share(len(pairs), max(len(actual), len(reference)))
        if divergence is not None:
            pairs = _paired(actual, reference, *everywhere, rule_of)
    else:
        pairs = _paired(actual, reference, *everywhere, rule_of)
        whole = {"subset": len(actual), "superset": len(reference)}
        score = _share(len(pairs), whole.get(mode, max(len(actual), len(reference))))
    paired = {pair.actual for pair in pairs}
    match = Match(
        matched=divergence is None and score == 1.0,
        score=score,
        explanation="",
        pairs=pairs,
        missing=missing_of(actual, reference, pairs, rule_of),
        extra=tuple(Extra(index, call) for index, call in enumerate(actual) if index not in paired),
        divergence=divergence,
        mode=mode,
    )
    return explain(match, actual, reference)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def _in_place(
    actual: Sequence[Call], reference: Sequence[Call], rule_of: Callable[[str], Rule]
) -> tuple[tuple[Pair, ...], Divergence | None]:
    """The pairs that stand where they should, and the first place where none does."""
    pairs: list[Pair] = []
    divergence: Divergence | None = None
    start = 0
    for size in _group_sizes(reference):
        places = range(start, min(start + size, len(actual)))
        expected = range(start, start + size)
        found = _paired(actual, reference, places, expected, rule_of)
        pairs.extend(found)
        if len(found) < size and divergence is None:
            used = {pair.actual for pair in found}
            position = next((place for place in places if place not in used), len(actual))
            filled = {pair.reference for pair in found}
            wanted = tuple(reference[index] for index in expected if index not in filled)
            call = actual[position] if position < len(actual) else None
            divergence = Divergence(position, wanted, call)
        start += size
    if divergence is None and len(actual) > start:
        divergence = Divergence(start, (), actual[start])
    return tuple(pairs), divergence


def _group_sizes(reference: Sequence[Call]) -> list[int]:
    keys = [
        ("alone", i) if c.group is None else ("group", c.group) for i, c in enumerate(reference)
    ]
    return [len(list(group)) for _, group in groupby(keys)]


def _paired(
    actual: Sequence[Call],
    reference: Sequence[Call],
    actual_places: range,
    reference_places: range,
    rule_of: Callable[[str], Rule],
) -> tuple[Pair, ...]:
    """As many pairs of fitting calls as there can be, in the order of the reference."""
    ours: dict[str, list[int]] = defaultdict(list)
    theirs: dict[str, list[int]] = defaultdict(list)
    for index in actual_places:
        ours[actual[index].tool].append(index)
    for index in reference_places:
        theirs[reference[index].tool].append(index)
    pairs: list[Pair] = []
    for tool, indexes in theirs.items():
        rule = rule_of(tool)
        pair = _equal if rule.is_equivalence else _fitting
        pairs.extend(pair(actual, reference, ours.get(tool, []), indexes, rule))
    return tuple(sorted(pairs, key=lambda pair: pair.reference))


def _equal(
    actual: Sequence[Call],
    reference: Sequence[Call],
    ours: list[int],
    theirs: list[int],
    rule: Rule,
) -> list[Pair]:
    """First with first, second with second, among calls with one key; that is a maximum."""
    waiting: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in reversed(ours):
        key = rule.key(actual[index])
        if key is not None:
            waiting[key].append(index)
    pairs: list[Pair] = []
    for index in theirs:
        key = rule.key(reference[index])
        if key is not None and waiting.get(key):
            pairs.append(Pair(waiting[key].pop(), index))
    return pairs


def _fitting(
    actual: Sequence[Call],
    reference: Sequence[Call],
    ours: list[int],
    theirs: list[int],
    rule: Rule,
) -> list[Pair]:
    if len(ours) * len(theirs) > MAX_COMPARISONS:
        raise TooManyCalls(
            f"{reference[theirs[0]].tool}: {len(ours)} calls and {len(theirs)} reference calls "
            f"need more than {MAX_COMPARISONS} comparisons; compare exactly or by names"
        )
    neighbours: list[list[int]] = []
    for number, wanted in enumerate(theirs):
        fitting = [
            place for place, index in enumerate(ours) if rule.fits(actual[index], reference[wanted])
        ]
        # Near places first, so that calls which could go either way keep their order.
        neighbours.append(sorted(fitting, key=partial(_away, number)))
    partners = maximum_matching(neighbours, len(ours))
    return [
        Pair(ours[partner], theirs[number])
        for number, partner in enumerate(partners)
        if partner != FREE
    ]


def _away(number: int, place: int) -> tuple[int, int]:
    return abs(place - number), place
