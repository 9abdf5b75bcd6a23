"""The records that cross the bus, and how they are read from kafka-python's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to append. An empty value is a tombstone: on a compacted topic it deletes the
    key.
    """

    topic: str
    key: str
    value: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> int:
        """An upper bound of the bytes this record takes in a batch of its own."""
        headers = sum(4 * (len(name) + len(value)) + 10 for name, value in self.headers)
        return len(self.key.encode()) + len(self.value) + headers + 100

    def encoded_headers(self) -> list[tuple[str, bytes]]:
        return [(name, value.encode()) for name, value in self.headers]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A record as read. Keys and headers that are not UTF-8 are read with replacement
    characters, so that a stranger's record can be reported rather than stop the reader.
    """

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes
    headers: Mapping[str, str]
    timestamp_ms: int

    @property
    def is_tombstone(self) -> bool:
        return not self.value


def decode_headers(raw: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Headers as text; of a repeated name the last one wins."""
    return {name: (value or b"").decode("utf-8", "replace") for name, value in raw}


def decode_record(record: Any, headers: Mapping[str, str] | None = None) -> Incoming:
    """An `Incoming` from kafka-python's ConsumerRecord."""
    return Incoming(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=bytes(record.key or b"").decode("utf-8", "replace"),
        value=bytes(record.value or b""),
        headers=decode_headers(record.headers) if headers is None else headers,
        timestamp_ms=record.timestamp,
    )
