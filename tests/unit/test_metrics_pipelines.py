"""D07: what Beam's workers count arrives in the metrics of the process that started the job."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from pipelines.runner import Runner
from pipelines.settings import PipelineSettings
from schemas.codec import Codec
from schemas.topics import RUN_STATUS, SCORES, TRAJECTORIES
from services.runtime import metrics as m
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Outgoing, Partition
from services.runtime.metrics import Metric
from tests.support import scored_runs as runs
from tests.support.scored_runs import LOGS, STORES, parts_on
from tests.support.services import OfflineService

pytestmark = pytest.mark.req("D07")
CODEC = Codec()
STATUSES = Partition(RUN_STATUS.full_name, 0)


def counted(service: OfflineService, metric: Metric, suffix: str = "") -> Mapping[str, float]:
    """By the value of the metric's one label, what is not 0."""
    (label,) = metric.labels
    return {
        sample.labels[label]: sample.value
        for family in service.metrics.registry.collect()
        for sample in family.samples
        if sample.name == metric.name + suffix and sample.value
    }


def test_jobs_are_counted_where_they_were_started() -> None:
    name = "metrics-of-jobs"

    async def main() -> None:
        service = OfflineService(PipelineSettings(store_retry_max_s=0.05))
        runner = Runner(service, parts_on(name, piece=2))
        for trial in range(5):
            score = runs.score("a", trial, runs.gate("safety", True))
            LOGS[name].append(runs.outgoing(CODEC, score))
        for topic in (SCORES, TRAJECTORIES):
            rubbish = Outgoing(topic.full_name, "k", b"\xff\x00", (("run", runs.RUN),))
            LOGS[name].append(rubbish)
        status = runs.status({"a": 5}, *LOGS[name].ranges())
        record = Incoming(
            STATUSES.topic, 0, 0, status.run_id, CODEC.encode(status), {}, service.clock.now_ms()
        )
        STORES[name].down = True
        await runner.assigned({STATUSES: PartitionSpan(0, 0)})
        await runner.batch([record], {STATUSES: 1})
        async with asyncio.timeout(60):
            while not STORES[name].inserts:  # noqa: ASYNC110  # what it waits for has no event
                await asyncio.sleep(0.02)
            STORES[name].down = False
            while not any(one.record.stored for one in service.published):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        stored = {table: len(rows) for table, rows in STORES[name].rows.items() if rows}
        assert counted(service, m.PIPELINE_ROWS) == stored
        assert counted(service, m.EVENTS_PRODUCED) == {"aggregates": 1, "dead-letters": 2}
        assert counted(service, m.DEAD_LETTERS) == {"scores": 1, "trajectories": 1}
        loads = counted(service, m.PIPELINE_SECONDS, "_count")
        tries = loads.get("not_stored", 0) + loads["stored"]
        assert loads["aggregated"] == 1
        assert tries > 1
        assert counted(service, m.RETRIES) == {"job": tries - 1}
        # Six records of scores in pieces of two; loads read one of trajectories besides.
        assert counted(service, m.PIPELINE_PIECES) == {"aggregate": 3, "load": 4 * tries}
        assert counted(service, m.WATERMARK_DELAY, "_count") == {"aggregate": 1, "load": tries}

    asyncio.run(main())
