"""A bound on how many things are done at once, which tells how near to it one is."""

from __future__ import annotations

import asyncio

from services.runtime import metrics as m
from services.runtime.metrics import Metrics


class Slots:
    """`async with slots`: waits, first come first served, while `limit` others are inside."""

    def __init__(self, limit: int) -> None:
        self._semaphore = asyncio.Semaphore(limit)
        self._limit = limit
        self._running = self._waiting = 0

    def measured(self, metrics: Metrics, bound: str) -> None:
        """Show what is done here as the service's metrics, under the name of the bound."""
        metrics.measure(m.ACTIONS_RUNNING, lambda: float(self._running), bound=bound)
        metrics.measure(m.ACTIONS_WAITING, lambda: float(self._waiting), bound=bound)
        metrics.measure(m.ACTIONS_LIMIT, lambda: float(self._limit), bound=bound)

    async def acquire(self) -> None:
        """Wait for a place; to be given back with `release`."""
        self._waiting += 1
        try:
            await self._semaphore.acquire()
        finally:
            self._waiting -= 1
        self._running += 1

    def release(self) -> None:
        """Give a place back."""
        self._running -= 1
        self._semaphore.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()
