"""The two jobs of a run: count its scores, then load everything it produced into the store.

They are two because only the first may keep a deploy waiting. Each reads fixed stretches of the
log, so each can be run again and gives the same.

    python -m pipelines.score_run --run-id nightly-17
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import rows, sinks
from pipelines.settings import PipelineSettings
from pipelines.sinks import Append, MakeStore
from pipelines.sources import ReadRange, ReadRun
from pipelines.transforms.aggregate import AggregateRun
from pipelines.transforms.decode import DEAD_LETTERS, Decode, MakeCodec
from pipelines.transforms.sessions import FirstScores, SessionRows
from schemas import topics
from schemas.codec import Codec
from schemas.registry import DeadLetter
from schemas.runs import OffsetRange, RunState, RunStatus
from schemas.scores import RunAggregates
from schemas.topics import Topic
from services.runtime.bus.admin import beginning_offsets, end_offsets, read_range
from services.runtime.registry import codec_for
from services.runtime.service import Publication, outgoing_record
from services.runtime.settings import ConfigurationError, load_settings
from services.runtime.store import open_store

_READY = (RunState.SESSIONS_DONE, RunState.AGGREGATED)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the jobs are wired to. Everything is pickled to Beam's workers."""

    read: ReadRange
    make_codec: MakeCodec
    append: Append
    make_store: MakeStore | None
    beam_arguments: Sequence[str] = ("--runner=FnApiRunner",)
    piece: int = 100_000
    batch_rows: int = 5_000


@dataclass(frozen=True, slots=True)
class JobResult:
    """A finished job's counters; see pipelines.sinks for the rows'. `newest_ms` is when the newest
    record that it read was written.
    """

    counters: dict[str, int]
    newest_ms: int | None = None

    def rows(self, counter: str) -> int:
        """A row counter over all tables."""
        return sum(n for name, n in self.counters.items() if name.startswith(counter + "."))

    @property
    def complete(self) -> bool:
        """Whether the store has answered for every row; otherwise the load has to be run again."""
        return self.rows(sinks.ROWS_UNAVAILABLE) == 0

    @property
    def stored(self) -> bool:
        """Whether every row is in the store."""
        return self.complete and self.rows(sinks.ROWS_REJECTED) == 0


def parts_for(settings: PipelineSettings) -> Parts:
    """The parts that a deployment's settings ask for. Connects to nothing."""
    bus = settings.bus()
    url = settings.store.get_secret_value()
    return Parts(
        read=partial(read_range, bus),
        make_codec=partial(codec_for, settings),
        append=partial(sinks.append_to_bus, bus),
        make_store=partial(open_store, url, deadline_s=settings.store_deadline_s) if url else None,
        beam_arguments=tuple(settings.beam_arguments()),
        piece=settings.read_piece,
        batch_rows=settings.store_batch_rows,
    )


def aggregate(status: RunStatus, parts: Parts) -> JobResult:
    """Count the run's scores and publish its RunAggregates. Blocks; needs no store.

    Raises:
        BusError: the log cannot be read or the result not appended.
        ValueError: the log no longer holds the run's ranges.
    """
    pipeline = beam.Pipeline(options=PipelineOptions(list(parts.beam_arguments)))
    decoded = _decoded(pipeline, status, parts, (topics.SCORES,))
    letters = decoded[DEAD_LETTERS] | "letters" >> beam.Map(_letter)
    result = (
        decoded.records
        | "first scores" >> FirstScores()
        | "aggregate" >> AggregateRun(status)
        | "aggregates" >> beam.Map(_aggregates)
    )
    _ = (
        (result, letters)
        | beam.Flatten()
        | "publish" >> beam.ParDo(sinks.Publish(parts.append, parts.make_codec))
    )
    return _finished(pipeline)


def load(status: RunStatus, parts: Parts, *, letters: bool = True) -> JobResult:
    """Write the run's events, sessions, scores and aggregates into the store. Blocks.

    Does not raise for a store that is away: see the result. `letters` says whether unreadable
    trajectory records are put among the dead letters, which only a first attempt should do.

    Raises as `aggregate` does.
    """
    if parts.make_store is None:
        raise ValueError("there is no store to load into: set WINDTUNNEL_STORE")
    pipeline = beam.Pipeline(options=PipelineOptions(list(parts.beam_arguments)))
    decoded = _decoded(pipeline, status, parts, (topics.TRAJECTORIES, topics.SCORES))
    if letters:
        _ = (
            decoded[DEAD_LETTERS]
            | "events only" >> beam.Filter(lambda it: it.topic == topics.TRAJECTORIES.full_name)
            | "letters" >> beam.Map(_letter)
            | "publish" >> beam.ParDo(sinks.Publish(parts.append, parts.make_codec))
        )
    aggregates = (
        decoded.records
        | "scores only" >> beam.Filter(lambda it: hasattr(it[1].record, "dimensions"))
        | "first scores" >> FirstScores()
        | "aggregate" >> AggregateRun(status)
        | "aggregate rows" >> beam.FlatMap(_aggregate_rows)
    )
    sessions = decoded.records | "session rows" >> SessionRows(version=max(status.at_ms, 0))
    _ = (
        (sessions, aggregates)
        | beam.Flatten()
        | "write" >> beam.ParDo(sinks.WriteRows(parts.make_store, parts.batch_rows))
    )
    return _finished(pipeline)


def run_pipeline(status: RunStatus, parts: Parts) -> RunStatus:
    """Both jobs, one after the other; the run's next status, which is not published here.

    Its `at_ms` is that of `status`: all that is made from a status record carries its time.
    """
    aggregate(status, parts)
    stored = parts.make_store is not None and load(status, parts).stored
    return aggregated(status, stored=stored)


def aggregated(status: RunStatus, *, stored: bool) -> RunStatus:
    """The status that says a run's aggregates are published."""
    return dataclasses.replace(
        status, state=RunState.AGGREGATED, stored=stored, reporter="pipelines"
    )


def _decoded(
    pipeline: beam.Pipeline, status: RunStatus, parts: Parts, wanted: tuple[Topic, ...]
) -> Any:
    ranges = tuple(_ranges(status, wanted))
    return (
        pipeline
        | "log" >> ReadRun(ranges, parts.read, status.run_id, piece=parts.piece)
        | "decode"
        >> beam.ParDo(Decode(parts.make_codec, status.run_id)).with_outputs(
            DEAD_LETTERS, main="records"
        )
    )


def _ranges(status: RunStatus, wanted: tuple[Topic, ...]) -> list[OffsetRange]:
    names = {topic.full_name: topic.full_name for topic in wanted}
    names |= {topic.name: topic.full_name for topic in wanted}
    return [dataclasses.replace(r, topic=names[r.topic]) for r in status.ranges if r.topic in names]


def _finished(pipeline: beam.Pipeline) -> JobResult:
    result = pipeline.run()
    result.wait_until_finish()
    return JobResult(sinks.counters(result), sinks.newest_ms(result))


def _aggregates(record: RunAggregates) -> Publication:
    return Publication(topics.AGGREGATES, record.run_id, record)


def _letter(record: DeadLetter) -> Publication:
    return Publication(topics.DEAD_LETTERS, record.key.decode("utf-8", "replace"), record)


def _aggregate_rows(record: RunAggregates) -> list[tuple[str, rows.Row]]:
    return [("score_aggregates", row) for row in rows.aggregate_rows(record)]


def last_status(settings: PipelineSettings, codec: Codec, run_id: str) -> RunStatus | None:
    """The run's current status, from the whole of `run-status`. Blocks. Raises BusError."""
    bus, name = settings.bus(), topics.RUN_STATUS.full_name
    starts, found = beginning_offsets(bus, name), None
    for partition, end in end_offsets(bus, name).items():
        for incoming in read_range(bus, name, partition, starts[partition], end):
            if incoming.key == run_id and not incoming.is_tombstone:
                found = codec.decode(RunStatus, incoming.value)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run both jobs for a run that is done. Exits 0, 1 (not stored) or 2 (nothing to do)."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.score_run", description=__doc__)
    parser.add_argument("--run-id", required=True)
    options = parser.parse_args(arguments)
    try:
        settings = load_settings(PipelineSettings)
        codec = codec_for(settings)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2
    status = last_status(settings, codec, options.run_id)
    if status is None or status.state not in _READY:
        found = f"is {status.state}" if status else "is not on the topic"
        print(f"run {options.run_id} {found}: its sessions have to be done", file=sys.stderr)
        return 2
    parts = parts_for(settings)
    outcome = run_pipeline(status, parts)
    parts.append([outgoing_record(codec, Publication(topics.RUN_STATUS, status.run_id, outcome))])
    print(f"run {status.run_id}: aggregated, {'stored' if outcome.stored else 'NOT stored'}")
    return 0 if outcome.stored or parts.make_store is None else 1


if __name__ == "__main__":
    sys.exit(main())
