"""Exact binomial intervals, without a statistics package."""

from __future__ import annotations

import math
from collections.abc import Callable


def log_term(n: int, p: float, k: int) -> float:
    """The logarithm of the chance of exactly k of n; 0 < p < 1."""
    combinations = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return combinations + k * math.log(p) + (n - k) * math.log1p(-p)


def at_most(n: int, p: float, k: int) -> float:
    """The chance of k of n or fewer."""
    if p <= 0 or k >= n:
        return 1.0
    if p >= 1 or k < 0:
        return 0.0
    return min(1.0, math.fsum(math.exp(log_term(n, p, i)) for i in range(k + 1)))


def clopper_pearson(n: int, k: int, alpha: float) -> tuple[float, float]:
    """The exact interval of rates under which k of n is not rarer than alpha, both sides together.

    >>> low, high = clopper_pearson(10, 0, 0.05)
    >>> low, round(high, 4)
    (0.0, 0.3085)
    """
    low = 0.0 if k == 0 else _crossing(lambda p: 1 - at_most(n, p, k - 1) < alpha / 2)
    high = 1.0 if k == n else _crossing(lambda p: at_most(n, p, k) > alpha / 2)
    return low, high


def bounds(n: int, p: float, alpha: float) -> tuple[int, int]:
    """The least and the greatest count of n that are not rarer than alpha, both sides together."""
    if p <= 0 or p >= 1:
        return (n, n) if p >= 1 else (0, 0)
    below, least = 0.0, 0
    while below + math.exp(log_term(n, p, least)) <= alpha / 2:
        below += math.exp(log_term(n, p, least))
        least += 1
    above, most = 0.0, n
    while above + math.exp(log_term(n, p, most)) <= alpha / 2:
        above += math.exp(log_term(n, p, most))
        most -= 1
    return least, most


def _crossing(holds: Callable[[float], bool]) -> float:
    """Where a condition that holds for small rates stops holding, to 1e-9."""
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2
