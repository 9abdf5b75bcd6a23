"""Where results go: records to topics, rows to the store.

The two are apart on purpose. Aggregates are published whether or not there is a store, because the
gate works from topics alone; rows that the store could not take are counted, and the load is run
again later, which changes nothing that is there already.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics, MetricsFilter

from pipelines.rows import Row
from pipelines.sources import WRITTEN_MS
from pipelines.transforms.decode import MakeCodec
from pipelines.transforms.sessions import TableRow
from schemas.codec import Codec
from schemas.registry import DeadLetter
from schemas.topics import BY_FULL_NAME
from services.runtime.bus.producer import BusProducer
from services.runtime.bus.records import Outgoing
from services.runtime.bus.settings import BusSettings
from services.runtime.service import Publication, outgoing_record
from services.runtime.store import Store, StoreRejected, StoreUnavailable

#: Makes the store on the worker; a plain function or a partial of one.
MakeStore = Callable[[], Store]
#: Appends records; returning means that they are acknowledged.
Append = Callable[[Sequence[Outgoing]], None]

PUBLISHED = "published"
BURIED = "buried"
ROWS_WRITTEN = "rows_written"
ROWS_UNAVAILABLE = "rows_unavailable"
ROWS_REJECTED = "rows_rejected"

_REJECTED_ONE_BY_ONE = 20
_log = logging.getLogger(__name__)


def append_to_bus(settings: BusSettings, records: Sequence[Outgoing]) -> None:
    """Append with a producer of its own. Blocks, so not on an event loop. Raises BusError."""

    async def append() -> None:
        producer = BusProducer(settings, "pipelines-job")
        await producer.start()
        try:
            await producer.append(records, timeout_s=30)
        finally:
            await producer.stop(5)

    asyncio.run(append())


class Publish(beam.DoFn):
    """Publication to the bus, a bundle at a time. A bundle that is retried is appended again;
    readers know the records by their keys.

    Counters: `published.TOPIC`, and of dead letters `buried.TOPIC` by the topic they come from.
    """

    def __init__(self, append: Append, make_codec: MakeCodec) -> None:
        self._append = append
        self._make_codec = make_codec
        self._codec: Codec | None = None
        self._records: list[Outgoing] = []
        self._counts: Counter[str] = Counter()

    def setup(self) -> None:
        self._codec = self._make_codec()

    def start_bundle(self) -> None:
        self._records, self._counts = [], Counter()

    def process(self, element: Publication) -> None:
        assert self._codec is not None
        self._records.append(outgoing_record(self._codec, element))
        self._counts[f"{PUBLISHED}.{element.topic.name}"] += 1
        if isinstance(element.record, DeadLetter):
            self._counts[f"{BURIED}.{BY_FULL_NAME[element.record.topic].name}"] += 1

    def finish_bundle(self) -> None:
        if self._records:
            self._append(self._records)
        for name, count in self._counts.items():
            Metrics.counter("windtunnel", name).inc(count)


class WriteRows(beam.DoFn):
    """TableRow into the store, in batches. Never fails the job: what was not written is counted.

    Counters, per table: `rows_written.T`, `rows_unavailable.T` (run the load again) and
    `rows_rejected.T` (the store refuses them; running again will not help).
    """

    def __init__(self, make_store: MakeStore, batch_rows: int = 5_000) -> None:
        self._make_store = make_store
        self._batch_rows = batch_rows
        self._store: Store | None = None
        self._pending: dict[str, list[Row]] = {}
        self._down = False
        self._rejected = 0

    def setup(self) -> None:
        self._store = self._make_store()

    def teardown(self) -> None:
        if self._store is not None:
            self._store.close()

    def start_bundle(self) -> None:
        self._pending, self._down, self._rejected = {}, False, 0

    def process(self, element: TableRow) -> None:
        table, row = element
        rows = self._pending.setdefault(table, [])
        rows.append(row)
        if len(rows) >= self._batch_rows:
            self._write(table, self._pending.pop(table))

    def finish_bundle(self) -> None:
        for table, rows in self._pending.items():
            self._write(table, rows)
        self._pending = {}

    def _write(self, table: str, rows: list[Row]) -> None:
        assert self._store is not None
        written, unavailable, rejected = 0, 0, 0
        for part, error in self._insert(self._store, table, rows):
            if error is None:
                written += part
            elif isinstance(error, StoreUnavailable):
                unavailable += part
            else:
                rejected += part
                _log.error("the store rejected %d row(s) of %s: %s", part, table, error)
        for name, count in (
            (ROWS_WRITTEN, written),
            (ROWS_UNAVAILABLE, unavailable),
            (ROWS_REJECTED, rejected),
        ):
            if count:
                Metrics.counter("windtunnel", f"{name}.{table}").inc(count)

    def _insert(
        self, store: Store, table: str, rows: list[Row]
    ) -> Iterator[tuple[int, StoreUnavailable | StoreRejected | None]]:
        """Pairs of a number of rows and what became of them."""
        if self._down:
            # Every attempt would take the store's whole deadline.
            yield len(rows), StoreUnavailable("the store was down a moment ago")
            return
        columns = tuple(rows[0])
        try:
            store.insert(table, columns, [[row[column] for column in columns] for row in rows])
        except StoreUnavailable as error:
            self._down = True
            _log.warning("the store is unavailable: %s", error)
            yield len(rows), error
        except StoreRejected as error:
            if len(rows) == 1 or self._rejected >= _REJECTED_ONE_BY_ONE:
                self._rejected += 1
                yield len(rows), error
                return
            # One bad row must not take thousands of good ones with it.
            half = len(rows) // 2
            yield from self._insert(store, table, rows[:half])
            yield from self._insert(store, table, rows[half:])
        else:
            yield len(rows), None


def counters(result: Any) -> dict[str, int]:
    """A finished job's counters by name."""
    found = result.metrics().query(MetricsFilter().with_namespace("windtunnel"))
    total: Counter[str] = Counter()
    for one in found["counters"]:
        total[one.key.metric.name] += int(one.result)
    return dict(total)


def newest_ms(result: Any) -> int | None:
    """When the newest record that a finished job read was written; None if it read none."""
    found = result.metrics().query(MetricsFilter().with_name(WRITTEN_MS))
    return max((int(one.result.max) for one in found["distributions"]), default=None)
