"""A real broker and services as processes: what integration tests stand on."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from schemas.codec import Codec
from schemas.topics import ALL, Topic
from services.cli.stack.broker import EmbeddedBroker
from services.runtime.bus import (
    BusProducer,
    BusSettings,
    Incoming,
    Outgoing,
    TopicSpec,
    beginning_offsets,
    create_topics,
    end_offsets,
    read_range,
)
from services.runtime.service import Publication, outgoing_record
from tests.contract.bus_suite import bus_settings
from tests.contract.bus_tools import free_port
from tests.lanes import require_lane

ROOT = Path(__file__).resolve().parents[2]
CODEC = Codec()
R = TypeVar("R")
Start = Callable[..., subprocess.Popen[bytes]]


@contextmanager
def live_broker(directory: Path, partitions: int = 2) -> Iterator[BusSettings]:
    """The embedded broker with every topic on it; `partitions` of those that sessions share."""
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    broker = EmbeddedBroker(directory / "broker", free_port())
    broker.start()
    try:
        settings = bus_settings(broker)
        shared = {"sessions": partitions}
        create_topics(
            settings,
            [TopicSpec(t.full_name, shared.get(t.partition_group, 1), t.config()) for t in ALL],
        )
        yield settings
    finally:
        broker.stop()


@contextmanager
def live_services(bus: BusSettings, folder: Path, **settings: str) -> Iterator[Start]:
    """`start(module, *arguments, **more_settings)` starts a service on the bus, with settings by
    their names. What still runs at the end is killed, and what it logged is printed."""
    started: list[subprocess.Popen[bytes]] = []
    known = {k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL_")}
    bus_options = {
        "bootstrap": bus.bootstrap,
        "bus_options": f"poll_pause_max_ms={bus.poll_pause_max_ms}",
    }

    def start(module: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        ours = {
            f"WINDTUNNEL_{name.upper()}": value
            for name, value in {**bus_options, **settings, **more}.items()
        }
        with (folder / f"{module}.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=known | ours,
                stdout=log,
                stderr=log,
            )
        started.append(child)
        return child

    try:
        yield start
    finally:
        for child in started:
            child.kill()
            child.wait(10)
        for log in sorted(folder.glob("*.log")):
            print(log.name, log.read_text(errors="replace")[-20_000:], sep="\n")


def append(bus: BusSettings, records: Sequence[Outgoing]) -> None:
    """Append raw records, poisoned ones too; they are acknowledged when this returns."""

    async def run() -> None:
        producer = BusProducer(bus, "test")
        await producer.start()
        try:
            await producer.append(records)
        finally:
            await producer.stop(5)

    asyncio.run(run())


def publish(bus: BusSettings, *publications: Publication) -> None:
    append(bus, [outgoing_record(CODEC, publication) for publication in publications])


def everything(bus: BusSettings, topic: Topic) -> Iterator[Incoming]:
    """All records that are on a topic now, partition by partition."""
    begins = beginning_offsets(bus, topic.full_name)
    for partition, end in sorted(end_offsets(bus, topic.full_name).items()):
        yield from read_range(bus, topic.full_name, partition, begins[partition], end)


def decoded(bus: BusSettings, topic: Topic, cls: type[R]) -> list[R]:
    """The same, decoded; a record that cannot be is an error."""
    return [CODEC.decode(cls, record.value) for record in everything(bus, topic)]
