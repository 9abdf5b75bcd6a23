"""Stretches of the log as a Beam source.

Reading is a splittable DoFn over offsets, so a distributed runner may split a stretch further and
move its rest to another worker. Nothing joins a consumer group and nothing commits: what is read
is fixed by the ranges, and reading again gives the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange as Restriction
from apache_beam.io.restriction_trackers import OffsetRestrictionTracker
from apache_beam.metrics.metric import Metrics

from schemas.runs import OffsetRange
from services.runtime.bus.records import Incoming

#: Reads `start <= offset < end` of one partition: topic's full name, partition, start, end.
ReadRange = Callable[[str, int, int, int], Iterator[Incoming]]

RUN_HEADER = "run"
PIECES = "pieces_read"
WRITTEN_MS = "newest_of_piece_written_ms"


@dataclass(frozen=True, slots=True)
class Raw:
    """A record as it was read, still encoded."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes
    timestamp_ms: int

    @property
    def order(self) -> tuple[int, int]:
        """Place in the log among the records of one key."""
        return self.partition, self.offset


class _Offsets(beam.RestrictionProvider):
    """The offsets of a range, as what may be claimed and split."""

    def initial_restriction(self, element: OffsetRange) -> Restriction:
        return Restriction(element.start, max(element.start, element.end))

    def create_tracker(self, restriction: Restriction) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: OffsetRange, restriction: Restriction) -> int:
        return int(restriction.size())


class ReadLog(beam.DoFn):
    """OffsetRange to Raw: the records of one run, by the `run` header and undecoded.

    Records without that header (a stranger's) are passed on: decoding tells whose they are.
    Raises what `read` raises; a range that the log no longer holds is an error and not a gap.
    """

    def __init__(self, read: ReadRange, run_id: str) -> None:
        self._read = read
        self._run_id = run_id
        self._others = Metrics.counter("windtunnel", "records_of_other_runs")
        self._pieces = Metrics.counter("windtunnel", PIECES)
        self._written = Metrics.distribution("windtunnel", WRITTEN_MS)

    def process(
        self,
        element: OffsetRange,
        tracker: Any = beam.DoFn.RestrictionParam(_Offsets()),  # noqa: B008
    ) -> Iterator[Raw]:
        restriction = tracker.current_restriction()
        start, stop = restriction.start, restriction.stop
        records = self._read(element.topic, element.partition, start, stop)
        others, newest_ms = 0, 0
        with contextlib.closing(records):  # type: ignore[type-var]
            for record in records:
                if not tracker.try_claim(record.offset):
                    break
                if record.is_tombstone or record.headers.get(RUN_HEADER, self._run_id) != (
                    self._run_id
                ):
                    others += 1
                    continue
                newest_ms = max(newest_ms, record.timestamp_ms)
                yield Raw(
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                    key=record.key,
                    value=record.value,
                    timestamp_ms=record.timestamp_ms,
                )
            else:
                # The last offsets may be gone (compaction, transaction markers): claim them too.
                tracker.try_claim(stop)
        self._others.inc(others)
        self._pieces.inc()
        if newest_ms:
            self._written.update(newest_ms)


class ReadRun(beam.PTransform[Any, Any]):
    """The records of one run on the given ranges, read in pieces of at most `piece` offsets.

    `read` is pickled with the pipeline: a plain function or a partial of one.
    """

    def __init__(
        self, ranges: tuple[OffsetRange, ...], read: ReadRange, run_id: str, *, piece: int = 100_000
    ) -> None:
        super().__init__()
        self._pieces = [part for whole in ranges for part in pieces(whole, piece)]
        self._read = read
        self._run_id = run_id

    def expand(self, root: Any) -> Any:
        return (
            root
            | "ranges" >> beam.Create(self._pieces)
            | "read" >> beam.ParDo(ReadLog(self._read, self._run_id))
        )


def pieces(whole: OffsetRange, size: int) -> Iterator[OffsetRange]:
    """A range cut into ranges of at most `size` offsets."""
    for start in range(whole.start, whole.end, size):
        yield replace(whole, start=start, end=min(start + size, whole.end))
