"""A real `Service` without a broker: what it publishes is kept in a list."""

from __future__ import annotations

import asyncio
from typing import Any

from schemas.codec import Codec
from services.runtime.logs import configure
from services.runtime.service import Publication, Service
from services.runtime.settings import Settings


class FixedClock:
    """A clock that moves when told to."""

    def __init__(self, now_ms: int = 1_768_467_600_000) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def advance(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


class CountedIds:
    """1, 2, 3, ..."""

    def __init__(self) -> None:
        self._last = 0

    def new(self) -> str:
        self._last += 1
        return str(self._last)


class OfflineService(Service[Any]):
    """Must be made inside a running loop."""

    def __init__(self, settings: Settings | None = None, clock: FixedClock | None = None) -> None:
        super().__init__(
            settings or Settings(), Codec(), configure("test", "error"), clock or FixedClock(),
            CountedIds(),
        )  # fmt: skip
        self.published: list[Publication] = []

    async def publish(self, *publications: Publication, timeout_s: float = 15.0) -> None:
        await asyncio.sleep(0)
        self.published += publications
