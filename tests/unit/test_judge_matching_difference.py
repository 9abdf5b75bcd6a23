"""The explained difference between two trajectories, and the bounds of matching."""

from __future__ import annotations

from typing import Any

import pytest

from services.judge.matching import Call, TooManyCalls, UnreadableMessages, match
from services.judge.matching.optimal import MAX_COMPARISONS
from tests.support.matching_strategies import MODES

pytestmark = pytest.mark.req("P07")


def calls(*specs: Any) -> list[Call]:
    return [Call(tool, arguments) for tool, arguments in specs]


ASKED = calls(("find", {"id": 7}), ("pay", {"id": 7, "amount": 12}), ("mail", {"to": "a"}))


def test_a_missing_call_names_its_nearest_candidate_and_what_differs() -> None:
    actual = calls(
        ("find", {"id": 7}), ("pay", {"id": 8, "amount": 9}), ("pay", {"id": 7, "amount": 10})
    )
    found = match(actual, ASKED, mode="superset")
    assert [missing.reference for missing in found.missing] == [1, 2]
    nearest = found.missing[0].nearest
    assert nearest is not None
    assert nearest.actual == 2
    difference = nearest.differences[0]
    assert (difference.argument, difference.actual, difference.expected) == ("amount", 10, 12)
    assert found.missing[1].nearest is None
    assert found.score == pytest.approx(1 / 3)
    assert found.explanation == (
        "superset: 1 of 3 reference calls were made; "
        "reference call 2, pay(id=7, amount=12), was not made; nearest is call 3, where "
        "amount is 10 instead of 12; "
        'reference call 3, mail(to="a"), was not made.'
    )


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ("exact", {"a": "differs", "b": "missing", "c": "unexpected"}),
        ("subset", {"a": "differs", "c": "unexpected"}),
        ("superset", {"a": "differs", "b": "missing"}),
    ],
)
def test_the_kinds_of_differences_that_count(arguments: Any, kinds: dict[str, str]) -> None:
    actual, reference = calls(("t", {"a": 1, "c": 1})), calls(("t", {"a": 2, "b": 1}))
    nearest = match(actual, reference, mode="superset", arguments=arguments).missing[0].nearest
    assert nearest is not None
    assert {one.argument: one.kind for one in nearest.differences} == kinds


def test_a_candidate_is_offered_to_one_missing_call_only() -> None:
    reference = calls(("pay", {"a": 1, "b": 1}), ("pay", {"a": 2, "b": 1}))
    actual = calls(("pay", {"a": 1, "b": 2}), ("pay", {"a": 2, "b": 2}))
    found = match(actual, reference, mode="superset")
    assert [missing.nearest and missing.nearest.actual for missing in found.missing] == [0, 1]


def test_a_call_made_too_seldom_names_the_one_that_was_made() -> None:
    found = match(calls(("get", {})), calls(("get", {}), ("get", {})), mode="superset")
    nearest = found.missing[0].nearest
    assert nearest is not None
    assert (nearest.taken_by, nearest.differences) == (0, ())
    assert "was not made another time (call 1 is the partner of reference call 1)" in (
        found.explanation
    )


def test_extra_calls_are_told_where_they_count() -> None:
    actual = [*ASKED, Call("wipe", {"all": True}, label="t4")]
    assert match(actual, ASKED, mode="superset").explanation == (
        "superset: 3 of 3 reference calls were made."
    )
    found = match(actual, ASKED, mode="subset")
    assert found.score == 0.75
    assert found.explanation == (
        "subset: 3 of 4 calls are in the reference; "
        "call 4 (t4), wipe(all=true), is not in the reference."
    )


def test_the_first_place_where_the_order_diverges() -> None:
    found = match([ASKED[0], ASKED[2], ASKED[1]], ASKED, mode="strict")
    assert (found.matched, found.missing, found.extra) == (False, (), ())
    assert found.score == pytest.approx(1 / 3)
    assert found.divergence is not None
    assert (found.divergence.position, found.divergence.expected) == (1, (ASKED[1],))
    assert found.divergence.found == ASKED[2]
    assert "the order diverges at call 2: expected pay(id=7, amount=12), found mail" in (
        found.explanation
    )


def test_a_trajectory_that_ends_early_or_late_diverges_at_its_end() -> None:
    early = match(ASKED[:2], ASKED, mode="strict").divergence
    assert early is not None
    assert (early.position, early.expected, early.found) == (2, (ASKED[2],), None)
    late = match(ASKED, ASKED[:2], mode="strict").divergence
    assert late is not None
    assert (late.position, late.expected, late.found) == (2, (), ASKED[2])


def test_nothing_expected_and_nothing_done_is_a_match() -> None:
    for mode in MODES:
        assert match([], None, mode=mode).score == 1.0
        assert match(ASKED, [], mode=mode).matched is (mode == "superset")


def test_long_explanations_are_cut_and_complete_as_data() -> None:
    reference = calls(*(("get", {"id": n}) for n in range(100)))
    found = match([], reference, mode="superset")
    assert len(found.missing) == 100
    assert found.explanation.endswith("and 95 more reference calls.")


# -- bounds


def test_ten_thousand_calls_are_matched_where_no_comparison_is_needed() -> None:
    many = calls(*(("get", {"id": n % 7}) for n in range(10_000)))
    for arguments in ("exact", "ignore"):
        assert match(many, many[::-1], mode="unordered", arguments=arguments).matched


def test_comparisons_are_bounded() -> None:
    side = int(MAX_COMPARISONS**0.5) + 1
    many = calls(*(("get", {}) for _ in range(side)))
    with pytest.raises(TooManyCalls, match="get: 1001 calls"):
        match(many, many, mode="unordered", arguments="subset")


def test_arguments_that_are_no_json_are_refused() -> None:
    with pytest.raises(UnreadableMessages, match="not JSON serializable"):
        match(calls(("get", {"x": object()})), calls(("get", {})), mode="strict")
