"""The process that runs a run's jobs when its sessions are done: `python -m pipelines.runner`.

It reads `run-status`, `gate-status` and `baselines` in a consumer group. A record's offset is
committed when its work is finished - aggregates published, rows in the store - so whatever kills
this process, its successor reads the record again and does it again, with the same result.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pipelines import rows
from pipelines.holds import Hold, Holds
from pipelines.row_writer import RowWriter
from pipelines.score_run import JobResult, Parts, aggregate, aggregated, load, parts_for
from pipelines.settings import PipelineSettings
from pipelines.sinks import BURIED, PUBLISHED, ROWS_REJECTED, ROWS_WRITTEN
from pipelines.sources import PIECES
from pipelines.worker import Worker
from schemas.gate import BaselineAccepted, GateStatus
from schemas.runs import RunState, RunStatus
from schemas.topics import BASELINES, BY_FULL_NAME, GATE_STATUS, RUN_STATUS
from services.runtime import metrics as m
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from services.runtime.service import Publication, Service, run

#: How often a job that raises is tried before the run is given up.
ATTEMPTS = 5


@dataclass(slots=True)
class RunWork:
    """What is still to be done for one run."""

    status: RunStatus
    stage: str = ""  # aggregate, load, or nothing
    holds: list[Hold] = field(default_factory=list)
    task: asyncio.Task[None] | None = None


class Runner:
    """A `PartitionHandler` that starts jobs. At most one job of each kind runs at a time."""

    def __init__(self, service: Service[PipelineSettings], parts: Parts) -> None:
        self._service = service
        self._parts = parts
        self._holds = Holds()
        self._history: dict[Partition, int] = {}
        self._works: dict[str, RunWork] = {}
        self._aggregator = Worker("aggregator")
        self._loader = Worker("loader")
        self._rows = RowWriter(
            parts.make_store,
            self._holds,
            service.metrics,
            service.log,
            retry_max_s=service.settings.store_retry_max_s,
        )

    async def start(self) -> None:
        """Begin to read; jobs start once what was there before has been read."""
        self._service.watch(self._rows.run(), "row writer")
        await self._service.consume([RUN_STATUS, GATE_STATUS, BASELINES], self)

    async def assigned(self, starts: Mapping[Partition, PartitionSpan]) -> None:
        for partition, span in starts.items():
            self._holds.take(partition, span.start)
            if span.start < span.end:
                self._history[partition] = span.end

    async def revoked(self, partitions: Collection[Partition]) -> None:
        gone = set(partitions)
        for partition in gone:
            self._holds.drop(partition)
            self._history.pop(partition, None)
        for run_id, work in list(self._works.items()):
            if any(hold.partition in gone for hold in work.holds):
                del self._works[run_id]
                if work.task is not None:
                    work.task.cancel()

    async def batch(self, records: Sequence[Incoming], positions: Mapping[Partition, int]) -> None:
        for incoming in records:
            self._service.metrics.add(m.EVENTS_CONSUMED, topic=BY_FULL_NAME[incoming.topic].name)
            if not incoming.is_tombstone:
                await self._take(incoming)
        self._holds.advance(positions)
        for partition, position in positions.items():
            if position >= self._history.get(partition, 0):
                self._history.pop(partition, None)
        self._start_jobs()

    def low_water_marks(self) -> Mapping[Partition, int]:
        return self._holds.marks()

    async def _take(self, incoming: Incoming) -> None:
        hold = Hold(Partition(incoming.topic, incoming.partition), incoming.offset)
        if incoming.topic == RUN_STATUS.full_name:
            status = await self._service.read(incoming, RunStatus)
            if status is not None:
                self._follow(status, hold)
                await self._rows.put("runs", status.run_id, rows.run_row(status), hold)
        elif incoming.topic == GATE_STATUS.full_name:
            verdict = await self._service.read(incoming, GateStatus)
            if verdict is not None:
                row = rows.verdict_row(verdict)
                await self._rows.put("verdicts", verdict.run_id, row, hold)
        else:
            accepted = await self._service.read(incoming, BaselineAccepted)
            if accepted is not None:
                row_id = f"{accepted.name}@{accepted.accepted_at_ms}@{accepted.run_id}"
                await self._rows.put("baselines", row_id, rows.baseline_row(accepted), hold)

    def _follow(self, status: RunStatus, hold: Hold) -> None:
        """What a status means for the run's work; the last one in the log counts."""
        work = self._works.get(status.run_id)
        stage = self._stage_after(status)
        if work is not None and work.task is not None:
            # Our own announcement, or a repetition: the work under way goes on with what it has.
            return
        if not stage:
            # Progress that was reported late, or by a coordinator that had lost the run, takes
            # nothing back.
            if work is not None and status.state not in (RunState.ACCEPTED, RunState.RUNNING):
                self._finish(work)
            return
        if work is None:
            work = self._works[status.run_id] = RunWork(status)
        work.status, work.stage = status, stage
        work.holds.append(hold)
        self._holds.hold(hold)

    def _stage_after(self, status: RunStatus) -> str:
        if status.state == RunState.SESSIONS_DONE:
            return "aggregate"
        to_load = status.state == RunState.AGGREGATED and not status.stored
        return "load" if to_load and self._parts.make_store is not None else ""

    def _start_jobs(self) -> None:
        if self._history:
            return
        for run_id, work in self._works.items():
            if work.task is None:
                work.task = self._service.watch(self._work(work), f"jobs of run {run_id}")

    def _finish(self, work: RunWork) -> None:
        if self._works.get(work.status.run_id) is work:
            del self._works[work.status.run_id]
        self._holds.release(work.holds)
        work.holds = []

    async def _work(self, work: RunWork) -> None:
        if work.stage == "aggregate" and not await self._aggregate(work):
            self._finish(work)
            return
        if self._parts.make_store is not None:
            await self._load(work)
        self._finish(work)

    async def _aggregate(self, work: RunWork) -> bool:
        """Publish the run's aggregates and then that they are there; False if it is given up."""
        status, error = work.status, ""
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(0 if attempt == 0 else 2.0 ** (attempt - 2))
            if attempt:
                self._service.metrics.add(m.RETRIES, what="job")
            started = self._service.clock.monotonic()
            try:
                result = await self._aggregator.call(aggregate, status, self._parts)
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
                self._observe("failed", started)
                self._log("aggregation failed", status, attempt=attempt, error=error)
                continue
            self._observe("aggregated", started)
            self._count("aggregate", result)
            self._log("aggregated", status, **result.counters)
            await self._announce(aggregated(status, stored=False))
            return True
        # Someone waits for this run's verdict: say that there will be none.
        message = f"its scores could not be aggregated: {error}"
        failed = dataclasses.replace(
            status, state=RunState.FAILED, errors=(message,), reporter="pipelines"
        )
        await self._announce(failed)
        return False

    async def _load(self, work: RunWork) -> None:
        """Load until the store has answered for every row, and say whether it has them all."""
        wait_s, raised_times, tries = 0.5, 0, 0
        while True:
            started = self._service.clock.monotonic()
            try:
                result: JobResult | None = await self._loader.call(
                    _load, work.status, self._parts, tries == 0
                )
            except Exception as raised:
                result, raised_times = None, raised_times + 1
                error = f"{type(raised).__name__}: {raised}"
                self._observe("failed", started)
                self._log("load failed", work.status, error=error)
                if raised_times >= ATTEMPTS:
                    return
            tries += 1
            if result is not None:
                self._count("load", result)
                self._observe("stored" if result.stored else "not_stored", started)
                self._log("loaded" if result.stored else "not loaded", work.status,
                          **result.counters)  # fmt: skip
                if result.stored:
                    await self._announce(aggregated(work.status, stored=True))
                if result.complete:
                    if result.rows(ROWS_REJECTED):
                        self._log("rows were refused; see the errors above", work.status)
                    return
            self._service.metrics.add(m.RETRIES, what="job")
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, self._service.settings.store_retry_max_s)

    async def _announce(self, status: RunStatus) -> None:
        await self._service.publish(Publication(RUN_STATUS, status.run_id, status))

    def _observe(self, outcome: str, started: float) -> None:
        seconds = self._service.clock.monotonic() - started
        self._service.metrics.observe(m.PIPELINE_SECONDS, seconds, outcome=outcome)

    def _count(self, stage: str, result: JobResult) -> None:
        """Beam has counted in whichever processes its workers are; here it is added up."""
        metrics = self._service.metrics
        for name, count in result.counters.items():
            kind, _, what = name.partition(".")
            if kind == ROWS_WRITTEN:
                metrics.add(m.PIPELINE_ROWS, count, table=what)
            elif kind == PUBLISHED:
                metrics.add(m.EVENTS_PRODUCED, count, topic=what)
            elif kind == BURIED:
                metrics.add(m.DEAD_LETTERS, count, topic=what)
            elif kind == PIECES:
                metrics.add(m.PIPELINE_PIECES, count, stage=stage)
        if result.newest_ms is not None:
            delay_ms = self._service.clock.now_ms() - result.newest_ms
            metrics.observe(m.WATERMARK_DELAY, max(0, delay_ms) / 1000, stage=stage)

    def _log(self, event: str, status: RunStatus, **fields: object) -> None:
        self._service.log.info(event, run_id=status.run_id, **fields)


def _load(status: RunStatus, parts: Parts, letters: bool) -> JobResult:
    return load(status, parts, letters=letters)


async def start(service: Service[PipelineSettings]) -> None:
    """Wire the runner to its service."""
    await Runner(service, parts_for(service.settings)).start()


if __name__ == "__main__":
    run(PipelineSettings, start)
