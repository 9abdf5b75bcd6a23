"""Reading as a member of a consumer group, on asyncio.

`GroupReader` polls on a thread of its own; this side runs the handler. What crosses between them is
bounded: beyond `max_outstanding` records the thread pauses its partitions and polls on, so that it
stays a member.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress

from kafka import errors as kafka_errors

from services.runtime.bus.errors import BusClosed, BusUnavailable
from services.runtime.bus.handler import PartitionHandler
from services.runtime.bus.reader import (
    Accept,
    Assigned,
    Batch,
    Event,
    GroupReader,
    Marks,
)
from services.runtime.bus.records import Partition
from services.runtime.bus.settings import BusSettings

_log = logging.getLogger(__name__)
_MARKS_PATIENCE_S = 1.0


class BusConsumer:
    """One member of one consumer group, feeding one handler.

    Low-water marks are committed every `commit_interval_s`, when a rebalance begins, and on stop.
    Partitions that stay with this member across a rebalance are neither revoked nor assigned again:
    the handler keeps what it knows of them. With `instance_id` (and `BusSettings.static_members`)
    membership is static: a restarted replica gets its partitions back at once, and a stopped one
    keeps them until its session ends.
    """

    def __init__(
        self,
        settings: BusSettings,
        group: str,
        topics: Sequence[str],
        handler: PartitionHandler,
        client_id: str,
        instance_id: str | None = None,
        accept: Accept | None = None,
        *,
        max_records: int = 500,
        max_outstanding: int = 2_000,
        commit_interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`accept(topic, headers)` runs on the reader's thread, before a value crosses to the
        loop; what it refuses is skipped, and shows only in `positions`. `max_outstanding` may be
        passed by `max_records`.
        """
        self._settings = settings
        self._client_id = client_id
        self._handler = handler
        self._handover = _Handover(handler)
        self._reader = GroupReader(
            settings,
            group,
            topics,
            client_id,
            instance_id,
            self._handover,
            accept=accept,
            max_records=max_records,
            max_outstanding=max_outstanding,
            commit_interval_s=commit_interval_s,
            clock=clock,
        )
        self._handover.commit_soon = self._reader.commit_soon
        self._clock = clock
        self._close_by = 0.0
        self._owned: set[Partition] = set()
        self._taken: dict[Partition, int] = {}
        self._thread: threading.Thread | None = None
        self._dispatcher: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Connect and begin to join. Returning means the broker answered, not that partitions
        are assigned. Raises BusUnavailable when it does not answer in `connect_timeout_ms`. Does
        not block the loop.
        """
        loop = asyncio.get_running_loop()
        self._handover.loop = loop
        self._ended = loop.create_future()
        try:
            await asyncio.to_thread(self._reader.open)
        except kafka_errors.KafkaError as error:
            raise BusUnavailable(f"{self._settings.bootstrap}: {error!r}") from error
        self._dispatcher = asyncio.create_task(self._dispatch(), name=f"bus-{self._client_id}")
        self._thread = threading.Thread(
            target=self._run, args=(loop,), name=f"bus-consumer-{self._client_id}", daemon=True
        )
        self._thread.start()

    async def stop(self, deadline_s: float = 10.0) -> None:
        """Take no more, let the handler finish what it was given, commit, leave the group, revoke.

        Returns at the deadline at the latest (then without the commit: the next owner replays
        more). Does not raise what the handler raised; `wait_failed` does. May be called twice.
        """
        thread, dispatcher = self._thread, self._dispatcher
        if thread is None or dispatcher is None:
            return
        self._thread = None
        deadline = self._clock() + deadline_s
        self._close_by = deadline
        self._reader.stop()
        await asyncio.to_thread(thread.join, deadline_s)
        if thread.is_alive():
            _log.error("consumer %s did not stop within %g s", self._client_id, deadline_s)
        dispatcher.cancel()
        with suppress(asyncio.CancelledError):
            await dispatcher
        if self._owned and self._ended is not None and not self._failed:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.1, deadline - self._clock())):
                    await self._handler.revoked(frozenset(self._owned))
            self._owned.clear()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    async def wait_failed(self) -> None:
        """Wait for the end: returns when the consumer was stopped, raises what the handler,
        `accept` or the broker raised to end it. Every owner of a consumer must wait here, or
        failures go unseen.
        """
        if self._ended is None:
            raise BusClosed(f"consumer {self._client_id} was not started")
        await asyncio.shield(self._ended)

    @property
    def outstanding(self) -> int:
        """Records handed over and not yet taken by the handler; a metric to watch."""
        return self._handover.outstanding()

    def lag(self, topic: str) -> int:
        """Records between what the handler has taken and the end of the topic's owned partitions,
        as last fetched: costs no request.
        """
        ends = self._reader.ends()
        return sum(
            max(0, ends.get(partition, 0) - taken)
            for partition, taken in self._taken.items()
            if partition.topic == topic
        )

    @property
    def _failed(self) -> bool:
        ended = self._ended
        return ended is not None and ended.done() and ended.exception() is not None

    def _fail(self, error: BaseException) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(error)
        self._reader.stop()

    async def _dispatch(self) -> None:
        """Run the handler, one call at a time. The handler's failure is the consumer's end."""
        while True:
            event = await self._handover.queue.get()
            try:
                if isinstance(event, Batch):
                    await self._handler.batch(event.records, event.positions)
                    self._taken.update(event.positions)
                elif isinstance(event, Assigned):
                    self._owned.update(event.spans)
                    self._taken.update({one: span.start for one, span in event.spans.items()})
                    await self._handler.assigned(event.spans)
                else:
                    self._owned.difference_update(event.partitions)
                    for partition in event.partitions:
                        self._taken.pop(partition, None)
                    await self._handler.revoked(event.partitions)
            except Exception as error:
                self._handover.failed = True
                self._fail(error)
                return
            finally:
                self._handover.taken(event)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread's body: read, then wait for the handler to drain, then leave."""
        try:
            self._reader.run()
            # Heartbeats go on meanwhile: kafka-python sends them from its network thread.
            while self._handover.outstanding() and not self._handover.failed:
                if self._clock() >= self._close_by - 0.5:
                    break
                time.sleep(0.01)
        except Exception as error:
            self._handover.failed = True
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._fail, error)
        finally:
            with suppress(
                Exception
            ):  # leaving is a courtesy to the others; the session times out anyway
                self._reader.close(max(0.5, self._close_by - self._clock()))


class _Handover:
    """What the reader's thread may ask of the loop (a `ReaderPort`)."""

    def __init__(self, handler: PartitionHandler) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        self.commit_soon: Callable[[Marks], None] | None = None
        self.failed = False
        self._handler = handler
        self._lock = threading.Lock()
        self._outstanding = 0

    def emit(self, event: Event) -> None:
        with self._lock:
            self._outstanding += _weight(event)
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.queue.put_nowait, event)

    def taken(self, event: Event) -> None:
        with self._lock:
            self._outstanding -= _weight(event)

    def outstanding(self) -> int:
        return self._outstanding

    def request_marks(self) -> None:
        if self.loop is not None:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._collect_marks)

    def marks_now(self) -> Marks:
        if self.loop is None or self.failed:
            return {}
        answer: ThreadFuture[Marks] = ThreadFuture()

        def collect() -> None:
            try:
                answer.set_result(dict(self._handler.low_water_marks()))
            except Exception as error:
                answer.set_exception(error)

        try:
            self.loop.call_soon_threadsafe(collect)
            return answer.result(_MARKS_PATIENCE_S)
        except Exception as error:
            # Only the replay of the next owner gets longer.
            _log.warning("no low-water marks to commit: %r", error)
            return {}

    def _collect_marks(self) -> None:
        if self.commit_soon is not None and not self.failed:
            self.commit_soon(dict(self._handler.low_water_marks()))


def _weight(event: Event) -> int:
    return event.weight if isinstance(event, Batch) else 1
