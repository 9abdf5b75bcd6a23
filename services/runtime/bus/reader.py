"""The thread that owns a group's KafkaConsumer; nothing else ever calls it.

kafka-python runs the network, and the rebalance callbacks, on a thread of its own. The callbacks
here therefore only take notes (and commit); the notes are acted upon after the poll that produced
them.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kafka import KafkaConsumer, TopicPartition
from kafka import errors as kafka_errors
from kafka.consumer.subscription_state import (
    AsyncConsumerRebalanceListener,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.structs import OffsetAndMetadata

from services.runtime.bus.connecting import connected
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition, decode_headers, decode_record
from services.runtime.bus.settings import BusSettings

_log = logging.getLogger(__name__)
_RETRIED = (kafka_errors.RetriableError, kafka_errors.CommitFailedError)
_OFFSET_LOOKUP_MS = 5_000
_ERROR_PAUSE_S = 0.2
_SHORTEST_PAUSE_S = 0.003
_IDLE_AFTER_S = 1.0
_IDLE_FACTOR = 5

Accept = Callable[[str, Mapping[str, str]], bool]
Marks = Mapping[Partition, int]
Polled = Mapping[Any, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Assigned:
    spans: Mapping[Partition, PartitionSpan]


@dataclass(frozen=True, slots=True)
class Revoked:
    partitions: frozenset[Partition]


@dataclass(frozen=True, slots=True)
class Batch:
    records: Sequence[Incoming]
    positions: Mapping[Partition, int]

    @property
    def weight(self) -> int:
        """What this batch counts against the bound; an empty one still occupies the hand-over."""
        return max(1, len(self.records))


Event = Assigned | Revoked | Batch


class ReaderPort(Protocol):
    """What the thread needs from the loop's side; every method is called from other threads."""

    def emit(self, event: Event) -> None: ...

    def outstanding(self) -> int: ...

    def request_marks(self) -> None:
        """Ask for the marks to be sent to `GroupReader.commit_soon`, without waiting."""

    def marks_now(self) -> Marks:
        """The marks, waiting a bounded time for the loop; empty when it does not answer."""


class GroupReader:
    """One member of one group. `run` is the thread's body; the rest may be called from anywhere."""

    def __init__(
        self,
        settings: BusSettings,
        group: str,
        topics: Sequence[str],
        client_id: str,
        instance_id: str | None,
        port: ReaderPort,
        *,
        accept: Accept | None,
        max_records: int,
        max_outstanding: int,
        commit_interval_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._group = group
        self._topics = list(topics)
        self._client_id = client_id
        self._instance_id = instance_id if settings.static_members else None
        self._port = port
        self._accept = accept
        self._max_records = max_records
        self._max_outstanding = max_outstanding
        self._commit_interval_s = commit_interval_s
        self._clock = clock
        self._consumer: Any = None
        self._stopping = threading.Event()
        self._pending_marks: Marks | None = None
        self._owned: frozenset[Partition] = frozenset()
        self._positions: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._generation = -1
        self._lost = False
        self._noted: tuple[int, frozenset[Partition]] | None = None
        self._rebalancing = False
        self._throttled = False
        self._pause_s = _SHORTEST_PAUSE_S
        self._idle_s = 0.0

    # -- from other threads

    def open(self) -> None:
        """Connect; blocks, and raises kafka-python's errors."""
        settings = self._settings
        self._consumer = connected(
            KafkaConsumer,
            **settings.reader_options(self._client_id),
            group_id=self._group,
            group_instance_id=self._instance_id,
            partition_assignment_strategy=(_named(self._client_id),),
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.rebalance_timeout_ms,
        )
        self._consumer.subscribe(topics=self._topics, listener=_Listener(self))

    def commit_soon(self, marks: Marks) -> None:
        self._pending_marks = marks  # the newest marks are the only ones that matter

    def stop(self) -> None:
        self._stopping.set()

    def ends(self) -> Mapping[Partition, int]:
        """Where the owned partitions ended when they were last fetched from."""
        return self._ends

    # -- the thread

    def run(self) -> None:
        """Poll until stopped. Raises what cannot be retried."""
        next_commit = self._clock() + self._commit_interval_s
        while not self._stopping.is_set():
            try:
                self._commit_pending()
                if self._clock() >= next_commit:
                    next_commit = self._clock() + self._commit_interval_s
                    self._port.request_marks()
                self._throttle()
                if self._rebalancing:
                    self._keep_rejoining()
                polled = self._poll()
                if self._noted is not None:
                    self._take_assignment()
                if polled:
                    self._deliver(polled)
            except struct.error as error:
                # kafka-python's, for an assignment without content: ask for another one.
                _log.warning("consumer %s: unreadable assignment: %s", self._client_id, error)
                self._rebalancing = True
                self._stopping.wait(_ERROR_PAUSE_S)
            except _RETRIED as error:
                _log.warning("consumer %s: %r; trying again", self._client_id, error)
                self._stopping.wait(_ERROR_PAUSE_S)

    def close(self, timeout_s: float) -> None:
        """Commit the last marks and leave the group; a static member keeps its place until its
        session ends.
        """
        if self._consumer is not None:
            self._consumer.close(autocommit=False, timeout_ms=max(100, int(timeout_s * 1000)))

    def _poll(self) -> Polled:
        limit = self._settings.poll_pause_max_ms / 1000
        if not limit or self._rebalancing or not self._owned:
            # Joining gets nowhere in polls without a timeout.
            # Short while throttled: a resume must not wait for the end of a long poll.
            polled: Polled = self._consumer.poll(10 if self._throttled else 100, self._max_records)
            return polled
        # Waiting before each poll, also after a full one, lets records gather: a poll costs as much
        # for one record as for a hundred.
        self._stopping.wait(self._pause_s)
        polled = self._consumer.poll(0, self._max_records)
        if polled:
            self._pause_s = _SHORTEST_PAUSE_S
            self._idle_s = 0.0
        else:
            self._idle_s += self._pause_s
            # An empty poll costs over a millisecond of CPU: who has been idle looks less often.
            bound = limit if self._idle_s < _IDLE_AFTER_S else limit * _IDLE_FACTOR
            self._pause_s = min(bound, self._pause_s * 1.4)
        return polled

    def _throttle(self) -> None:
        outstanding = self._port.outstanding()
        if not self._throttled and outstanding >= self._max_outstanding:
            self._throttled = True
            self._consumer.pause(*self._consumer.assignment())
        elif self._throttled and outstanding <= self._max_outstanding // 2:
            self._throttled = False
            if self._noted is None and not self._rebalancing:  # what is new stays paused
                self._consumer.resume(*self._consumer.assignment())

    def _deliver(self, polled: Polled) -> None:
        records: list[Incoming] = []
        positions: dict[Partition, int] = {}
        for source, batch in polled.items():
            for record in batch:
                headers = decode_headers(record.headers)
                if self._accept is None or self._accept(record.topic, headers):
                    records.append(decode_record(record, headers))
            positions[Partition(*source)] = batch[-1].offset + 1
        self._positions.update(positions)
        self._note_ends()
        self._port.emit(Batch(records, positions))

    def _note_ends(self) -> None:
        """What the broker has said with the records: asking it would be a round trip."""
        found = {p: end for p, end in self._ends.items() if p in self._owned}
        for partition in self._owned:
            # kafka-python's own thread may be taking it away at this moment.
            with suppress(kafka_errors.IllegalStateError, KeyError):
                end = self._consumer.highwater(TopicPartition(*partition))
                if end is not None:
                    found[partition] = end
        self._ends = found  # replaced at once: another thread reads it

    # -- rebalances

    def _note_lost(self) -> None:
        self._lost = self._rebalancing = True
        self._noted = None

    def _note_assigned(self, assigned: frozenset[Partition]) -> None:
        self._rebalancing = False
        self._noted = self._consumer.group_metadata().generation_id, assigned
        # Nothing of it may be read before its handler was told where it starts and ends.
        self._consumer.pause(*(TopicPartition(*partition) for partition in assigned))

    def _keep_rejoining(self) -> None:
        # kafka-python 3.0.12 forgets a rejoin in flight when its reason (fresh metadata) goes away
        # between two polls: the member then stays half revoked, silent and without heartbeats.
        self._consumer._coordinator.request_rejoin()

    def _take_assignment(self) -> None:
        """Tell the handler what changed. Raises a retriable error, having done nothing, if the
        broker does not answer; the note then stays for the next round.
        """
        if self._noted is None:
            return
        generation, assigned = self._noted
        # Eager rebalancing takes everything away and gives most of it back. What comes back in the
        # very next generation had no other owner in between: its handler keeps its state and its
        # position.
        unbroken = not self._lost and generation == self._generation + 1
        kept = assigned & self._owned if unbroken else frozenset[Partition]()
        spans = self._spans(assigned - kept)
        for partition in kept:
            if partition in self._positions:
                self._consumer.seek(TopicPartition(*partition), self._positions[partition])
        gone = self._owned - kept
        for partition in gone:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
        if gone:
            self._port.emit(Revoked(gone))
        self._ends = {**self._ends, **{partition: span.end for partition, span in spans.items()}}
        if spans:
            starts = {partition: span.start for partition, span in spans.items()}
            self._positions.update(starts)
            self._committed.update(
                starts
            )  # so that marks from an earlier ownership cannot set it back
            self._port.emit(Assigned(spans))
        self._owned, self._generation, self._lost, self._noted = assigned, generation, False, None
        if not self._throttled:
            self._consumer.resume(*(TopicPartition(*partition) for partition in assigned))

    def _spans(self, fresh: frozenset[Partition]) -> dict[Partition, PartitionSpan]:
        if not fresh:
            return {}
        sources = {partition: TopicPartition(*partition) for partition in sorted(fresh)}
        first = self._consumer.beginning_offsets(list(sources.values()), _OFFSET_LOOKUP_MS)
        end = self._consumer.end_offsets(list(sources.values()), _OFFSET_LOOKUP_MS)
        spans = {}
        for partition, source in sources.items():
            start = self._consumer.position(source, timeout_ms=_OFFSET_LOOKUP_MS)
            if start is None:
                raise kafka_errors.KafkaTimeoutError(f"no position for {partition}")
            if not first[source] <= start <= end[source]:
                _log.warning(
                    "%s of group %s: offset %d is outside of the log, %d to %d; reading all of it",
                    partition, self._group, start, first[source], end[source],
                )  # fmt: skip
                start = first[source]
                self._consumer.seek(source, start)
            spans[partition] = PartitionSpan(start, end[source])
        return spans

    # -- commits

    def _commit_pending(self) -> None:
        marks, self._pending_marks = self._pending_marks, None
        offsets = self._committable(marks or {})
        if offsets and self._noted is None and not self._rebalancing:
            self._consumer.commit_async(offsets, callback=self._committed_to)

    def _committable(self, marks: Marks) -> dict[Any, Any]:
        return {
            TopicPartition(*partition): OffsetAndMetadata(mark, "", -1)
            for partition, mark in marks.items()
            if partition in self._owned
            and self._committed.get(partition, -1) < mark <= self._positions.get(partition, -1)
        }

    def _committed_to(self, offsets: Mapping[Any, Any], result: Any) -> None:
        if isinstance(result, Exception):
            # The next interval tries again; a member that was fenced hears of it from poll().
            _log.warning("consumer %s: commit failed: %r", self._client_id, result)
            return
        for source, offset in offsets.items():
            self._committed[Partition(*source)] = offset.offset

    async def _commit_before_rebalance(self) -> None:
        self._rebalancing = True
        self._noted = None  # an assignment not yet taken is superseded; it was announced to nobody
        offsets = self._committable(self._port.marks_now()) if self._owned else {}
        if not offsets:
            return
        try:
            await self._consumer.commit_async(offsets)
        except kafka_errors.KafkaError as error:
            # Costs the next owner a longer replay, nothing else.
            _log.warning("consumer %s: commit before rebalance: %r", self._client_id, error)
        else:
            self._committed_to(offsets, None)


def _named(client_id: str) -> type[RangePartitionAssignor]:
    """The range assignor, which also tells the group under which client id this member is.

    Range gives topics with equal partition counts the same owners: co-partitioning rests on it.
    Kafka keeps a static member's first client id when the member comes back under another one;
    what comes with its subscription, it renews.
    """

    class Named(RangePartitionAssignor):  # type: ignore[misc, unused-ignore]
        @classmethod
        def metadata(cls, topics: Any) -> Any:
            return ConsumerProtocolSubscription(cls.version, list(topics), client_id.encode())

    return Named


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]
    """Runs on kafka-python's network thread, inside the rebalance."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._reader._commit_before_rebalance()

    async def on_partitions_lost(self, lost: Any) -> None:
        self._reader._note_lost()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._reader._note_assigned(frozenset(Partition(*source) for source in assigned))
