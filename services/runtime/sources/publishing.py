"""Publishing a source: its parts go first, then the registration that names it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from schemas.topics import SOURCES
from services.runtime.service import Publication
from services.runtime.sources.archive import Archive, part_key


class Publish(Protocol):
    """`Service.publish`, or what a client has in its place."""

    def __call__(self, *publications: Publication) -> Awaitable[None]: ...


async def publish_source(publish: Publish, archive: Archive) -> None:
    """Returns once every part is acknowledged. Publishing the same source again changes nothing.

    Raises:
        BusError: a part was not acknowledged in time, or was refused.
    """
    # One at a time: together they would be a batch beyond what a broker takes.
    for part in archive.parts():
        await publish(Publication(SOURCES, part_key(part), part))
