"""Publishing records, and reading topics, as commands need it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from schemas.errors import WindtunnelSchemaError
from schemas.topics import Topic
from services.cli.connection import Connection
from services.runtime.bus.producer import BusProducer
from services.runtime.bus.records import Incoming, Outgoing
from services.runtime.bus.table import BusTable
from services.runtime.service import Publication, outgoing_record

T = TypeVar("T")
_CLIENT_ID = "windtunnel-cli"
_TIMEOUT_S = 15.0


async def publish(connection: Connection, *publications: Publication) -> None:
    """Append records; returning means that the broker has acknowledged them.

    Raises:
        BusError: it did not, or refused.
        EncodeError: a record does not fit its schema.
    """
    await append(connection, *(outgoing_record(connection.codec, one) for one in publications))


async def append(connection: Connection, *records: Outgoing) -> None:
    """Append records as they are, tombstones too. Raises BusError as `publish` does."""
    producer = BusProducer(connection.settings.bus(), _CLIENT_ID)
    await producer.start()
    try:
        await producer.append(records, timeout_s=_TIMEOUT_S)
    finally:
        await producer.stop(_TIMEOUT_S)


class Latest(Generic[T]):
    """The last record of each key of a topic, least recently written first.

    Records that cannot be read are left out and counted: they are the services' dead letters, and
    no reason for a command to fail.
    """

    def __init__(self, connection: Connection, topic: Topic, cls: type[T]) -> None:
        self._connection, self._topic, self._cls = connection, topic, cls
        self._values: OrderedDict[str, T] = OrderedDict()
        self.unreadable = 0
        self.changed: Callable[[str, T], None] = lambda key, value: None

    def get(self, key: str) -> T | None:
        return self._values.get(key)

    def values(self) -> list[T]:
        return list(self._values.values())

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[BusTable]:
        """Complete when entered, and kept current until left. Raises BusError."""
        table = BusTable(
            self._connection.settings.bus(), self._topic.full_name, self._apply, _CLIENT_ID
        )
        try:
            await table.start(_TIMEOUT_S)
            yield table
        finally:
            await table.stop()

    async def read(self) -> Latest[T]:
        """Read the topic to its end, once. Raises BusError."""
        async with self.followed():
            return self

    def _apply(self, incoming: Incoming) -> None:
        if incoming.is_tombstone:
            self._values.pop(incoming.key, None)
            return
        try:
            value: Any = self._connection.codec.decode(self._cls, incoming.value)
        except WindtunnelSchemaError:
            self.unreadable += 1
            return
        self._values[incoming.key] = value
        self._values.move_to_end(incoming.key)
        self.changed(incoming.key, value)
