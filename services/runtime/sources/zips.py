"""Zip archives from strangers: every entry is proven plain before it is believed."""

from __future__ import annotations

import io
import stat
import zipfile
import zlib

from services.runtime.sources.archive import MAX_ARCHIVE_BYTES
from services.runtime.sources.files import (
    MAX_FILES,
    FileSet,
    SourceRefused,
    check_name,
    is_skipped,
    shown,
    too_large,
)

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_MAX_RATIO = 200
_RATIO_FROM_BYTES = 1024 * 1024
_CHUNK = 64 * 1024


def read_zip(data: bytes) -> dict[str, bytes]:
    """The files of a zip archive, read in memory; archives within it stay files.

    Raises:
        SourceRefused: not a zip, too large, or an entry that is no plain file; names the entry.
    """
    if len(data) > MAX_ARCHIVE_BYTES:
        raise SourceRefused(f"the archive is larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError, EOFError) as error:
        raise SourceRefused(f"not a readable zip archive: {error}") from None
    with archive:
        entries = archive.infolist()
        if len(entries) > 2 * MAX_FILES:
            raise SourceRefused(f"the archive has more than {MAX_FILES} files")
        found = FileSet()
        for entry in entries:
            if _is_wanted(entry):
                found.reserve(entry.filename)
                found.add(entry.filename, _content(archive, entry, found))
    return found.files


def _is_wanted(entry: zipfile.ZipInfo) -> bool:
    """Whether it is a file to be kept. Raises SourceRefused for what is neither file nor folder."""
    # zipfile cuts names at a NUL; the name as it stood in the archive is the one to judge.
    name = entry.orig_filename
    mode = entry.external_attr >> 16
    kind = stat.S_IFMT(mode) if entry.create_system == 3 else 0
    if entry.flag_bits & _ENCRYPTED:
        raise SourceRefused(f"{shown(name)}: encrypted entries are refused")
    if kind == stat.S_IFLNK:
        raise SourceRefused(f"{shown(name)}: links are refused")
    if name.endswith("/"):
        check_name(name[:-1])
        return False
    check_name(name)
    if kind not in (0, stat.S_IFREG):
        raise SourceRefused(f"{shown(name)}: only plain files are taken, no devices or pipes")
    if entry.compress_type not in _METHODS:
        raise SourceRefused(f"{shown(name)}: expected deflate or no compression")
    return not is_skipped(name)


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, found: FileSet) -> bytes:
    """What an entry really unpacks to, whatever its header says of its size."""
    name = entry.filename
    if entry.file_size > found.room:
        raise too_large(name)
    content = bytearray()
    try:
        with archive.open(entry) as stream:
            while chunk := stream.read(_CHUNK):
                content += chunk
                if len(content) > found.room:
                    raise too_large(name)
                packed = max(1, entry.compress_size)
                if len(content) > max(_RATIO_FROM_BYTES, packed * _MAX_RATIO):
                    raise SourceRefused(f"{shown(name)}: unpacks to over {_MAX_RATIO} times itself")
    except (
        zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError,
        ValueError,
    ) as error:  # fmt: skip
        if isinstance(error, SourceRefused):
            raise
        raise SourceRefused(f"{shown(name)}: cannot be unpacked: {error}") from None
    if len(content) != entry.file_size:
        raise SourceRefused(f"{shown(name)}: its header says {entry.file_size} bytes, it has more "
                            f"or fewer: {len(content)}")  # fmt: skip
    return bytes(content)
