"""Statistics that do not depend on the order in which values arrive, to the last bit.

Values are kept as a multiset (value to count). Sums are made exactly, in rationals, and rounded
once at the end, so however the values were split into bundles and merged, the result is the same.
Memory grows with distinct values, which are few for gates, turns and counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Summary:
    """Of a multiset of values; all zero when it is empty."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


def summary(values: Mapping[float, int]) -> Summary:
    """Mean, sample variance, extremes and nearest-rank quantiles of finite values.

    >>> summary({1.0: 2, 4.0: 1})
    Summary(count=3, mean=2.0, variance=3.0, minimum=1.0, maximum=4.0, p50=1.0, p90=4.0, p99=4.0)
    """
    count = sum(values.values())
    if not count:
        return Summary()
    total = sum((Fraction(value) * n for value, n in values.items()), Fraction())
    mean = total / count
    variance = Fraction()
    if count > 1:
        squares = sum((Fraction(value) ** 2 * n for value, n in values.items()), Fraction())
        variance = (squares - total * mean) / (count - 1)
    ordered = sorted(values.items())
    return Summary(
        count=count,
        mean=float(mean),
        variance=float(variance),
        minimum=ordered[0][0],
        maximum=ordered[-1][0],
        p50=nearest_rank(ordered, count, 50),
        p90=nearest_rank(ordered, count, 90),
        p99=nearest_rank(ordered, count, 99),
    )


def nearest_rank(ordered: list[tuple[float, int]], count: int, percent: int) -> float:
    """The smallest value that at least `percent` of the values do not exceed."""
    rank = -(-percent * count // 100)
    seen = 0
    for value, n in ordered:
        seen += n
        if seen >= rank:
            return value
    return ordered[-1][0]
