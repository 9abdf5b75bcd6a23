"""Maximum matching: as many pairs as there can be when not everything fits everything.

Taking the first partner that fits, as greedy matching does, can use up the only partner of a
later one. The algorithm is that of J. E. Hopcroft and R. M. Karp, "An n^5/2 algorithm for
maximum matchings in bipartite graphs", SIAM Journal on Computing 2(4), 1973: in each phase,
augment along a maximal set of disjoint shortest paths; O(E * sqrt(V)).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

FREE = -1
"""In a matching: has no partner."""


def maximum_matching(neighbours: Sequence[Sequence[int]], right: int) -> list[int]:
    """The partner of every left vertex, or FREE; as few as possible are free.

    Deterministic. Where there is a choice, earlier neighbours are preferred.

    Args:
        neighbours: for each left vertex, the right vertices it may be paired with, each once.
        right: how many right vertices there are; they are 0 .. right - 1.
    """
    partner = [FREE] * len(neighbours)
    partner_of_right = [FREE] * right
    while True:
        layer = _layers(neighbours, partner, partner_of_right)
        remaining = [iter(options) for options in neighbours]
        grew = False
        for start in range(len(neighbours)):
            if partner[start] == FREE and _augment(
                start, remaining, layer, partner, partner_of_right
            ):
                grew = True
        if not grew:
            return partner


def _layers(
    neighbours: Sequence[Sequence[int]], partner: list[int], partner_of_right: list[int]
) -> list[int]:
    """Each left vertex's distance from a free one along alternating paths, -1: not reached."""
    layer = [0 if mate == FREE else -1 for mate in partner]
    queue = deque(vertex for vertex, mate in enumerate(partner) if mate == FREE)
    while queue:
        vertex = queue.popleft()
        for option in neighbours[vertex]:
            holder = partner_of_right[option]
            if holder != FREE and layer[holder] < 0:
                layer[holder] = layer[vertex] + 1
                queue.append(holder)
    return layer


def _augment(
    start: int,
    remaining: Sequence[Iterator[int]],
    layer: list[int],
    partner: list[int],
    partner_of_right: list[int],
) -> bool:
    """Find one shortest augmenting path from a free vertex, and swap along it.

    A loop with its own stack: a path can be longer than Python's recursion allows. Options that
    led nowhere are used up in `remaining` and not tried again in this phase.
    """
    path: list[tuple[int, int]] = []
    vertex = start
    while True:
        for option in remaining[vertex]:
            holder = partner_of_right[option]
            if holder == FREE:
                path.append((vertex, option))
                for left, chosen in path:
                    partner[left], partner_of_right[chosen] = chosen, left
                return True
            if layer[holder] == layer[vertex] + 1:
                path.append((vertex, option))
                vertex = holder
                break
        else:
            if not path:
                return False
            vertex, _ = path.pop()
