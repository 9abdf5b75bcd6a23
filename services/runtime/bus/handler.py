"""What a service implements to be fed from a consumer group."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from services.runtime.bus.records import Incoming, Partition


class PartitionSpan(NamedTuple):
    """What of a partition was already there when it was taken.

    Records from `start` (the committed offset, or the beginning) up to before `end` are history:
    nothing may be acted upon until the position of the partition has reached `end`.
    """

    start: int
    end: int


class PartitionHandler(Protocol):
    """The consumer's side of the contract: calls come one at a time, on the loop, in log order per
    partition.

    An exception from any method stops the consumer and surfaces from `BusConsumer.wait_failed`.
    """

    async def assigned(self, starts: Mapping[Partition, PartitionSpan]) -> None:
        """These partitions are now owned. Comes before their first batch. Partitions kept across
        a rebalance are not announced again. May take its time; nothing else is delivered
        meanwhile.
        """

    async def revoked(self, partitions: Collection[Partition]) -> None:
        """These partitions are owned no more, and another member may be at work on them already:
        drop their state, stop acting, commit nothing. Also called for everything owned when the
        consumer stops.
        """

    async def batch(self, records: Sequence[Incoming], positions: Mapping[Partition, int]) -> None:
        """Take records, possibly none. `positions` holds, per partition that advanced, the next
        offset to be read, records skipped by `accept` included. Returning makes room for more;
        it commits nothing.
        """

    def low_water_marks(self) -> Mapping[Partition, int]:
        """Per partition the offset below which nothing is needed any more; may be committed at
        any moment. Must be quick and must not raise. Partitions that may not move yet can be
        left out.
        """
