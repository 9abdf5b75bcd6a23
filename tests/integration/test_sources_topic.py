"""Sources on a real topic: published by one, found by another, whichever comes first."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.codec import Codec
from schemas.registry import CodeSource
from services.cli.stack.broker import EmbeddedBroker
from services.cli.topics import create_all
from services.runtime.bus.settings import BusSettings
from services.runtime.clock import SystemClock
from services.runtime.ids import RandomIds
from services.runtime.logs import configure
from services.runtime.service import Service
from services.runtime.settings import Settings
from services.runtime.sources import SourceStore, publish_source
from services.runtime.sources.archive import PART_BYTES, pack
from services.runtime.sources.cache import SourceCache
from tests.lanes import require_lane
from tests.support.running_stack import free_port


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    broker = EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", free_port())
    bootstrap = broker.start()
    create_all(BusSettings(bootstrap, **broker.bus_options), 2)
    yield Settings(bootstrap=bootstrap, bus_options=broker.bus_options)
    broker.stop()


@asynccontextmanager
async def service(settings: Settings) -> AsyncIterator[Service[Settings]]:
    made = Service(settings, Codec(), configure("test", "error"), SystemClock(), RandomIds())
    await made.producer.start()
    made.on_stop(lambda: made.producer.stop(5))
    try:
        yield made
    finally:
        await made.stop()


@pytest.mark.req("D01", "R20")
def test_a_source_crosses_the_broker_whole(settings: Settings, tmp_path: Path) -> None:
    noise = random.Random(2).randbytes(5 * PART_BYTES)
    large = pack({"main.py": b"x = 1\n", "noise.bin": noise}, "zip")
    others = [pack({"main.py": f"x = {n}\n".encode()}, "paste") for n in range(5)]

    async def go() -> None:
        async with service(settings) as writer, service(settings) as reader:
            await publish_source(writer.publish, others[0])
            store = SourceStore(reader, SourceCache(tmp_path, 64 << 20))
            await store.start()
            before = await store.acquire(others[0].code("main:run"))
            assert (before / "main.py").read_bytes() == b"x = 0\n"
            for archive in (others[1], large, *others[2:], large):
                await publish_source(writer.publish, archive)
            code = large.code("main:run")
            assert code.parts == 6
            path = await store.acquire(code)
            assert (path / "noise.bin").read_bytes() == noise
            assert await store.acquire(code) == path
            last = await store.acquire(others[4].code("main:run"))
            assert (last / "main.py").read_bytes() == b"x = 4\n"
            missing = replace(code, source_hash="f" * 32)
            with pytest.raises(LookupError, match="part 1 of 6 was not published"):
                await store.acquire(missing)
            nothing = CodeSource(source_hash="e" * 32, origin="paste")
            with pytest.raises(LookupError, match="part 1 of 1"):
                await store.acquire(nothing)

    asyncio.run(go())
    assert list(tmp_path.iterdir()) == []
