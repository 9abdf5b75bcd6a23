"""The gate's shell: one verdict a run, whatever comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from schemas.codec import Codec
from schemas.gate import GateStatus, Verdict
from schemas.runs import RunState, RunStatus
from schemas.topics import AGGREGATES, BASELINES, DEAD_LETTERS, GATE_STATUS, RUN_STATUS, Topic
from services.gate.service import Gate
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from tests.support.gate_figures import accepted, gate, run, scenario
from tests.support.services import OfflineService

CODEC = Codec()
GOOD = run(scenario("s", gate("safety", 5)), run_id="r")
PARTITION = Partition(AGGREGATES.full_name, 0)


def incoming(topic: Topic, key: str, record: object, offset: int = 0) -> Incoming:
    value = record if isinstance(record, bytes) else CODEC.encode(record)
    return Incoming(topic.full_name, 0, offset, key, value, {}, 0)


def on_gate(test: Callable[[Gate, OfflineService], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        service = OfflineService()
        gate_ = Gate(service)
        await gate_.assigned({PARTITION: PartitionSpan(0, 0)})
        await test(gate_, service)

    asyncio.run(main())


def verdicts(service: OfflineService) -> list[GateStatus]:
    return [p.record for p in service.published if p.topic is GATE_STATUS]


@pytest.mark.req("D05", "V12")
def test_a_run_is_judged_once_even_if_the_baseline_has_changed_since() -> None:
    async def test(gate_: Gate, service: OfflineService) -> None:
        record = incoming(AGGREGATES, "r", GOOD)
        gate_.baselines.apply(incoming(BASELINES, "orders/shop", accepted(GOOD)))
        await gate_.batch([record, record], {PARTITION: 2})
        (verdict,) = verdicts(service)
        assert (verdict.verdict, verdict.at_ms) == (Verdict.PASS, service.clock.now_ms())
        better = run(scenario("s", gate("safety", 5)), scenario("t", gate("safety", 5)))
        gate_.baselines.apply(incoming(BASELINES, "orders/shop", accepted(better)))
        await gate_.batch([record], {PARTITION: 3})
        assert len(verdicts(service)) == 1
        assert gate_.low_water_marks() == {PARTITION: 3}

    on_gate(test)


@pytest.mark.req("D05")
def test_a_successor_knows_from_the_topic_what_was_decided() -> None:
    async def test(gate_: Gate, service: OfflineService) -> None:
        given = GateStatus(run_id="r", verdict=Verdict.FAIL, at_ms=1)
        gate_.verdicts.apply(incoming(GATE_STATUS, "r", given))
        await gate_.batch([incoming(AGGREGATES, "r", GOOD)], {PARTITION: 1})
        assert verdicts(service) == []

    on_gate(test)


@pytest.mark.req("V12")
def test_a_withdrawn_baseline_is_not_compared_with() -> None:
    async def test(gate_: Gate, service: OfflineService) -> None:
        gate_.baselines.apply(incoming(BASELINES, "orders/shop", accepted(GOOD)))
        gate_.baselines.apply(incoming(BASELINES, "orders/shop", b""))
        await gate_.batch([incoming(AGGREGATES, "r", GOOD)], {PARTITION: 1})
        assert verdicts(service)[0].reasons[0].code == "no_baseline"

    on_gate(test)


@pytest.mark.req("D05")
def test_rejections_are_answered_but_never_replace_a_verdict() -> None:
    async def test(gate_: Gate, service: OfflineService) -> None:
        no = RunStatus(run_id="r", state=RunState.REJECTED, errors=("no such agent",), at_ms=1)
        running = RunStatus(run_id="r", state=RunState.RUNNING)
        said = [incoming(RUN_STATUS, "r", status) for status in (running, no, no)]
        await gate_.batch(said, {})
        assert [v.reasons[0].code for v in verdicts(service)] == ["run_rejected"]
        # Corrected and published again under the same id, then repeated by mistake.
        await gate_.batch([incoming(AGGREGATES, "r", replace(GOOD, baseline="none"))], {})
        later = replace(no, at_ms=service.clock.now_ms() + 1)
        await gate_.batch([incoming(RUN_STATUS, "r", later)], {})
        assert [v.verdict for v in verdicts(service)] == [Verdict.INCONCLUSIVE, Verdict.PASS]

    on_gate(test)


@pytest.mark.req("D05")
def test_poison_and_tombstones_stop_nothing() -> None:
    async def test(gate_: Gate, service: OfflineService) -> None:
        gate_.baselines.apply(incoming(BASELINES, "orders/shop", accepted(GOOD)))
        gate_.baselines.apply(incoming(BASELINES, "orders/shop", b"rubbish"))
        records = [
            incoming(AGGREGATES, "p", b"rubbish"),
            incoming(AGGREGATES, "q", b""),
            incoming(AGGREGATES, "r", GOOD),
        ]
        await gate_.batch(records, {})
        await asyncio.sleep(0)
        # The baseline that was there stays in force.
        assert [v.verdict for v in verdicts(service)] == [Verdict.PASS]
        assert sum(p.topic is DEAD_LETTERS for p in service.published) == 2

    on_gate(test)
