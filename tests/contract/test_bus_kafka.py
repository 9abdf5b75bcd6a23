"""The bus on Apache Kafka, which durability and performance are proven on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.cli.stack.broker import BrokerMissing, KafkaBroker
from services.runtime.bus import BusSettings, end_offsets, read_range
from tests.contract.bus_suite import ROOT, BusSuite, NewTopic, bus_settings, topic_maker
from tests.contract.bus_tools import free_port, producing
from tests.lanes import require_lane

JARS = ROOT / ".cache" / "kafka-jars"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    reason = KafkaBroker.missing(JARS)
    require_lane("kafka", reason is None, reason or "")
    broker = KafkaBroker(JARS, tmp_path_factory.mktemp("kafka") / "data", free_port())
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def settings(broker: KafkaBroker) -> BusSettings:
    return bus_settings(broker)


@pytest.fixture
def topic(settings: BusSettings) -> Iterator[NewTopic]:
    yield from topic_maker(settings)


class TestBusOnKafka(BusSuite):
    def test_a_killed_broker_keeps_what_it_acknowledged(
        self, broker: KafkaBroker, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)
        acknowledged: set[str] = set()

        async def scenario() -> None:
            async with producing(settings) as producer:

                async def append() -> None:
                    acknowledged.update(await self.append_all(producer, name, 0, 1_000))

                appending = asyncio.create_task(append())
                await asyncio.sleep(1.0)
                await asyncio.to_thread(broker.kill)
                broker.start()
                await appending

        asyncio.run(scenario())
        assert len(acknowledged) == 1_000
        end = end_offsets(settings, name)[0]
        kept = {record.value.decode() for record in read_range(settings, name, 0, 0, end)}
        assert acknowledged <= kept


def test_missing_jars_name_the_command(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path, tmp_path / "data", 1)
    with pytest.raises(BrokerMissing, match=r"make kafka-jars|java"):
        broker.start()
