"""Questions and orders to the broker that belong to no running client.

Everything here connects, blocks, and disconnects: call it from a thread (`asyncio.to_thread`) in a
service. All raise BusUnavailable when the broker does not answer, BusRefused when it refuses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka import (
    KafkaAdminClient,
    KafkaConsumer,
    TopicPartition,
)
from kafka import errors as kafka_errors
from kafka.partitioner.default import murmur2

from services.runtime.bus.connecting import connected
from services.runtime.bus.errors import BusRefused, BusUnavailable
from services.runtime.bus.records import Incoming, decode_record
from services.runtime.bus.settings import BusSettings

_CLIENT_ID = "windtunnel-admin"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be. `replication` -1 takes the broker's default."""

    name: str
    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int = -1


@dataclass(frozen=True, slots=True)
class TopicsCreated:
    """What `create_topics` did: names created now, and names that were there before (left as
    they were).
    """

    created: tuple[str, ...]
    existed: tuple[str, ...]


def create_topics(settings: BusSettings, specs: Sequence[TopicSpec]) -> TopicsCreated:
    """Create what is missing; existing topics are not compared or changed. Safe to call
    concurrently. Returning means that every topic has a leader.
    """
    created, existed = [], []
    with _admin(settings) as admin:
        for spec in specs:
            wanted = {
                spec.name: {
                    "num_partitions": spec.partitions,
                    "replication_factor": spec.replication,
                    "configs": dict(spec.config),
                }
            }
            try:
                admin.create_topics(wanted, wait_for_metadata=True)
                created.append(spec.name)
            except kafka_errors.TopicAlreadyExistsError:
                existed.append(spec.name)
    return TopicsCreated(tuple(created), tuple(existed))


def beginning_offsets(settings: BusSettings, topic: str) -> dict[int, int]:
    """The first offset of every partition."""
    with _reader(settings) as reader:
        return {
            s.partition: o for s, o in reader.beginning_offsets(_sources(reader, topic)).items()
        }


def end_offsets(settings: BusSettings, topic: str) -> dict[int, int]:
    """The offset the next record of every partition will get."""
    with _reader(settings) as reader:
        return {s.partition: o for s, o in reader.end_offsets(_sources(reader, topic)).items()}


def group_owners(settings: BusSettings, group: str, topic: str) -> dict[int, str]:
    """Which member, by client id, owns each partition of a topic. Partitions that nobody owns at
    the moment (no such group, a rebalance under way) are left out. A member that died is still
    an owner until the broker notices, so the answer is a good guess and not a guarantee.
    """
    with _admin(settings) as admin:
        described = admin.describe_groups([group]).get(group, {})
    owners: dict[int, str] = {}
    if described.get("group_state") != "Stable":
        return owners
    for member in described.get("members", ()):
        assignment = member.get("member_assignment") or {}
        if not isinstance(assignment, Mapping):
            continue
        for assigned in assignment.get("assigned_partitions", ()):
            if assigned["topic"] == topic:
                owners.update(dict.fromkeys(assigned["partitions"], _client_id(member)))
    return owners


def _client_id(member: Mapping[str, Any]) -> str:
    """The client id a member has now: `reader.py` says why that is not the one the group knows."""
    metadata = member.get("member_metadata")
    said = metadata.get("user_data") if isinstance(metadata, Mapping) else None
    return str(said or member["client_id"])


def partition_for(key: str, partitions: int) -> int:
    """The partition the producer puts a key in (murmur2, as every Kafka client). Pure."""
    return int((murmur2(key.encode()) & 0x7FFFFFFF) % partitions)


def read_range(
    settings: BusSettings,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    stall_timeout_s: float = 30.0,
) -> Iterator[Incoming]:
    """The records with `start <= offset < end`, in order; blocks while reading. Offsets that
    compaction removed are skipped. Raises BusUnavailable when nothing arrives for
    `stall_timeout_s`, and ValueError when the range reaches outside of the log: a silent gap
    would be a wrong count.
    """
    if start >= end:
        return
    source = TopicPartition(topic, partition)
    with _reader(settings) as reader:
        first, last = (
            reader.beginning_offsets([source])[source],
            reader.end_offsets([source])[source],
        )
        if start < first or end > last:
            raise ValueError(
                f"{topic}/{partition} holds offsets {first} to {last}, asked for {start} to {end}"
            )
        reader.assign([source])
        reader.seek(source, start)
        give_up_at = time.monotonic() + stall_timeout_s
        while True:
            # A poll can come back with nothing before its time, so one such poll is no stall.
            polled = reader.poll(500, 2_000).get(source, ())
            if not polled:
                if time.monotonic() > give_up_at:
                    raise BusUnavailable(f"{topic}/{partition}: nothing for {stall_timeout_s:g} s")
                continue
            give_up_at = time.monotonic() + stall_timeout_s
            for record in polled:
                if record.offset >= end:
                    return
                yield decode_record(record)
                if record.offset == end - 1:
                    return


def _sources(reader: Any, topic: str) -> list[Any]:
    numbers = reader.partitions_for_topic(topic)
    if not numbers:
        raise BusRefused(f"topic {topic} does not exist; create the topics first")
    return [TopicPartition(topic, number) for number in sorted(numbers)]


@contextmanager
def _admin(settings: BusSettings) -> Iterator[Any]:
    with _translated(settings):
        admin = connected(KafkaAdminClient, **settings.client_options(_CLIENT_ID))
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def _reader(settings: BusSettings) -> Iterator[Any]:
    with _translated(settings):
        reader = connected(KafkaConsumer, **settings.reader_options(_CLIENT_ID), group_id=None)
        try:
            yield reader
        finally:
            reader.close(autocommit=False, timeout_ms=1_000)


@contextmanager
def _translated(settings: BusSettings) -> Iterator[None]:
    try:
        yield
    except kafka_errors.RetriableError as error:
        raise BusUnavailable(f"{settings.bootstrap}: {error!r}") from error
    except kafka_errors.KafkaError as error:
        raise BusRefused(f"{settings.bootstrap}: {error!r}") from error
