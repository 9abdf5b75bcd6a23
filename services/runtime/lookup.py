"""Compacted topics as dictionaries that stay current."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from schemas.errors import WindtunnelSchemaError
from schemas.registry import Suite
from schemas.topics import SUITES, Topic
from services.runtime.bus.admin import end_offsets
from services.runtime.bus.errors import BusUnavailable
from services.runtime.bus.records import Incoming
from services.runtime.bus.table import BusTable
from services.runtime.service import Service

T = TypeVar("T")
REMEMBERED = 10_000
_LOOK_AGAIN_S = 0.02


class Lookup(Generic[T]):
    """The latest record of each key, of the `limit` keys that were written last.

    `changed(key, value)` hears of every record after it was taken in, replayed ones included.
    """

    def __init__(
        self,
        service: Service[Any],
        topic: Topic,
        cls: type[T],
        *,
        limit: int = REMEMBERED,
        changed: Callable[[str, T], None] | None = None,
    ) -> None:
        self._service, self._topic, self._cls = service, topic, cls
        self._limit, self._changed = limit, changed
        self._values: OrderedDict[str, T] = OrderedDict()
        self._table: BusTable | None = None

    async def start(self) -> None:
        """Returns when everything that was on the topic has been read."""
        self._table = await self._service.follow(self._topic, self.apply)

    async def catch_up(self, timeout_s: float) -> None:
        """Returns when everything that is on the topic at this call has been read, so that who
        wrote here first and asked elsewhere afterwards is answered accordingly.

        Raises:
            BusUnavailable: not within the timeout.
        """
        assert self._table is not None, "call start first"
        ends = await asyncio.to_thread(end_offsets, self._service.bus, self._topic.full_name)
        try:
            async with asyncio.timeout(timeout_s):
                # The table is read by a thread of its own, which tells nobody how far it is.
                while not self._table.has_applied(ends):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except TimeoutError:
            raise BusUnavailable(
                f"{self._topic.name} was not read to its end within {timeout_s:g} s"
            ) from None

    def get(self, key: str) -> T | None:
        return self._values.get(key)

    def values(self) -> list[T]:
        """All values, least recently written first."""
        return list(self._values.values())

    def apply(self, incoming: Incoming) -> None:
        """Take in one record of the topic; what cannot be read is buried and changes nothing."""
        if incoming.is_tombstone:
            self._values.pop(incoming.key, None)
            return
        try:
            value = self._service.codec.decode(self._cls, incoming.value)
        except WindtunnelSchemaError as error:
            self._service.watch(self._service.bury(incoming, str(error)), "dead letter")
            return
        self._values[incoming.key] = value
        self._values.move_to_end(incoming.key)
        while len(self._values) > self._limit:
            self._values.popitem(last=False)
        if self._changed is not None:
            self._changed(incoming.key, value)


class SuiteLookup(Lookup[Suite]):
    """Suites by content hash, or the one published last by name."""

    def __init__(self, service: Service[Any]) -> None:
        super().__init__(service, SUITES, Suite, limit=1000)

    def find(self, name_or_hash: str) -> Suite | None:
        """The suite with this hash; else the latest with this name."""
        exact = self.get(name_or_hash)
        if exact is not None:
            return exact
        named = [suite for suite in self.values() if suite.name == name_or_hash]
        return named[-1] if named else None
