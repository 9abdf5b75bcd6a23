"""Maximum matching, against trying everything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.judge.matching.assignment import FREE, maximum_matching

pytestmark = pytest.mark.req("P07")
SIDE = 5
graphs = st.lists(
    st.sets(st.integers(0, SIDE - 1)).flatmap(lambda s: st.permutations(sorted(s))), max_size=SIDE
)


def largest(neighbours: Any, used: frozenset[int] = frozenset()) -> int:
    if not neighbours:
        return 0
    first, rest = neighbours[0], neighbours[1:]
    taking = [1 + largest(rest, used | {place}) for place in first if place not in used]
    return max([largest(rest, used), *taking])


@settings(derandomize=True, max_examples=400, deadline=None, database=None)
@given(graphs)
def test_it_is_a_matching_and_none_is_larger(neighbours: Any) -> None:
    partners = maximum_matching(neighbours, SIDE)
    pairs = [(left, right) for left, right in enumerate(partners) if right != FREE]
    assert all(right in neighbours[left] for left, right in pairs)
    assert len({right for _, right in pairs}) == len(pairs)
    assert len(pairs) == largest(neighbours)
    assert partners == maximum_matching(neighbours, SIDE)


def test_a_path_longer_than_the_recursion_limit_is_augmented() -> None:
    # 0 may have any, and every other prefers the one that its predecessor already has.
    length = 5000
    neighbours = [[left, left + 1] if left + 1 < length else [0] for left in range(length)]
    assert FREE not in maximum_matching(neighbours, length)


def test_a_dead_end_on_the_way_is_left_again() -> None:
    # 2 needs what 0 has; 0 first tries what 1 has, which has nothing else.
    assert maximum_matching([[2, 1, 4], [1], [2]], 5) == [4, 1, 2]


def test_everything_with_everything_is_quick() -> None:
    neighbours = [list(range(300)) for _ in range(300)]
    assert sorted(maximum_matching(neighbours, 300)) == list(range(300))


def test_nothing_is_matched_with_nothing() -> None:
    assert maximum_matching([], 0) == []
    assert maximum_matching([[], []], 3) == [FREE, FREE]
