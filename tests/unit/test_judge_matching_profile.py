"""The profile `windtunnel`: as many pairs as there can be."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.judge.matching import (
    Call,
    InvalidOptions,
    Match,
    match,
)
from tests.support.matching_strategies import (
    ARGUMENTS_MODES,
    MODES,
    openai,
    ours,
    step_pairs,
    theirs,
)

pytestmark = pytest.mark.req("P07")
FIXED = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def calls(*specs: Any) -> list[Call]:
    return [Call(tool, arguments) for tool, arguments in specs]


# -- against trying everything


def _fits(actual: Any, reference: Any, arguments: str) -> bool:
    """The definition, written once more: JSON equality of top-level arguments."""

    def same(left: Any, right: Any) -> bool:
        if isinstance(left, bool) != isinstance(right, bool):
            return False
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and all(map(same, left, right))
        if isinstance(left, dict) and isinstance(right, dict):
            return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
        return bool(left == right)

    (tool, ours), (other, theirs) = actual, reference
    if tool != other:
        return False
    small, large = (ours, theirs) if arguments == "subset" else (theirs, ours)
    included = all(name in large and same(large[name], small[name]) for name in small)
    return arguments == "ignore" or (
        included and (arguments != "exact" or len(large) == len(small))
    )


def _most_pairs(actual: Any, reference: Any, arguments: str) -> int:
    few, many = sorted((actual, reference), key=len)
    turned = few is not actual
    best = 0
    for chosen in permutations(many, len(few)):
        pairs = zip(chosen, few, strict=True) if turned else zip(few, chosen, strict=True)
        best = max(best, sum(_fits(one, other, arguments) for one, other in pairs))
    return best


def test_the_verdict_is_that_of_trying_every_pairing() -> None:
    found = {True: 0, False: 0}

    @settings(FIXED, max_examples=250)
    @given(step_pairs(), st.sampled_from(["subset", "superset", "exact", "ignore"]))
    def compare(pair: Any, arguments: Any) -> None:
        actual, reference = ([call for step in side for call in step][:5] for side in pair)
        most = _most_pairs(actual, reference, arguments)
        same = all(_fits(a, r, arguments) for a, r in zip(actual, reference, strict=False))
        expected = {
            "strict": len(actual) == len(reference) and same,
            "unordered": len(actual) == len(reference) == most,
            "subset": most == len(actual),
            "superset": most == len(reference),
        }
        for mode in MODES:
            one = match(calls(*actual), calls(*reference), mode=mode, arguments=arguments)
            assert one.matched is expected[mode], (mode, one)
            _check_figures(one, len(actual), len(reference))
            assert one.divergence is None or mode == "strict"
            if mode != "strict" or not one.matched:
                assert len(one.pairs) == most
            found[one.matched] += 1

    compare()
    assert min(found.values()) > 200, found


def _check_figures(found: Match, actual: int, reference: int) -> None:
    assert (found.score == 1.0) is found.matched
    assert 0.0 <= found.score <= 1.0
    taken = [pair.actual for pair in found.pairs] + [extra.actual for extra in found.extra]
    assert sorted(taken) == list(range(actual))
    wanted = [pair.reference for pair in found.pairs] + [lost.reference for lost in found.missing]
    assert sorted(wanted) == list(range(reference))
    for missing in found.missing:
        # What keeps a free candidate away is always named.
        if missing.nearest is not None and missing.nearest.taken_by is None:
            assert missing.nearest.differences
    assert found.explanation.endswith(".")


def test_what_openevals_accepts_is_accepted() -> None:
    """Greedy pairing finds no match that optimal pairing does not. The values that Python and
    JSON compare differently do not occur in these."""
    accepted = 0

    @settings(FIXED, max_examples=200)
    @given(step_pairs(), st.sampled_from(ARGUMENTS_MODES))
    def compare(pair: Any, arguments: str) -> None:
        nonlocal accepted
        texts = [
            [[(t, {k: repr(v) for k, v in a.items()}) for t, a in step] for step in side]
            for side in pair
        ]
        actual, reference = map(openai, texts)
        for mode in MODES:
            if theirs("openevals-0.2.2", actual, reference, mode, arguments, None) is True:
                assert ours("windtunnel", actual, reference, mode, arguments, None) is True
                accepted += 1

    # `ours` wants a score of 0 or 1, which is what an accepted trajectory has.
    compare()
    assert accepted > 200


def test_swapping_sides_swaps_the_modes() -> None:
    swapped = {"subset": "superset", "superset": "subset"}

    @settings(FIXED, max_examples=150)
    @given(step_pairs(), st.sampled_from(ARGUMENTS_MODES))
    def compare(pair: Any, arguments: Any) -> None:
        actual, reference = (calls(*(c for step in side for c in step)) for side in pair)
        other: Any = swapped.get(arguments, arguments)
        for mode in MODES:
            turned: Any = swapped.get(mode, mode)
            one = match(actual, reference, mode=mode, arguments=arguments)
            two = match(reference, actual, mode=turned, arguments=other)
            assert (one.matched, one.score) == (two.matched, two.score)

    compare()


# -- modes and arguments by example


def test_a_call_expected_twice_has_to_be_made_twice() -> None:
    once, twice = calls(("get", {})), calls(("get", {}), ("get", {}))
    assert not match(once, twice, mode="superset").matched
    assert match(twice, once, mode="superset").matched
    assert match(once, twice, mode="subset").matched


def test_calls_requested_together_have_no_order_and_their_places_do() -> None:
    together = [Call("a", {}, group=1), Call("b", {}, group=1), Call("c", {}, group=2)]
    assert match(calls(("b", {}), ("a", {}), ("c", {})), together, mode="strict").matched
    assert not match(calls(("b", {}), ("c", {}), ("a", {})), together, mode="strict").matched
    part = match(calls(("a", {}), ("x", {}), ("c", {})), together, mode="strict")
    assert part.divergence is not None
    assert (part.divergence.position, part.divergence.expected) == (1, (together[1],))
    assert (part.matched, part.score) == (False, pytest.approx(2 / 3))
    # The order in which an agent's message lists them does not count, that of the reference does.
    apart = calls(("a", {}), ("b", {}), ("c", {}))
    assert not match([together[1], together[0], together[2]], apart, mode="strict").matched


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1, 1.0, True), (1, True, False), (0, False, False), (0, -0.0, True), (None, {}, False),
        ([1, {"a": 2.0}], [1.0, {"a": 2}], True), ([1], [True], False), ("1", 1, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True), (float("nan"), float("nan"), True),
        (10**30, 1e30, False), (2**60, float(2**60), True),
    ],
)  # fmt: skip
def test_values_are_compared_as_json(actual: Any, expected: Any, same: bool) -> None:
    for arguments in ("exact", "subset", "superset"):
        one, other = calls(("t", {"x": actual})), calls(("t", {"x": expected}))
        assert match(one, other, mode="strict", arguments=arguments).matched is same


def test_arguments_that_are_no_object_are_compared_whole() -> None:
    for arguments in ("exact", "subset", "superset"):
        assert match(
            calls(("t", "{")), calls(("t", "{")), mode="strict", arguments=arguments
        ).matched
        found = match(calls(("t", "{")), calls(("t", {})), mode="strict", arguments=arguments)
        assert "the whole of the arguments is" in found.explanation
    assert not match(
        calls(("t", "{")), calls(("t", {"x": 1})), mode="strict", overrides={"t": ["x"]}
    ).matched


@pytest.mark.parametrize(
    ("override", "matched", "words"),
    [
        ("ignore", True, ""),
        ("subset", True, ""),
        ("superset", False, "address is missing"),
        (["id"], True, ""),
        (["address.city"], False, 'address.city is missing (expected "Oslo")'),
        (["id", "street"], False, "street should not be there (is null)"),
        (lambda actual, expected: actual["id"] == expected["id"], True, ""),
        (lambda actual, expected: False, False, "the tool's own matcher says"),
    ],
)
def test_overrides_hold_for_their_tool_alone(override: Any, matched: bool, words: str) -> None:
    actual = calls(("get", {"id": 7}), ("other", {"id": 7}))
    reference = calls(("get", {"id": 7, "address": {"city": "Oslo"}}), ("other", {"id": 7}))
    found = match(actual, reference, mode="unordered", overrides={"get": override})
    assert found.matched is matched
    assert words in found.explanation
    other = calls(("get", {"id": 7}), ("other", {"id": 8}))
    assert not match(other, reference, mode="unordered", overrides={"get": override}).matched


@pytest.mark.parametrize("override", ["exakt", "", None, [], [""], [3], 7, {"x"}])
def test_an_override_that_is_none_is_an_error_even_if_its_tool_is_not_called(override: Any) -> None:
    with pytest.raises(InvalidOptions, match="override of get"):
        match([], [], mode="strict", overrides={"get": override})
