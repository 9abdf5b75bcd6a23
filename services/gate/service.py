"""The gate as a service: aggregates in, verdicts out. Everything it needs comes from topics."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, NamedTuple

from schemas.gate import BaselineAccepted, GateStatus
from schemas.runs import RunState, RunStatus
from schemas.scores import RunAggregates
from schemas.topics import AGGREGATES, BASELINES, GATE_STATUS, RUN_STATUS
from services.gate.verdict import decide, rejected
from services.runtime import metrics as m
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from services.runtime.lookup import REMEMBERED, Lookup
from services.runtime.service import Publication, Service
from services.runtime.settings import Settings


class GateSettings(Settings):
    """Nothing of the gate's own: what it tolerates is its policy's, versioned with the code."""

    service: ClassVar[str] = "gate"


class Given(NamedTuple):
    """The part of a verdict that tells whether another one is due."""

    at_ms: int
    for_rejection: bool

    @classmethod
    def of(cls, status: GateStatus) -> Given:
        rejection = any(r.code in ("run_rejected", "run_failed") for r in status.reasons)
        return cls(status.at_ms, rejection)


def due_for_aggregates(given: Given | None) -> bool:
    """Whether a run's aggregates still need a verdict. The first one given stands: aggregates that
    come again must not be judged by a baseline that was accepted since."""
    return given is None or given.for_rejection


def due_for_rejection(given: Given | None, status: RunStatus) -> bool:
    """Whether a rejected or failed run still needs its answer.

    A request that repeats the id of a judged run is rejected under that id; the run's verdict
    stays what it was.
    """
    return given is None or (given.for_rejection and given.at_ms < status.at_ms)


class Gate:
    """Decides on what it reads; a `PartitionHandler` over `aggregates` and `run-status`."""

    def __init__(self, service: Service[GateSettings]) -> None:
        self._service = service
        self.baselines = Lookup(service, BASELINES, BaselineAccepted)
        self.verdicts = Lookup(service, GATE_STATUS, GateStatus, changed=self._remember)
        self._given: OrderedDict[str, Given] = OrderedDict()
        self._marks: dict[Partition, int] = {}

    async def start(self) -> None:
        """Read the baselines and the verdicts given so far to their ends, then begin."""
        await self.baselines.start()
        await self.verdicts.start()
        await self._service.consume([AGGREGATES, RUN_STATUS], self)

    async def assigned(self, starts: Mapping[Partition, PartitionSpan]) -> None:
        self._marks.update({partition: span.start for partition, span in starts.items()})

    async def revoked(self, partitions: Collection[Partition]) -> None:
        for partition in partitions:
            self._marks.pop(partition, None)

    async def batch(self, records: Sequence[Incoming], positions: Mapping[Partition, int]) -> None:
        for record in records:
            self._service.metrics.add(m.EVENTS_CONSUMED, topic=_short(record.topic))
            if record.is_tombstone:
                continue
            if record.topic == AGGREGATES.full_name:
                await self._on_aggregates(record)
            else:
                await self._on_status(record)
        self._marks.update(positions)

    def low_water_marks(self) -> Mapping[Partition, int]:
        return self._marks

    async def _on_aggregates(self, incoming: Incoming) -> None:
        aggregates = await self._service.read(incoming, RunAggregates)
        if aggregates is None:
            return
        if not due_for_aggregates(self._given.get(aggregates.run_id)):
            self._service.metrics.add(m.EVENTS_IGNORED, why="decided")
            return
        baseline = self.baselines.get(f"{aggregates.suite}/{aggregates.agent_name}")
        await self._tell(decide(aggregates, baseline, self._service.clock.now_ms()))

    async def _on_status(self, incoming: Incoming) -> None:
        status = await self._service.read(incoming, RunStatus)
        if status is None or status.state not in (RunState.REJECTED, RunState.FAILED):
            return
        if due_for_rejection(self._given.get(status.run_id), status):
            # Never before what it answers, whatever this machine's clock says: see above.
            await self._tell(rejected(status, max(self._service.clock.now_ms(), status.at_ms)))

    async def _tell(self, status: GateStatus) -> None:
        await self._service.publish(Publication(GATE_STATUS, status.run_id, status))
        self._remember(status.run_id, status)
        self._service.metrics.add(m.VERDICTS, verdict=status.verdict)
        self._service.log.info(
            "verdict", run_id=status.run_id, verdict=status.verdict, reasons=len(status.reasons)
        )

    def _remember(self, run_id: str, status: GateStatus) -> None:
        self._given[run_id] = Given.of(status)
        self._given.move_to_end(run_id)
        while len(self._given) > REMEMBERED:
            self._given.popitem(last=False)


async def start(service: Service[GateSettings]) -> None:
    """Wire the gate to its service."""
    await Gate(service).start()


def _short(topic: str) -> str:
    return AGGREGATES.name if topic == AGGREGATES.full_name else RUN_STATUS.name
