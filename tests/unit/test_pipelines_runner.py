"""The runner's shell: nothing is committed before its work is done, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pipelines import row_writer
from pipelines.holds import Hold, Holds
from pipelines.row_writer import RowWriter
from pipelines.runner import Runner
from pipelines.score_run import aggregated
from pipelines.settings import PipelineSettings
from pipelines.worker import Worker
from schemas.codec import Codec
from schemas.runs import RunState, RunStatus
from schemas.topics import AGGREGATES, RUN_STATUS
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from tests.support import scored_runs as runs
from tests.support.scored_runs import LOGS, STORES, parts_on
from tests.support.services import OfflineService

CODEC = Codec()
PARTITION = Partition(RUN_STATUS.full_name, 0)


def incoming(status: RunStatus, offset: int) -> Incoming:
    value = CODEC.encode(status)
    return Incoming(PARTITION.topic, PARTITION.number, offset, status.run_id, value, {}, 0)


async def until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # what it waits for has no event
            await asyncio.sleep(0.01)


def with_runner(
    name: str, test: Callable[[Runner, OfflineService], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        service = OfflineService(PipelineSettings(store_retry_max_s=0.1))
        runner = Runner(service, parts_on(name))
        rows = asyncio.create_task(runner._rows.run())
        await test(runner, service)
        assert not service.failed.done()
        rows.cancel()
        await asyncio.gather(rows, return_exceptions=True)

    asyncio.run(main())


def finished(name: str) -> RunStatus:
    LOGS[name].append(runs.outgoing(CODEC, runs.score("a", 0, runs.gate("safety", True))))
    return runs.status({"a": 1}, *LOGS[name].ranges())


def said(service: OfflineService) -> list[tuple[str, bool]]:
    return [(p.record.state, p.record.stored) for p in service.published if p.topic is RUN_STATUS]


def announced(name: str) -> int:
    return len(LOGS[name].records.get(AGGREGATES.full_name, []))


@pytest.mark.req("D03", "D05")
def test_while_the_store_is_away_the_run_is_aggregated_and_its_record_kept() -> None:
    name = "runner-outage"

    async def test(runner: Runner, service: OfflineService) -> None:
        STORES[name].down = True
        await runner.assigned({PARTITION: PartitionSpan(3, 3)})
        await runner.batch([incoming(finished(name), 3)], {PARTITION: 4})
        await until(lambda: said(service) == [("aggregated", False)])
        assert announced(name) == 1
        await until(lambda: STORES[name].inserts > 3)
        assert runner.low_water_marks() == {PARTITION: 3}
        STORES[name].down = False
        await until(lambda: said(service) == [("aggregated", False), ("aggregated", True)])
        await until(lambda: runner.low_water_marks() == {PARTITION: 4})
        assert STORES[name].rows["runs"][0]["state"] == RunState.SESSIONS_DONE

    with_runner(name, test)


@pytest.mark.req("D03")
def test_history_is_read_to_its_end_before_anything_is_done() -> None:
    name = "runner-history"

    async def test(runner: Runner, service: OfflineService) -> None:
        status = finished(name)
        done = aggregated(status, stored=False)
        await runner.assigned({PARTITION: PartitionSpan(0, 3)})
        await runner.batch([incoming(status, 0)], {PARTITION: 1})
        await asyncio.sleep(0.2)
        assert announced(name) == 0
        history = [incoming(done, 1), incoming(replace(done, stored=True), 2)]
        await runner.batch(history, {PARTITION: 3})
        await until(lambda: runner.low_water_marks() == {PARTITION: 3})
        await asyncio.sleep(0.2)
        assert (announced(name), said(service)) == (0, [])

    with_runner(name, test)


@pytest.mark.req("D03")
def test_a_run_that_was_aggregated_and_not_stored_is_only_loaded() -> None:
    name = "runner-resumes"

    async def test(runner: Runner, service: OfflineService) -> None:
        await runner.assigned({PARTITION: PartitionSpan(0, 1)})
        await runner.batch([incoming(aggregated(finished(name), stored=False), 0)], {PARTITION: 1})
        await until(lambda: said(service) == [("aggregated", True)])
        assert announced(name) == 0
        assert len(STORES[name].rows["sessions"]) == 1

    with_runner(name, test)


@pytest.mark.req("D03")
def test_a_partition_that_is_lost_takes_its_work_along() -> None:
    name = "runner-revoked"

    async def test(runner: Runner, service: OfflineService) -> None:
        STORES[name].down = True
        await runner.assigned({PARTITION: PartitionSpan(0, 0)})
        await runner.batch([incoming(finished(name), 0)], {PARTITION: 1})
        await until(lambda: said(service) == [("aggregated", False)])
        await runner.revoked([PARTITION])
        STORES[name].down = False
        await asyncio.sleep(0.5)
        assert said(service) == [("aggregated", False)]
        assert runner.low_water_marks() == {}

    with_runner(name, test)


@pytest.mark.req("D05")
def test_a_run_that_cannot_be_counted_is_given_up_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "runner-broken"
    monkeypatch.setattr("pipelines.runner.ATTEMPTS", 2)

    async def test(runner: Runner, service: OfflineService) -> None:
        status = finished(name)
        LOGS[name].records.clear()
        await runner.assigned({PARTITION: PartitionSpan(0, 0)})
        await runner.batch([incoming(status, 0)], {PARTITION: 1})
        await until(lambda: len(service.published) == 1)
        failed = service.published[0].record
        assert failed.state == RunState.FAILED
        assert "could not be aggregated: KeyError" in failed.errors[0]
        await until(lambda: runner.low_water_marks() == {PARTITION: 1})

    with_runner(name, test)


@pytest.mark.req("D06")
def test_waiting_rows_are_bounded_and_the_newest_of_an_id_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_writer, "MOST_WAITING", 2)

    async def test() -> None:
        service, holds, store = OfflineService(), Holds(), runs.MemoryStore()
        holds.take(PARTITION, 0)
        writer = RowWriter(lambda: store, holds, service.metrics, service.log, retry_max_s=0.05)
        for offset in range(3):
            row: dict[str, object] = {"run_id": "r", "n": offset}
            await writer.put("runs", "r", row, Hold(PARTITION, offset))
        holds.advance({PARTITION: 3})
        last = asyncio.create_task(
            writer.put("verdicts", "bad", {"run_id": "bad"}, Hold(PARTITION, 3))
        )
        await asyncio.sleep(0.05)
        assert not last.done()
        assert holds.marks() == {PARTITION: 0}
        store.down = True
        store.refuse = lambda table, row: row["run_id"] == "bad"
        running = asyncio.create_task(writer.run())
        await asyncio.sleep(0.1)
        assert not last.done()
        store.down = False
        await last
        await until(lambda: holds.marks() == {PARTITION: 3})
        assert store.rows == {"runs": [{"run_id": "r", "n": 2}]}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(test())


def test_a_worker_outlives_what_its_calls_raise() -> None:
    def broken() -> None:
        raise StopIteration("odd")

    async def test() -> None:
        worker = Worker("test")
        with pytest.raises(RuntimeError, match="odd"):
            await worker.call(broken)
        with pytest.raises(ZeroDivisionError):
            await worker.call(lambda: 1 / 0)
        assert await worker.call(max, 1, 2) == 2

    asyncio.run(test())
