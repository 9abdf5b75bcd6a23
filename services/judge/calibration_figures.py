"""How far two raters agree: accuracy and Cohen's kappa, each with its 95 % interval.

Kappa is agreement beyond what chance would bring about (Cohen 1960); on a scale of ratings a near
miss weighs less than a far one, by the square of the distance (Cohen 1968). Its standard error is
that of Fleiss, Cohen and Everitt (1969, Psychological Bulletin 72, 323-327), which holds for large
samples. The interval of an accuracy is Wilson's (1927), which holds for small ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

_Z = 1.959963984540054
"""The normal distribution's quantile of a two-sided 95 % interval."""

Table = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Figure:
    """A figure from -1 to 1 and its 95 % interval."""

    value: float
    low: float
    high: float


def tabulated(pairs: Iterable[tuple[str, str]], categories: Sequence[str]) -> Table:
    """How often each label (rows) met each verdict (columns)."""
    place = {category: number for number, category in enumerate(categories)}
    counts = [[0] * len(categories) for _ in categories]
    for label, verdict in pairs:
        counts[place[label]][place[verdict]] += 1
    return tuple(map(tuple, counts))


def accuracy(table: Table) -> Figure | None:
    """The share of equal ratings; None where there is no rating."""
    n = sum(map(sum, table))
    if not n:
        return None
    share = sum(row[number] for number, row in enumerate(table)) / n
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return Figure(share, max(0.0, centre - half), min(1.0, centre + half))


def kappa(table: Table, *, weighted: bool = False) -> Figure | None:
    """Cohen's kappa, with squared weights for ratings on a scale.

    None where chance alone agrees always, as when everything is rated the same: agreement beyond
    chance is then not defined.
    """
    n = sum(map(sum, table))
    size = len(table)
    if not n:
        return None
    p = [[count / n for count in row] for row in table]
    rows = [sum(row) for row in p]
    columns = [sum(row[j] for row in p) for j in range(size)]

    def weight(i: int, j: int) -> float:
        return 1 - ((i - j) / (size - 1)) ** 2 if weighted else float(i == j)

    w = [[weight(i, j) for j in range(size)] for i in range(size)]
    cells = [(i, j) for i in range(size) for j in range(size)]
    observed = sum(w[i][j] * p[i][j] for i, j in cells)
    expected = sum(w[i][j] * rows[i] * columns[j] for i, j in cells)
    if 1 - expected < 1e-12:
        return None
    by_row = [sum(w[i][j] * columns[j] for j in range(size)) for i in range(size)]
    by_column = [sum(w[i][j] * rows[i] for i in range(size)) for j in range(size)]
    spread = sum(
        p[i][j] * (w[i][j] * (1 - expected) - (by_row[i] + by_column[j]) * (1 - observed)) ** 2
        for i, j in cells
    )
    spread -= (observed * expected - 2 * expected + observed) ** 2
    error = sqrt(max(0.0, spread) / n) / (1 - expected) ** 2
    value = (observed - expected) / (1 - expected)
    return Figure(value, max(-1.0, value - _Z * error), min(1.0, value + _Z * error))
