"""What is known of a run at a moment, and the word for each of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from schemas.runs import RunStatus

OTHER = "other"


class Known(StrEnum):
    """What is read of the records of a run's sessions."""

    NONE = "none"
    """The run's status alone tells."""
    SOME = "some"
    """Those from some time on."""
    ALL = "all"


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """A session that failed a gate or was spoilt. Ordered by time."""

    at_ms: int
    session_id: str
    scenario_id: str
    what: str
    """failed, or invalid."""
    dimension: str
    reason: str


@dataclass(frozen=True, slots=True)
class CategoryFigures:
    """Sessions of one category. passed + failed + unscored + invalid <= ended <= started.

    `started` and `active` are None where the sessions' beginnings were not read.
    """

    category: str
    planned: int
    started: int | None
    ended: int
    passed: int
    failed: int
    unscored: int
    invalid: int

    @property
    def active(self) -> int | None:
        return None if self.started is None else self.started - self.ended

    @property
    def judged(self) -> int:
        """Sessions whose outcome is known here."""
        return self.passed + self.failed + self.unscored + self.invalid


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run: the sums of its categories, rates, time left, and the latest failures.

    A session that was played again counts once, as what it was played last. Rates are None while
    they are not known, and so is `left_s`: seconds until the last session is judged, estimated.
    """

    run_id: str
    state: str
    """As in RunStatus; empty before the first."""
    verdict: str
    """Empty before there is one."""
    suite: str
    agent: str
    planned: int
    started: int
    ended: int
    scored: int
    lost: int
    retried: int
    categories: tuple[CategoryFigures, ...]
    reasons: tuple[tuple[str, int], ...]
    """Ended sessions by reason, most first."""
    sessions_per_s: float | None
    turns_per_s: float | None
    elapsed_s: float | None
    left_s: float | None
    failures: tuple[Failure, ...]
    """The latest `fold.MAX_FAILURES`, newest first."""
    known: Known
    has_more: bool
    """The run has more sessions than are told apart: of the others only the status knows."""

    @property
    def active(self) -> int:
        return self.started - self.ended

    @property
    def passed(self) -> int:
        return sum(one.passed for one in self.categories)

    @property
    def failed(self) -> int:
        return sum(one.failed for one in self.categories)

    @property
    def unscored(self) -> int:
        return sum(one.unscored for one in self.categories)

    @property
    def invalid(self) -> int:
        return sum(one.invalid for one in self.categories)

    @property
    def outcomes_missing(self) -> int:
        """Judged sessions whose outcome was not read, because reading began after them."""
        return self.scored - self.passed - self.failed - self.unscored - self.invalid


def planned_by_category(status: RunStatus) -> dict[str, int]:
    """Planned sessions of each category, by name of the category."""
    counts: Counter[str] = Counter()
    for scenario, planned in status.scenario_plan.items():
        counts[status.scenario_categories.get(scenario, OTHER)] += planned
    return dict(sorted(counts.items()))
