"""What the sessions of a load scenario took together, in any order and any pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipelines.statistics import nearest_rank
from schemas.scores import LoadFigures, SessionScored

LATE_MS = 100
"""A session that starts later than planned by more than this has been kept waiting."""


@dataclass(slots=True)
class LoadAccumulator:
    """Some valid sessions of one load scenario, each added once."""

    turn_ms: Counter[int] = field(default_factory=Counter)
    turns: int = 0
    failed_turns: int = 0
    late: int = 0
    late_max_ms: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Planned start and end by trial."""

    def add(self, session: SessionScored) -> None:
        """Take a session; one that was played again had the agent for itself, and has no say."""
        timing = session.timing
        if timing is None or session.attempt:
            return
        self.turn_ms.update(timing.turn_ms)
        self.turns += timing.turns
        self.failed_turns += timing.failed_turns
        late_ms = max(0, timing.started_at_ms - timing.planned_at_ms)
        self.late += late_ms > LATE_MS
        self.late_max_ms = max(self.late_max_ms, late_ms)
        self.spans[session.trial] = (timing.planned_at_ms, timing.ended_at_ms)

    def merge(self, other: LoadAccumulator) -> None:
        self.turn_ms.update(other.turn_ms)
        self.turns += other.turns
        self.failed_turns += other.failed_turns
        self.late += other.late
        self.late_max_ms = max(self.late_max_ms, other.late_max_ms)
        self.spans.update(other.spans)

    def result(self, copies: int) -> LoadFigures | None:
        """The figures; `copies` sessions of consecutive trials were one repetition of the test."""
        if not self.spans:
            return None
        ordered: list[tuple[float, int]] = [
            (float(ms), n) for ms, n in sorted(self.turn_ms.items())
        ]
        count = self.turn_ms.total()
        p50, p95, p99 = (
            int(nearest_rank(ordered, count, percent)) if count else 0 for percent in (50, 95, 99)
        )
        return LoadFigures(
            sessions=len(self.spans),
            turns=self.turns,
            failed_turns=self.failed_turns,
            timed_turns=count,
            turn_p50_ms=p50,
            turn_p95_ms=p95,
            turn_p99_ms=p99,
            turn_max_ms=max(self.turn_ms, default=0),
            late_sessions=self.late,
            late_max_ms=self.late_max_ms,
            duration_ms=sum(_durations(self.spans.items(), max(1, copies))),
        )


def _durations(spans: Iterable[tuple[int, tuple[int, int]]], copies: int) -> Iterable[int]:
    repetitions: dict[int, tuple[int, int]] = {}
    for trial, (begin, end) in spans:
        first, last = repetitions.get(trial // copies, (begin, end))
        repetitions[trial // copies] = min(first, begin), max(last, end)
    return [max(0, last - first) for first, last in repetitions.values()]
