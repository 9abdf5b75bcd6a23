"""The files of a source: which names they may have, and how much there may be of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate

MAX_FILES = 5_000
MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_MAX_NAME = 1024
_MAX_SEGMENT = 200
_DRIVE = re.compile(r"[A-Za-z]:")
# Never part of a source: history, caches of another interpreter, environments, Finder's litter.
_SKIPPED = frozenset({".git", "__pycache__", ".venv", "__MACOSX", ".DS_Store"})


class SourceRefused(ValueError):
    """A source that cannot be taken in; the message names the entry and what is wrong with it."""


def is_skipped(name: str) -> bool:
    """Whether a file is left out without a word, because it never belongs to a source."""
    return not _SKIPPED.isdisjoint(name.split("/"))


def shown(name: str) -> str:
    """A stranger's file name, fit for a message."""
    return repr(name if len(name) <= 120 else name[:117] + "...")


def check_name(name: str) -> None:
    """Raises SourceRefused unless the name is a plain relative path with forward slashes."""
    problem = _problem(name)
    if problem:
        raise SourceRefused(f"{shown(name)}: {problem}")


def _problem(name: str) -> str:
    if not name or len(name) > _MAX_NAME:
        return f"a file's name has 1 to {_MAX_NAME} characters"
    if name.startswith("/") or _DRIVE.match(name):
        return "absolute paths are refused"
    if "\\" in name:
        return "backslashes are refused; separate folders with /"
    if any(ord(sign) < 32 or ord(sign) == 127 or 0xD800 <= ord(sign) < 0xE000 for sign in name):
        return "control characters and broken encodings are refused"
    segments = name.split("/")
    if ".." in segments:
        return "paths that lead outside of the source are refused"
    if "" in segments or "." in segments:
        return "empty path segments are refused"
    if any(len(segment.encode()) > _MAX_SEGMENT for segment in segments):
        return f"a path segment has at most {_MAX_SEGMENT} bytes"
    return ""


class FileSet:
    """Collects files, refusing whatever would not unpack the same way everywhere."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.total = 0
        self._folded: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    @property
    def room(self) -> int:
        """Bytes that may still be added."""
        return MAX_UNPACKED_BYTES - self.total

    def reserve(self, name: str) -> None:
        """Check a name before its content is read.

        Raises:
            SourceRefused: a bad name, a duplicate, one that differs from another in case only, a
                file that another needs as its folder, or too many files.
        """
        check_name(name)
        if name in self.files:
            raise SourceRefused(f"{shown(name)}: there are two files of this name")
        folded = name.casefold()
        other = self._folded.get(folded) or self._folders.get(folded)
        if other is not None:
            raise SourceRefused(f"{shown(name)}: collides with {shown(other)} where case is one")
        for folder in _folders(name):
            taken = self._folded.get(folder.casefold())
            if taken is not None:
                raise SourceRefused(f"{shown(name)}: its folder {shown(taken)} is a file")
            spelt = self._folders.setdefault(folder.casefold(), folder)
            if spelt != folder:
                raise SourceRefused(
                    f"{shown(name)}: collides with {shown(spelt)} where case is one"
                )
        if len(self.files) >= MAX_FILES:
            raise SourceRefused(f"{shown(name)}: more than {MAX_FILES} files")
        self._folded[folded] = name

    def add(self, name: str, content: bytes) -> None:
        """Add a file whose name was reserved. Raises SourceRefused when all are too large."""
        if len(content) > self.room:
            raise too_large(name)
        self.files[name] = content
        self.total += len(content)


def too_large(name: str) -> SourceRefused:
    """The refusal of the file that is one too many."""
    return SourceRefused(
        f"{shown(name)}: the source is larger than {MAX_UNPACKED_BYTES >> 20} MiB unpacked"
    )


def _folders(name: str) -> Iterator[str]:
    segments = name.split("/")[:-1]
    return accumulate(segments, lambda path, segment: f"{path}/{segment}")


def without_top_folder(files: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """The files without the one folder that holds all of them, as zips of repositories have it;
    None where there is no such folder.
    """
    tops = {name.partition("/")[0] for name in files}
    if len(tops) != 1 or any("/" not in name for name in files):
        return None
    return {name.partition("/")[2]: content for name, content in files.items()}
