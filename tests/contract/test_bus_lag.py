"""D07: a consumer knows how far behind it is without asking the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from services.cli.stack.broker import EmbeddedBroker
from services.runtime.bus import BusSettings
from tests.contract.bus_suite import bus_settings, topic_maker
from tests.contract.bus_tools import (
    Recorder,
    consuming,
    eventually,
    free_port,
    numbered,
    producing,
)
from tests.lanes import require_lane

pytestmark = pytest.mark.req("D07")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusSettings]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    broker = EmbeddedBroker(tmp_path_factory.mktemp("noida") / "data", free_port())
    broker.start()
    yield bus_settings(broker)
    broker.stop()


def test_lag_counts_what_the_handler_has_not_taken_and_falls_to_nothing(
    settings: BusSettings,
) -> None:
    name = next(topic_maker(settings))(2)

    async def scenario() -> None:
        handler = Recorder(delay_s=0.3)
        async with producing(settings) as producer:
            await producer.append(numbered(name, 200))
            async with consuming(
                settings, f"{name}-g", [name], handler, max_records=20, max_outstanding=40
            ) as consumer:
                await eventually(lambda: handler.records)
                first = consumer.lag(name)
                assert 0 < first <= 200 - len(handler.records) + 20
                handler.delay_s = 0
                await eventually(lambda: len(handler.records) == 200)
                await eventually(lambda: consumer.lag(name) == 0)
                assert consumer.lag("another") == 0
                await producer.append(numbered(name, 50, 200))
                await eventually(lambda: len(handler.records) == 250)
                await eventually(lambda: consumer.lag(name) == 0)

    asyncio.run(scenario())
