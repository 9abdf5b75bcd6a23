"""What the bus contract's tests share: a handler that remembers, and waiting for things to come
true.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from services.runtime.bus import (
    BusConsumer,
    BusProducer,
    BusSettings,
    Incoming,
    Outgoing,
    Partition,
    PartitionSpan,
)


@dataclass
class Recorder:
    """A handler that remembers every call. Marks follow the positions unless `hold` is set."""

    delay_s: float = 0.0
    hold: bool = False
    fails_at: int | None = None
    records: list[Incoming] = field(default_factory=list)
    spans: dict[Partition, PartitionSpan] = field(default_factory=dict)
    owned: set[Partition] = field(default_factory=set)
    positions: dict[Partition, int] = field(default_factory=dict)
    log: list[tuple[str, Any]] = field(default_factory=list)

    async def assigned(self, starts: Mapping[Partition, PartitionSpan]) -> None:
        assert not self.owned & set(starts), "assigned what was never revoked"
        self.owned.update(starts)
        self.spans.update(starts)
        self.log.append(("assigned", frozenset(starts)))

    async def revoked(self, partitions: Collection[Partition]) -> None:
        assert self.owned >= set(partitions), "revoked what was never assigned"
        self.owned.difference_update(partitions)
        for partition in partitions:
            self.positions.pop(partition, None)
        self.log.append(("revoked", frozenset(partitions)))

    async def batch(self, records: Sequence[Incoming], positions: Mapping[Partition, int]) -> None:
        assert self.owned >= set(positions), "a batch of a partition that is not owned"
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.records.extend(records)
        self.positions.update(positions)
        if self.fails_at is not None and len(self.records) >= self.fails_at:
            raise ZeroDivisionError("the handler's own fault")

    def low_water_marks(self) -> Mapping[Partition, int]:
        return {} if self.hold else dict(self.positions)

    @property
    def values(self) -> list[str]:
        return [record.value.decode() for record in self.records]

    def of(self, partition: int) -> list[int]:
        return [record.offset for record in self.records if record.partition == partition]


def numbered(topic: str, count: int, first: int = 0) -> list[Outgoing]:
    """Records with distinct keys and values that say which they are."""
    return [Outgoing(topic, f"key-{n}", f"{n}".encode()) for n in range(first, first + count)]


async def eventually(
    condition: Callable[[], bool], timeout_s: float = 40.0, what: str = ""
) -> float:
    """Wait until it holds; returns the seconds it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what or condition}")
        await asyncio.sleep(0.01)
    return time.monotonic() - began


@asynccontextmanager
async def producing(
    settings: BusSettings, client_id: str = "producer"
) -> AsyncIterator[BusProducer]:
    producer = BusProducer(settings, client_id)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop(5.0)


@asynccontextmanager
async def consuming(
    settings: BusSettings,
    group: str,
    topics: Sequence[str],
    handler: Recorder,
    client_id: str = "consumer",
    **options: Any,
) -> AsyncIterator[BusConsumer]:
    consumer = BusConsumer(
        settings, group, topics, handler, client_id, commit_interval_s=0.2, **options
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop(5.0)


def free_port() -> int:
    """A port that is free, and the one after it too."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
