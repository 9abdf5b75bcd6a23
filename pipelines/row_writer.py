"""The few rows that come from status topics: runs, verdicts, baselines. Kept until written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pipelines.holds import Hold, Holds
from pipelines.rows import Row
from services.runtime import metrics as m
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.store import Store, StoreRejected, StoreUnavailable

#: Rows waiting for a store that is away; beyond it the caller of `put` waits.
MOST_WAITING = 10_000


class RowWriter:
    """Writes rows in the background and releases their records when they are in the store.

    Of rows with one id only the newest waits. Without a store, rows are dropped at once.
    """

    def __init__(
        self,
        make_store: Callable[[], Store] | None,
        holds: Holds,
        metrics: Metrics,
        log: Log,
        *,
        retry_max_s: float,
    ) -> None:
        self._make_store = make_store
        self._holds = holds
        self._metrics = metrics
        self._log = log
        self._retry_max_s = retry_max_s
        self._waiting: dict[tuple[str, ...], tuple[Row, list[Hold]]] = {}
        self._some = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, table: str, row_id: str, row: Row, hold: Hold) -> None:
        """Have a row written; its record is held until then. Waits while too many are waiting."""
        if self._make_store is None:
            return
        self._holds.hold(hold)
        key = (table, row_id)
        _, held = self._waiting.pop(key, (row, []))
        self._waiting[key] = (row, [*held, hold])
        self._some.set()
        if len(self._waiting) >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def run(self) -> None:
        """Write for ever, with growing waits while the store is away."""
        if self._make_store is None:
            return
        store = await asyncio.to_thread(self._make_store)
        wait_s = 0.5
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                batch, self._waiting = self._waiting, {}
                if await asyncio.to_thread(self._write, store, batch):
                    wait_s = 0.5
                else:
                    # Rows that came meanwhile are newer than those with the same id that failed.
                    for key, (row, held) in self._waiting.items():
                        _, before = batch.pop(key, (row, []))
                        batch[key] = (row, [*before, *held])
                    self._waiting = batch
                    self._some.set()
                    self._metrics.add(m.RETRIES, what="rows")
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 2, self._retry_max_s)
                    continue
                for _, held in batch.values():
                    self._holds.release(held)
                self._room.set()
        finally:
            await asyncio.to_thread(store.close)

    def _write(self, store: Store, batch: dict[tuple[str, ...], tuple[Row, list[Hold]]]) -> bool:
        """False when the store is away; what it refuses is logged and given up."""
        by_table: dict[str, list[Row]] = {}
        for (table, _), (row, _) in batch.items():
            by_table.setdefault(table, []).append(row)
        for table, rows in by_table.items():
            for part in (rows, *([row] for row in rows)):
                columns = tuple(part[0])
                try:
                    store.insert(table, columns, [[row[c] for c in columns] for row in part])
                except StoreUnavailable as error:
                    self._log.warning("the store is away; rows wait", table=table, error=str(error))
                    return False
                except StoreRejected as error:
                    if len(part) == 1:
                        self._log.error("the store refused a row", table=table, error=str(error))
                    continue
                self._metrics.add(m.PIPELINE_ROWS, len(part), table=table)
                if part is rows:
                    break
        return True
