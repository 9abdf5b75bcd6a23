"""A compacted topic as a local table: read from the beginning by every process, without a group."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors

from services.runtime.bus.connecting import connected
from services.runtime.bus.errors import BusClosed, BusUnavailable
from services.runtime.bus.records import Incoming, decode_record
from services.runtime.bus.settings import BusSettings

_log = logging.getLogger(__name__)
_END_REFRESH_S = 5.0
_IDLE_FACTOR = 10
"""Tables change rarely, and an empty poll costs over a millisecond of CPU."""


class BusTable:
    """Applies every record of a topic, from its first, on the loop, in order per partition.

    Tombstones arrive as records with an empty value (`Incoming.is_tombstone`). After an outage
    reading goes on where it stopped.
    """

    def __init__(
        self,
        settings: BusSettings,
        topic: str,
        apply: Callable[[Incoming], None],
        client_id: str,
        *,
        last: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`apply` runs on the loop and must be quick; what it raises stops the table and
        surfaces from `start` or `wait_failed`. With `last`, of what is in the topic only so many
        records at the end of each partition are applied; then it is no table but a tail.
        """
        self._settings = settings
        self._topic = topic
        self._apply = apply
        self._client_id = client_id
        self._last = last
        self._clock = clock
        self._consumer: Any = None
        self._sources: list[Any] = []
        self._positions: dict[Any, int] = {}
        self._ends: dict[Any, int] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._caught_up: asyncio.Future[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    async def start(self, timeout_s: float = 30.0) -> None:
        """Returns when everything that was in the topic at the call was applied. Does not block
        the loop. Raises BusUnavailable at the timeout or when the topic does not exist.
        """
        self._loop = asyncio.get_running_loop()
        self._caught_up = self._loop.create_future()
        self._ended = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(self._open)
                self._thread = threading.Thread(
                    target=self._run, name=f"bus-table-{self._client_id}", daemon=True
                )
                self._thread.start()
                await asyncio.wait(
                    {self._caught_up, self._ended}, return_when=asyncio.FIRST_COMPLETED
                )
        except TimeoutError:
            self._stopping.set()
            raise BusUnavailable(
                f"{self._topic} was not read to its end within {timeout_s:g} s, {self.lag()} behind"
            ) from None
        except kafka_errors.KafkaError as error:
            raise BusUnavailable(f"{self._settings.bootstrap}: {error!r}") from error
        if self._ended.done():
            self._ended.result()

    async def stop(self, deadline_s: float = 5.0) -> None:
        """Stop following. Does not raise; returns by the deadline."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, deadline_s)
            self._thread = None
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def wait_failed(self) -> None:
        """Returns when the table was stopped, raises what ended it."""
        if self._ended is None:
            raise BusClosed(f"table {self._topic} was not started")
        await asyncio.shield(self._ended)

    def has_applied(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below these offsets, by partition, was applied."""
        positions = {source.partition: offset for source, offset in self._positions.items()}
        return all(positions.get(number, 0) >= end for number, end in ends.items())

    def lag(self) -> int:
        """Offsets between what was applied and the end of the topic, as last asked
        some seconds ago.
        """
        ends = dict(self._ends)
        return sum(max(0, end - self._positions.get(source, 0)) for source, end in ends.items())

    # -- on the thread

    def _open(self) -> None:
        options = self._settings.reader_options(self._client_id)
        consumer = connected(KafkaConsumer, **options, group_id=None)
        try:
            self._begin(consumer)
        except BaseException:
            consumer.close(autocommit=False, timeout_ms=1_000)
            raise
        self._consumer = consumer

    def _begin(self, consumer: Any) -> None:
        numbers = consumer.partitions_for_topic(self._topic)
        if not numbers:
            raise BusUnavailable(f"topic {self._topic} does not exist; create the topics first")
        self._sources = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        consumer.assign(self._sources)
        self._positions = dict(consumer.beginning_offsets(self._sources))
        self._ends = dict(consumer.end_offsets(self._sources))
        for source, first in self._positions.items():
            if self._last is not None:
                first = max(first, self._ends.get(source, first) - self._last)
                self._positions[source] = first
            consumer.seek(source, first)

    def _run(self) -> None:
        goal: Mapping[Any, int] | None = dict(self._ends)
        refresh_at = self._clock() + _END_REFRESH_S
        pause_s = 0.001
        try:
            while not self._stopping.is_set():
                try:
                    limit = self._settings.poll_pause_max_ms / 1000
                    polled = self._consumer.poll(0 if limit else 100)
                    if self._clock() >= refresh_at:
                        refresh_at = self._clock() + _END_REFRESH_S
                        self._ends = dict(self._consumer.end_offsets(self._sources))
                except kafka_errors.RetriableError as error:
                    _log.warning("table %s: %r; trying again", self._topic, error)
                    self._stopping.wait(0.2)
                    continue
                if polled:
                    pause_s = 0.001
                    self._hand_over(polled)
                elif limit:
                    self._stopping.wait(pause_s)
                    pause_s = min(limit * _IDLE_FACTOR, pause_s * 1.4)
                if goal is not None and self._reached(goal):
                    goal = None
                    self._on_loop(self._mark_caught_up)
        except Exception as error:
            self._on_loop(self._fail, error)
        finally:
            with suppress(Exception):
                self._consumer.close(autocommit=False, timeout_ms=1_000)

    def _hand_over(self, polled: Mapping[Any, Sequence[Any]]) -> None:
        records = [decode_record(record) for batch in polled.values() for record in batch]
        applied: ThreadFuture[None] = ThreadFuture()

        def apply_all() -> None:
            try:
                for record in records:
                    self._apply(record)
                applied.set_result(None)
            except Exception as error:
                applied.set_exception(error)

        self._on_loop(apply_all)
        # Waiting here is the bound: one poll's records at a time are on their way.
        while not applied.done() and not self._stopping.is_set():
            with suppress(TimeoutError):
                applied.result(0.5)
        if applied.done():
            applied.result()
            for source, batch in polled.items():
                self._positions[source] = batch[-1].offset + 1

    def _reached(self, goal: Mapping[Any, int]) -> bool:
        return all(self._positions.get(source, 0) >= end for source, end in goal.items())

    def _on_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call, *arguments)

    def _mark_caught_up(self) -> None:
        if self._caught_up is not None and not self._caught_up.done():
            self._caught_up.set_result(None)

    def _fail(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)
