"""Unpacked sources on disk, within a bound: whoever uses one holds it, the rest can be dropped."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "sources-"
_LOCK = ".lock"


@dataclass(slots=True)
class _Entry:
    path: Path
    size: int
    holders: int = 0


class SourceCache:
    """Folders named by hash, in a directory that belongs to this process. Thread-safe.

    A directory whose process died is removed by the next one that starts beside it.
    """

    def __init__(self, parent: Path, max_bytes: int) -> None:
        """`max_bytes`: of what is unpacked; what is held at the moment may go beyond it.

        Raises:
            OSError: the directory cannot be written.
        """
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        making = Path(tempfile.mkdtemp(prefix="making-", dir=parent))
        # Its owner alone may write; a sandbox's user may pass through.
        making.chmod(0o711)
        self._lock_file = open(making / _LOCK, "w")  # noqa: SIM115 - held while we live
        fcntl.flock(self._lock_file, fcntl.LOCK_EX)
        # Named only now that it is locked: a neighbour who starts would take it for abandoned.
        self._root = making.rename(parent / making.name.replace("making-", _PREFIX))
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def root(self) -> Path:
        """Where it is."""
        return self._root

    def hold(self, source_hash: str) -> Path | None:
        """The folder, which then stays until it is released; None where there is none."""
        with self._lock:
            entry = self._entries.get(source_hash)
            if entry is None:
                return None
            entry.holders += 1
            self._entries.move_to_end(source_hash)
            return entry.path

    def release(self, source_hash: str) -> None:
        """Undo one `hold`."""
        with self._lock:
            entry = self._entries[source_hash]
            entry.holders -= 1

    def put(self, source_hash: str, files: Mapping[str, bytes]) -> Path:
        """Unpack a source, dropping others for it. Blocks.

        Raises:
            OSError: the disk is full.
        """
        size = sum(map(len, files.values()))
        with self._lock:
            dropped = self._drop_for(size)
        for path in dropped:
            shutil.rmtree(path, ignore_errors=True)
        building = Path(tempfile.mkdtemp(prefix="new-", dir=self._root))
        try:
            _write(building, files)
            final = self._root / source_hash
            with self._lock:
                if source_hash not in self._entries:
                    building.rename(final)
                    self._entries[source_hash] = _Entry(final, size)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        return final

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._lock_file.close()

    def _drop_for(self, size: int) -> list[Path]:
        total = size + sum(entry.size for entry in self._entries.values())
        dropped = []
        for name, entry in list(self._entries.items()):
            if total <= self._max_bytes:
                break
            if not entry.holders:
                # Renamed at once, so that nobody finds half of it.
                gone = entry.path.with_name(f"old-{name}")
                entry.path.rename(gone)
                dropped.append(gone)
                del self._entries[name]
                total -= entry.size
        return dropped


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    for folder in sorted({os.path.dirname(name) for name in files} - {""}):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
    # Whatever umask this process has: the sandbox's user must be able to read.
    for folder, _, names in os.walk(root):
        os.chmod(folder, 0o755)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # Another user's, or one that is being made or removed at this moment, is left alone.
        with suppress(OSError), open(folder / _LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
