"""A world's state in files: a tree of texts, `{"files": {"src": {"main.py": "..."}}}`.

Folders are mappings and files are texts, so `/files/src/main.py` is a file's place by JSON
pointer. Tools name files by relative path; what does not work is a `ToolError`, for the agent to
read. Nothing here touches a real file but what `directory` makes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from services.tool_proxy.jsons import JsonObject
from services.tool_proxy.world_errors import ToolError, WorldError

MAX_FILE_BYTES = 1024 * 1024
MAX_TREE_BYTES = 2 * 1024 * 1024
MAX_FILES = 10_000
_MAX_PATH = 1024
_MAX_NAME = 255
_MAX_DEPTH = 32


class Files:
    """The files of a world while a tool works on them. All paths are relative, with slashes."""

    def __init__(self, tree: JsonObject, now: datetime) -> None:
        """`tree` is changed in place; `now` is what real files are dated."""
        self._tree = tree
        self._now = now

    def read(self, path: str) -> str:
        """A file's text. Raises ToolError: invalid_path, not_found, is_a_directory."""
        found = self._find(path)
        if not isinstance(found, str):
            raise ToolError("is_a_directory", f"{path} is a directory")
        return found

    def write(self, path: str, text: str) -> None:
        """Make or replace a file, with the folders above it.

        Raises:
            ToolError: invalid_path, is_a_directory, not_a_directory, too_large.
        """
        folder, name = self._above(path, make=False)
        before = folder.get(name, "") if folder is not None else ""
        if not isinstance(before, str):
            raise ToolError("is_a_directory", f"{path} is a directory")
        size, files, total = _size(text), *_extent(self._tree)
        new = folder is None or name not in folder
        if size > MAX_FILE_BYTES or total - _size(before) + size > MAX_TREE_BYTES:
            raise ToolError("too_large", f"{path}: there is no space for {size} bytes")
        if new and files >= MAX_FILES:
            raise ToolError("too_large", f"{path}: there are {files} files already")
        folder, name = self._above(path, make=True)
        assert folder is not None
        folder[name] = text

    def move(self, path: str, to: str) -> None:
        """Move a file or folder; nothing may be there yet.

        Raises:
            ToolError: invalid_path, not_found, already_exists, not_a_directory.
        """
        moved = self._find(path)
        source, target = _parts(path), _parts(to)
        if target[: len(source)] == source:
            raise ToolError("invalid_path", f"{path} cannot be moved into itself")
        if self.exists(to):
            raise ToolError("already_exists", f"{to} is there already")
        folder, name = self._above(to, make=True)
        assert folder is not None
        if isinstance(moved, dict) and len(target) + _height(moved) > _MAX_DEPTH:
            raise ToolError("invalid_path", f"{to}: too many folders")
        folder[name] = moved
        self.remove(path)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it. Raises ToolError: not_found, ..."""
        self._find(path)
        folder, name = self._above(path, make=False)
        assert folder is not None
        del folder[name]

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder. Raises ToolError: invalid_path."""
        try:
            self._find(path)
        except ToolError as error:
            if error.code == "invalid_path":
                raise
            return False
        return True

    def list(self, path: str = "") -> list[str]:
        """The names in a folder, sorted, folders with a slash at the end.

        Raises:
            ToolError: invalid_path, not_found, not_a_directory.
        """
        found = self._find(path) if path not in ("", ".") else self._tree
        if isinstance(found, str):
            raise ToolError("not_a_directory", f"{path} is a file")
        return sorted(f"{name}/" if isinstance(inner, dict) else name
                      for name, inner in found.items())  # fmt: skip

    def glob(self, pattern: str) -> list[str]:  # type: ignore[valid-type]
        """The paths of the files that a pattern fits, sorted. `*` stays within a folder, `**`
        stands for any folders."""
        wanted = pattern.split("/")
        return [path for path, _ in walk(self._tree) if _fits(path.split("/"), wanted)]

    @contextmanager
    def directory(self, ignore: Sequence[str] = ()) -> Iterator[Path]:
        """The files in a real, temporary directory, for code that needs one; what is there at the
        end replaces what was, unless the block raises.

        Args:
            ignore: patterns, as for `glob`, of what is not read back.

        Raises:
            ToolError: not_text, too_large, or invalid_path for links and other things than files.
        """
        with tempfile.TemporaryDirectory(prefix="files-") as name:
            root = Path(name)
            self._lay_out(root)
            yield root
            tree = _read_tree(root, [pattern.split("/") for pattern in ignore])
        self._tree.clear()
        self._tree.update(tree)

    def _lay_out(self, root: Path) -> None:
        stamp = self._now.timestamp()
        for path, inner in walk(self._tree, folders=True):
            real = root / path
            if isinstance(inner, dict):
                real.mkdir()
            else:
                real.write_bytes(inner.encode())
                os.utime(real, (stamp, stamp))

    def _find(self, path: str) -> Any:
        found: Any = self._tree
        for part in _parts(path):
            if not isinstance(found, dict) or part not in found:
                raise ToolError("not_found", f"there is no {path}")
            found = found[part]
        return found

    def _above(self, path: str, *, make: bool) -> tuple[JsonObject | None, str]:
        """The folder of a path, None where there is none, and the name in it."""
        *folders, name = _parts(path)
        found: JsonObject | None = self._tree
        for part in folders:
            if found is None:
                break
            inner = found.setdefault(part, {}) if make else found.get(part)
            if isinstance(inner, str):
                raise ToolError("not_a_directory", f"{path}: {part} is a file")
            found = inner
        return found, name


def walk(tree: JsonObject, folders: bool = False) -> Iterator[tuple[str, Any]]:
    """The files of a tree by path, sorted, and with `folders` those as well, before what is in
    them."""
    pending = [(name, inner) for name, inner in sorted(tree.items(), reverse=True)]
    while pending:
        path, inner = pending.pop()
        if folders or not isinstance(inner, dict):
            yield path, inner
        if isinstance(inner, dict):
            pending += [(f"{path}/{name}", below)
                        for name, below in sorted(inner.items(), reverse=True)]  # fmt: skip


def spread(files: Any) -> Any:
    """Files that are named by paths as a tree; whatever else there is stays as it is.

    Raises:
        WorldError: no such path can be, or one is a file and a folder.
    """
    if not isinstance(files, Mapping):
        return files
    tree: JsonObject = {}
    for path, inner in files.items():
        try:
            *folders, name = _parts(path)
        except ToolError as error:
            raise WorldError(f"files: {error.message}") from None
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise WorldError(f"files: {path}: {folder} is a file")
        below = spread(inner)
        if isinstance(place.get(name), dict) and isinstance(below, dict):
            place[name] = _joined(place[name], below, path)
        elif name in place:
            raise WorldError(f"files: {path} is there twice")
        else:
            place[name] = below
    return tree


def checked(tree: Any) -> None:
    """Raises WorldError: it is no tree of texts, or too large."""
    if not isinstance(tree, dict):
        raise WorldError("files: expected a mapping of names")
    for path, inner in walk(tree, folders=True):
        if not isinstance(inner, dict | str):
            raise WorldError(f"files: {path} must be a text or a folder")
        try:
            _parts(path)
        except ToolError as error:
            raise WorldError(f"files: {error.message}") from None
    files, size = _extent(tree)
    if files > MAX_FILES or size > MAX_TREE_BYTES:
        raise WorldError(f"files: {files} files with {size} bytes are too many")


def _joined(one: JsonObject, other: JsonObject, path: str) -> JsonObject:
    for name, inner in other.items():
        if isinstance(one.get(name), dict) and isinstance(inner, dict):
            _joined(one[name], inner, f"{path}/{name}")
        elif name in one:
            raise WorldError(f"files: {path}/{name} is there twice")
        else:
            one[name] = inner
    return one


def _parts(path: str) -> list[str]:
    """A path's names. Raises ToolError: invalid_path."""
    parts = path.split("/")
    if len(path) > _MAX_PATH or len(parts) > _MAX_DEPTH:
        raise ToolError("invalid_path", f"{path[:80]}...: the path is too long")
    for part in parts:
        try:
            too_long = len(part.encode()) > _MAX_NAME
        except UnicodeEncodeError:
            raise ToolError("invalid_path", "the path is no text") from None
        if part in ("", ".", "..") or too_long or "\\" in part or "\0" in part:
            raise ToolError("invalid_path", f"{path!r} is no relative path of names and slashes")
    return parts


def _size(text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ToolError("not_text", "the text cannot be written as UTF-8") from None


def _extent(tree: JsonObject) -> tuple[int, int]:
    sizes = [_size(inner) for _, inner in walk(tree)]
    return len(sizes), sum(sizes)


def _height(tree: JsonObject) -> int:
    return max((path.count("/") + 1 for path, _ in walk(tree, folders=True)), default=0)


def _fits(path: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[n:], pattern[1:]) for n in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _fits(path[1:], pattern[1:])


def _read_tree(root: Path, ignored: Sequence[Sequence[str]]) -> JsonObject:
    tree: JsonObject = {}
    files = size = 0
    for folder, folders, names in os.walk(root, followlinks=False):
        folders.sort()
        here = Path(folder).relative_to(root).as_posix()
        at = [] if here == "." else here.split("/")
        place = tree
        for part in at:
            place = place[part]
        folders[:] = [n for n in folders if not any(_fits([*at, n], i) for i in ignored)]
        for name in [*folders, *sorted(names)]:
            if any(_fits([*at, name], pattern) for pattern in ignored):
                continue
            real, path = Path(folder) / name, "/".join([*at, name])
            if real.is_symlink() or not (real.is_file() or real.is_dir()):
                raise ToolError("invalid_path", f"{path} is neither a file nor a directory")
            _parts(path)
            if real.is_dir():
                place[name] = {}
                continue
            with real.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
            files, size = files + 1, size + len(content)
            if len(content) > MAX_FILE_BYTES or size > MAX_TREE_BYTES or files > MAX_FILES:
                raise ToolError("too_large", f"{path}: there is no space for it")
            try:
                place[name] = content.decode()
            except UnicodeDecodeError:
                raise ToolError("not_text", f"{path} is no UTF-8 text") from None
    return tree
