"""The one form in which a source is published: a zip archive named by the hash of its content."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.registry import CodeSource, SourcePart
from services.runtime.sources.files import SourceRefused

MAX_ARCHIVE_BYTES = 8 * 1024 * 1024
PART_BYTES = 512 * 1024
MAX_PARTS = MAX_ARCHIVE_BYTES // PART_BYTES
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Archive:
    """A source that was taken in.

    `source_hash` is over names and contents, not over compressed bytes: the same files have the
    same hash whatever library packed them.
    """

    data: bytes = field(repr=False)
    source_hash: str
    files: int
    origin: str
    origin_ref: str = ""

    def code(self, entrypoint: str) -> CodeSource:
        """What a registration says about this source."""
        return CodeSource(
            source_hash=self.source_hash,
            entrypoint=entrypoint,
            origin=self.origin,
            origin_ref=self.origin_ref,
            files=self.files,
            parts=len(self.parts()),
        )

    def parts(self) -> list[SourcePart]:
        """The records that carry it."""
        pieces = [self.data[at : at + PART_BYTES] for at in range(0, len(self.data), PART_BYTES)]
        return [
            SourcePart(source_hash=self.source_hash, part=number, parts=len(pieces), data=piece)
            for number, piece in enumerate(pieces)
        ]


def part_key(part: SourcePart) -> str:
    """The key of a part on its topic."""
    return f"{part.source_hash}/{part.part}"


def content_hash(files: Mapping[str, bytes]) -> str:
    """32 hex digits over names and contents, in which no two sets of files look the same."""
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(files):
        for piece in (name.encode(), files[name]):
            state.update(len(piece).to_bytes(8, "big"))
            state.update(piece)
    return state.hexdigest()


def pack(files: Mapping[str, bytes], origin: str, origin_ref: str = "") -> Archive:
    """The archive of some files: sorted names, one time, one mode.

    Raises:
        SourceRefused: no files, or too large when packed.
    """
    if not files:
        raise SourceRefused("the source has no files")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    data = packed.getvalue()
    if len(data) > MAX_ARCHIVE_BYTES:
        largest = _largest(files.items())
        raise SourceRefused(
            f"the source is larger than {MAX_ARCHIVE_BYTES >> 20} MiB packed; its largest file is "
            f"{largest}"
        )
    return Archive(data, content_hash(files), len(files), origin, origin_ref)


def _largest(files: Iterable[tuple[str, bytes]]) -> str:
    name, content = max(files, key=lambda file: len(file[1]))
    return f"{name} with {len(content)} bytes"
