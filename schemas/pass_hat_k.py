"""pass^k: how often k trials of one scenario would all pass."""

from __future__ import annotations

from fractions import Fraction
from math import comb

MAX_K = 32
"""pass^k is reported up to this k; a run with more trials than that has its first ones."""


def pass_hat_k(passed: int, sessions: int) -> tuple[float, ...]:
    """pass^k for k = 1, 2, ...: the chance that k trials drawn without replacement all passed.

    The unbiased estimator C(passed, k) / C(sessions, k) of tau-bench (Yao, Shinn, Razavi and
    Narasimhan 2024, arXiv:2406.12045), for one scenario.

    >>> pass_hat_k(2, 4)
    (0.5, 0.16666666666666666, 0.0, 0.0)
    """
    return tuple(
        float(Fraction(comb(passed, k), comb(sessions, k)))
        for k in range(1, min(sessions, MAX_K) + 1)
    )
