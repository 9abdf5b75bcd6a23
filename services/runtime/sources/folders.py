"""Source from a path: a folder, one `.py` file, or a zip archive."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from services.runtime.sources.archive import MAX_ARCHIVE_BYTES
from services.runtime.sources.files import FileSet, SourceRefused, is_skipped, shown, too_large
from services.runtime.sources.zips import read_zip


def read_path(path: Path) -> tuple[str, dict[str, bytes]]:
    """Where it comes from (`paste` for files, `zip` for an archive) and the files. Blocks.

    Raises:
        SourceRefused: nothing there, or something in it that is no plain file.
    """
    try:
        if path.is_dir():
            return "paste", _read_folder(path)
        if path.suffix == ".py":
            found = FileSet()
            found.reserve(path.name)
            found.add(path.name, _read(path, path.name, found.room))
            return "paste", found.files
        if path.suffix == ".zip":
            return "zip", read_zip(_read(path, path.name, MAX_ARCHIVE_BYTES))
    except OSError as error:
        raise SourceRefused(f"{path}: {error.strerror or error}") from None
    raise SourceRefused(f"{path}: expected a folder, a .py file or a .zip archive")


def _read_folder(root: Path) -> dict[str, bytes]:
    found = FileSet()
    inside = root.resolve()
    for folder, folders, names in os.walk(root, onerror=_raise):
        relative = Path(folder).relative_to(root).as_posix()
        prefix = "" if relative == "." else relative + "/"
        for name in sorted(folders):
            if os.path.islink(os.path.join(folder, name)) and not is_skipped(name):
                raise SourceRefused(f"{shown(prefix + name)}: links to folders are refused")
        # Sorted in place, and cut: this is what os.walk descends into.
        folders[:] = sorted(name for name in folders if not is_skipped(name))
        for name in sorted(names):
            if is_skipped(name):
                continue
            entry = prefix + name
            path = Path(folder, name)
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise SourceRefused(f"{shown(entry)}: links that lead outside are refused")
            found.reserve(entry)
            found.add(entry, _read(path, entry, found.room))
    return found.files


def _read(path: Path, name: str, limit: int) -> bytes:
    # Not blocking: opening a pipe would wait for its writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise SourceRefused(f"{shown(name)}: only plain files are taken")
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise too_large(name)
    return content


def _raise(error: OSError) -> None:
    raise error
