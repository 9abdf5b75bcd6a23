"""What keeps a partition's offset from being committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.runtime.bus.records import Partition


class Hold(NamedTuple):
    """A record whose work is not finished."""

    partition: Partition
    offset: int


class Holds:
    """Counts unfinished work by record. A record may be held more than once, for several works."""

    def __init__(self) -> None:
        self._held: dict[Partition, Counter[int]] = {}
        self._positions: dict[Partition, int] = {}

    def take(self, partition: Partition, start: int) -> None:
        """The partition is now owned and will be read from `start`."""
        self._held[partition] = Counter()
        self._positions[partition] = start

    def drop(self, partition: Partition) -> None:
        """The partition is owned no more: later releases of its holds change nothing."""
        self._held.pop(partition, None)
        self._positions.pop(partition, None)

    def advance(self, positions: Mapping[Partition, int]) -> None:
        """Everything before these offsets has been read."""
        self._positions.update({p: o for p, o in positions.items() if p in self._held})

    def hold(self, hold: Hold) -> None:
        """Keep the record's offset from being committed."""
        self._held.setdefault(hold.partition, Counter())[hold.offset] += 1

    def release(self, holds: Iterable[Hold]) -> None:
        """The work is done; each hold once for each time it was taken."""
        for hold in holds:
            held = self._held.get(hold.partition)
            if held is None:
                continue
            held[hold.offset] -= 1
            if held[hold.offset] <= 0:
                del held[hold.offset]

    def marks(self) -> dict[Partition, int]:
        """Per owned partition the offset below which all work is done."""
        return {p: min(self._held[p], default=at) for p, at in self._positions.items()}
