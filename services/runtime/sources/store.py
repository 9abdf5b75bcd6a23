"""Sources read back from their topic: found when asked for, verified, unpacked, and kept on disk.

Memory holds where each part lies on the topic, never its bytes; the disk holds unpacked sources up
to a bound, each in a folder of its own, and drops those that were not used for longest.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.errors import WindtunnelSchemaError
from schemas.registry import CodeSource, SourcePart
from schemas.topics import SOURCES
from services.runtime.bus.admin import end_offsets, read_range
from services.runtime.bus.errors import BusError
from services.runtime.bus.records import Incoming, Partition
from services.runtime.bus.table import BusTable
from services.runtime.service import Service
from services.runtime.sources.archive import MAX_PARTS, content_hash, part_key
from services.runtime.sources.cache import SourceCache
from services.runtime.sources.files import SourceRefused
from services.runtime.sources.zips import read_zip

_KEY = re.compile(r"([0-9a-f]{32})/(0|[1-9][0-9]?)")
_REMEMBERED = 10_000
_LOOK_AGAIN_S = 0.02
_NEAR = 64

Place = tuple[Partition, int]
"""Partition and offset of a record."""
Fetch = Callable[[Iterable[Place]], list[Incoming]]
"""The records at some places; blocks. Raises BusError, or ValueError where one is gone."""


@dataclass(slots=True)
class _Known:
    places: dict[int, Place] = field(default_factory=dict)


class SourceStore:
    """The sources on the topic, for whoever runs them. All methods belong to the loop."""

    def __init__(
        self, service: Service[Any], cache: SourceCache, *, fetch: Fetch | None = None
    ) -> None:
        self._service = service
        self._cache = cache
        self._fetch = fetch or (lambda places: fetch_records(service, places))
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._unpacking: dict[str, asyncio.Task[Path]] = {}
        self._table: BusTable | None = None

    async def start(self) -> None:
        """Returns when everything that was on the topic is known."""
        self._table = await self._service.follow(SOURCES, self.apply)
        self._service.on_stop(self.close)

    async def close(self) -> None:
        """Remove what is on disk."""
        for task in list(self._unpacking.values()):
            task.cancel()
        await asyncio.gather(*self._unpacking.values(), return_exceptions=True)
        await asyncio.to_thread(self._cache.close)

    def apply(self, incoming: Incoming) -> None:
        """Take note of one record of the topic; what it holds is looked at when it is needed."""
        match = _KEY.fullmatch(incoming.key)
        if match is None:
            problem = f"the key {incoming.key[:80]!r} is not HASH/PART"
            self._service.watch(self._service.bury(incoming, problem), "dead letter")
            return
        source_hash, part = match[1], int(match[2])
        known = self._known.get(source_hash) or _Known()
        if incoming.is_tombstone:
            known.places.pop(part, None)
            if not known.places:
                self._known.pop(source_hash, None)
            return
        known.places[part] = Partition(incoming.topic, incoming.partition), incoming.offset
        self._known[source_hash] = known
        self._known.move_to_end(source_hash)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    async def acquire(self, code: CodeSource, timeout_s: float = 10.0) -> Path:
        """The folder with the source, read-only in spirit; it stays until it is released.

        Raises:
            LookupError: it is not on the topic as a whole, is not what its name says, or the
                broker does not answer.
        """
        while (held := self._cache.hold(code.source_hash)) is None:
            task = self._unpacking.get(code.source_hash)
            if task is None:
                task = asyncio.create_task(self._unpack(code, timeout_s))
                self._unpacking[code.source_hash] = task
                task.add_done_callback(lambda _: self._unpacking.pop(code.source_hash, None))
            # Others may wait for the same source: who gives up must not take it from them.
            await asyncio.shield(task)
        return held

    def release(self, source_hash: str) -> None:
        """Give back what `acquire` gave; once for each time."""
        self._cache.release(source_hash)

    async def _unpack(self, code: CodeSource, timeout_s: float) -> Path:
        places = await self._places(code, timeout_s)
        try:
            # Reading, checking and writing take as long as a source is large.
            return await asyncio.to_thread(self._read, code, places)
        except (BusError, OSError, WindtunnelSchemaError, ValueError) as error:
            raise LookupError(f"source {code.source_hash}: {error}") from None

    async def _places(self, code: CodeSource, timeout_s: float) -> Mapping[int, Place]:
        if not 1 <= code.parts <= MAX_PARTS:
            raise LookupError(f"source {code.source_hash}: {code.parts} parts cannot be right")
        if self._missing(code):
            # Its registration can be read before its parts are: they are on two topics.
            await self._catch_up(timeout_s)
        if missing := self._missing(code):
            raise LookupError(
                f"source {code.source_hash}: part {missing[0] + 1} of {code.parts} was not "
                f"published; register the agent again"
            )
        return dict(self._known[code.source_hash].places)

    def _missing(self, code: CodeSource) -> list[int]:
        known = self._known.get(code.source_hash, _Known())
        return [part for part in range(code.parts) if part not in known.places]

    async def _catch_up(self, timeout_s: float) -> None:
        if self._table is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                ends = await asyncio.to_thread(end_offsets, self._service.bus, SOURCES.full_name)
                # The table is read by a thread of its own, which tells nobody how far it is.
                while not self._table.has_applied(ends):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_AGAIN_S)
        except (TimeoutError, BusError) as error:
            raise LookupError(f"{SOURCES.name} cannot be read to its end: {error}") from None

    def _read(self, code: CodeSource, places: Mapping[int, Place]) -> Path:
        wanted = {f"{code.source_hash}/{part}": part for part in range(code.parts)}
        pieces: dict[int, bytes] = {}
        for incoming in self._fetch(place for part, place in places.items() if part < code.parts):
            if incoming.key not in wanted or incoming.is_tombstone:
                continue
            part = self._service.codec.decode(SourcePart, incoming.value)
            if part_key(part) != incoming.key or part.parts != code.parts:
                raise SourceRefused(f"part {incoming.key} says that it is {part_key(part)}")
            pieces[part.part] = part.data
        if len(pieces) != code.parts:
            raise SourceRefused(f"{len(pieces)} of {code.parts} parts could be read")
        files = read_zip(b"".join(pieces[part] for part in range(code.parts)))
        if content_hash(files) != code.source_hash:
            raise SourceRefused("what was published under this hash has another one")
        return self._cache.put(code.source_hash, files)


def fetch_records(service: Service[Any], places: Iterable[Place]) -> list[Incoming]:
    """The records at some places, read from the broker in as few ranges as they lie in."""
    found: list[Incoming] = []
    wanted = sorted(places)
    at = 0
    while at < len(wanted):
        (partition, first), last = wanted[at], at
        while (
            last + 1 < len(wanted)
            and wanted[last + 1][0] == partition
            and wanted[last + 1][1] - wanted[last][1] <= _NEAR
        ):
            last += 1
        offsets = {offset for _, offset in wanted[at : last + 1]}
        found += [
            incoming
            for incoming in read_range(
                service.bus, partition.topic, partition.number, first, wanted[last][1] + 1
            )
            if incoming.offset in offsets
        ]
        at = last + 1
    return found
