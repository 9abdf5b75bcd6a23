"""Which tool proxy owns a session.

The consumer group of the tool proxies is the truth: the replica that is assigned a session's
partition holds its world. Each replica puts the URL under which agents reach it into its client
id, `tool_proxy@http://host:port`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from schemas.topics import TRAJECTORIES
from services.runtime.bus.admin import group_owners, partition_for
from services.runtime.bus.errors import BusError
from services.runtime.bus.settings import BusSettings
from services.runtime.clock import Clock
from services.runtime.logs import Log

GROUP = "tool_proxy"
_REFRESH_S = 2.0


class Proxies:
    """A map from partition to proxy URL, refreshed in the background."""

    def __init__(self, bus: BusSettings, partitions: int, clock: Clock, log: Log) -> None:
        self._bus, self._partitions, self._clock, self._log = bus, partitions, clock, log
        self._owners: Mapping[int, str] = {}
        self._refreshed = asyncio.Event()

    async def keep_fresh(self) -> None:
        """Runs for ever; a broker that does not answer leaves the last known owners."""
        while True:
            try:
                owners = await asyncio.to_thread(
                    group_owners, self._bus, GROUP, TRAJECTORIES.full_name
                )
                self._owners = {p: client.partition("@")[2] for p, client in owners.items()}
            except BusError as error:
                self._log.warning("cannot ask who owns what", error=str(error))
            self._refreshed.set()
            self._refreshed = asyncio.Event()
            complete = len(self._owners) == self._partitions
            await asyncio.sleep(_REFRESH_S if complete else _REFRESH_S / 8)

    async def url_for(self, session_id: str, timeout_s: float) -> str | None:
        """The base URL of the proxy that owns a session; None if none did in time."""
        partition = partition_for(session_id, self._partitions)
        deadline = self._clock.monotonic() + timeout_s
        while not (url := self._owners.get(partition)):
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(left):
                    await self._refreshed.wait()
            except TimeoutError:
                return None
        return url
