"""Appending to the log: durable before it is visible.

One thread owns a KafkaProducer, because its send() can block on metadata. Appends cross to the
thread in a queue, and results come back in one loop callback for all calls that were settled
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from kafka import KafkaProducer
from kafka import errors as kafka_errors

from services.runtime.bus.errors import (
    BusClosed,
    BusError,
    BusRefused,
    BusUnavailable,
    RecordTooLarge,
)
from services.runtime.bus.records import Outgoing
from services.runtime.bus.settings import BusSettings

_log = logging.getLogger(__name__)
_TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)


class _Call:
    """One append() on its way. `missing` and `error` change under the producer's lock only."""

    __slots__ = ("abandoned", "error", "future", "missing", "offsets", "records", "sent_at")

    def __init__(self, records: Sequence[Outgoing], future: asyncio.Future[list[int]]) -> None:
        self.records = records
        self.future = future
        self.offsets = [-1] * len(records)
        self.missing = len(records)
        self.error: Exception | None = None
        self.sent_at = 0.0
        self.abandoned = False


class BusProducer:
    """An idempotent `acks=all` producer for one asyncio loop.

    After an error that makes a producer's sequence numbers doubtful (out of order, fenced) or when
    it does not settle its records long after their delivery timeout, it is replaced by a new one;
    the appends it held fail with BusUnavailable.
    """

    def __init__(
        self,
        settings: BusSettings,
        client_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._clock = clock
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._producer: Any = None
        self._broken = False
        self._closed = False
        self._give_up_at: float | None = None
        self._lock = threading.Lock()
        self._sent: dict[_Call, None] = {}
        self._settled: list[_Call] = []
        self._in_flight = 0
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self.replaced = 0
        """How many producers were thrown away; a metric to watch."""

    async def start(self) -> None:
        """Connect. Does not block the loop; returning means the broker answered. Raises
        BusUnavailable.
        """
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open)
        self._thread = threading.Thread(
            target=self._run, name=f"bus-producer-{self._client_id}", daemon=True
        )
        self._thread.start()

    async def append(self, records: Sequence[Outgoing], timeout_s: float = 10.0) -> list[int]:
        """Append records; returning their offsets means the broker acknowledged every one of them.

        Records of one partition keep their order, within a call and between calls made in order. An
        offset is -1 where the broker recognised a retry but no longer knew its offset. Never blocks
        the loop; waits for room when `max_in_flight_records` are on their way. Raises
        RecordTooLarge before anything is sent, BusUnavailable at the deadline (outcome unknown, see
        there), BusRefused, BusClosed. Cancelling it leaves the outcome unknown too.
        """
        if self._loop is None or self._closed:
            raise BusClosed(f"producer {self._client_id} is not running")
        for record in records:
            if record.size > self._settings.max_record_bytes:
                raise RecordTooLarge(
                    f"record {record.key!r} for {record.topic} takes {record.size} bytes, over "
                    f"max_record_bytes={self._settings.max_record_bytes}"
                )
        if not records:
            return []
        call: _Call | None = None
        try:
            async with asyncio.timeout(timeout_s):
                await self._room_for(len(records))
                call = _Call(records, self._loop.create_future())
                self._in_flight += len(records)
                self._queue.put(call)
                return await call.future
        except TimeoutError:
            raise BusUnavailable(
                f"{len(records)} record(s) for {records[0].topic} were not acknowledged by "
                f"{self._settings.bootstrap} within {timeout_s:g} s"
            ) from None
        finally:
            if call is not None:
                call.abandoned = (
                    True  # no-op when it was settled; otherwise it need not be sent any more
                )

    async def stop(self, deadline_s: float = 10.0) -> None:
        """Refuse new appends, send what was accepted, close. Appends not acknowledged by the
        deadline fail. Does not raise, and returns soon after the deadline at the latest.
        """
        self._closed = True
        thread = self._thread
        if thread is None:
            return
        self._give_up_at = self._clock() + deadline_s
        self._queue.put(None)
        await asyncio.to_thread(thread.join, deadline_s + 2.0)
        self._fail_all(BusUnavailable("the producer was stopped before the broker acknowledged"))
        self._settle()

    @property
    def in_flight(self) -> int:
        """Records accepted and not yet settled."""
        return self._in_flight

    async def _room_for(self, count: int) -> None:
        # A single call larger than the bound may go alone, or it would wait for ever.
        while self._in_flight and self._in_flight + count > self._settings.max_in_flight_records:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting_for_room.append(waiter)
            await waiter
        if self._closed:
            raise BusClosed(f"producer {self._client_id} was stopped")

    # -- on the loop

    def _settle(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for call in settled:
            self._in_flight -= len(call.records)
            if call.future.done():
                continue
            if call.error is None:
                call.future.set_result(call.offsets)
            else:
                call.future.set_exception(call.error)
        while self._waiting_for_room:
            waiter = self._waiting_for_room.popleft()
            if not waiter.done():
                waiter.set_result(None)

    # -- on the producer's thread (and, for _resolve, on kafka-python's sender thread)

    def _run(self) -> None:
        while True:
            with suppress(Empty):
                call = self._queue.get(timeout=0.5)
                if call is None:
                    break
                self._send(call)
            self._replace_if_stuck()
        remaining = max(0.0, (self._give_up_at or 0.0) - self._clock())
        self._close(remaining)

    def _send(self, call: _Call) -> None:
        if call.abandoned:
            self._resolve(call, len(call.records), error=BusUnavailable("given up before sending"))
            return
        call.sent_at = self._clock()
        with self._lock:
            self._sent[call] = None
        accepted = 0
        try:
            if self._broken:
                self._close(0.0)
                self.replaced += 1
                self._broken = False
            if self._producer is None:
                self._open()
            producer = self._producer
            for index, record in enumerate(call.records):
                sent = producer.send(
                    record.topic,
                    key=record.key.encode(),
                    value=record.value or None,
                    headers=record.encoded_headers(),
                )
                accepted += 1
                sent.add_callback(self._acknowledged, call, index)
                sent.add_errback(self._refused, call, producer)
        except Exception as error:
            # Whatever send() raises belongs to this caller; the thread must outlive it.
            self._resolve(call, len(call.records) - accepted, error=self._explain(error))

    def _acknowledged(self, call: _Call, index: int, metadata: Any) -> None:
        call.offsets[index] = metadata.offset
        self._resolve(call, 1)

    def _refused(self, call: _Call, producer: Any, error: Exception) -> None:
        explained = self._explain(error)
        if not isinstance(error, kafka_errors.RetriableError) and producer is self._producer:
            # Even one record too large leaves kafka-python's idempotent producer in a fatal state,
            # which it then reports for every other record it holds: those did nothing wrong.
            if self._broken:
                explained = BusUnavailable(f"lost with its producer, which failed: {error!r}")
            else:
                _log.error("producer %s will be replaced: %r", self._client_id, error)
                self._broken = True
        self._resolve(call, 1, error=explained)

    def _resolve(self, call: _Call, count: int, error: Exception | None = None) -> None:
        with self._lock:
            if call.missing <= 0:
                return
            call.missing -= count
            call.error = call.error or error
            if call.missing > 0:
                return
            self._sent.pop(call, None)
            self._settled.append(call)
            wake = len(self._settled) == 1
        if wake and self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody is waiting any more
                self._loop.call_soon_threadsafe(self._settle)

    def _replace_if_stuck(self) -> None:
        with self._lock:
            oldest = next(iter(self._sent), None)
        patience = self._settings.delivery_timeout_ms / 1000 * 1.5 + 2.0
        if oldest is None or self._clock() - oldest.sent_at < patience:
            return
        _log.error("producer %s settles nothing and will be replaced", self._client_id)
        self._broken = True
        self._fail_all(BusUnavailable("the producer settled nothing past its delivery timeout"))

    def _fail_all(self, error: BusError) -> None:
        with self._lock:
            calls = list(self._sent)
        if self._closed:
            with suppress(Empty):
                while True:
                    queued = self._queue.get_nowait()
                    if queued is not None:
                        calls.append(queued)
        for call in calls:
            self._resolve(call, len(call.records), error=error)

    def _open(self) -> None:
        settings = self._settings
        try:
            self._producer = KafkaProducer(
                **settings.client_options(self._client_id),
                acks="all",
                enable_idempotence=True,
                allow_auto_create_topics=False,
                # One request on its way at a time: what comes meanwhile goes in one batch. An idle
                # producer does not wait, and a busy one does not send a request a record.
                linger_ms=0,
                max_in_flight_requests_per_connection=1,
                batch_size=64 * 1024,
                delivery_timeout_ms=settings.delivery_timeout_ms,
                # send() blocks this thread, and with it every other topic's records.
                max_block_ms=min(5_000, settings.delivery_timeout_ms),
                max_request_size=settings.max_record_bytes + 10_000,
            )
        except kafka_errors.KafkaError as error:
            raise self._explain(error) from error

    def _close(self, timeout_s: float) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(timeout=timeout_s)
        except kafka_errors.KafkaError:
            # kafka-python's close() stops at a flush that times out, and leaves the sender sending.
            producer._sender.force_close()
            producer._closed = True

    def _explain(self, error: Exception) -> Exception:
        if isinstance(error, BusError):
            return error
        if isinstance(error, _TOO_LARGE):
            return RecordTooLarge(f"the broker refused a record as too large: {error}")
        if isinstance(
            error,
            kafka_errors.AuthorizationError
            | kafka_errors.SaslAuthenticationFailedError
            | kafka_errors.UnsupportedVersionError,
        ):
            return BusRefused(f"{self._settings.bootstrap} refused: {error!r}")
        return BusUnavailable(f"{self._settings.bootstrap}: {error!r}")
