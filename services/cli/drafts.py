"""Folders that appear whole or not at all: written as a draft beside, then put in place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.cli.errors import CliError


def kept_files(folder: Path, mark: str, *, force: bool) -> set[str]:
    """The files of an existing folder that stay when it is replaced: YAML files go which start with
    the mark.

    Raises:
        CliError: there are files, and they are not to be replaced.
    """
    if not folder.exists():
        return set()
    if not folder.is_dir() or folder.is_symlink():
        raise CliError(f"{folder} is not a folder")
    files = [path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()]
    if files and not force:
        raise CliError(
            f"{folder} has files already: choose another --out, or replace those of an earlier "
            f"import with --force"
        )
    return {str(path.relative_to(folder)) for path in files if not _is_marked(path, mark)}


def _is_marked(path: Path, mark: str) -> bool:
    if path.suffix != ".yaml" or path.is_symlink():
        return False
    with path.open("rb") as file:
        return file.readline(len(mark) + 1) == mark.encode()


@contextmanager
def replacing(folder: Path, kept: set[str]) -> Iterator[Path]:
    """A draft that takes the folder's place when the block ends well, and is removed otherwise."""
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.import-{os.getpid()}")
    before = folder.with_name(f".{folder.name}.before-{os.getpid()}")
    draft.mkdir()
    try:
        for name in kept:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, draft / name, follow_symlinks=False)
        yield draft
        if not folder.exists():
            draft.rename(folder)
            return
        folder.rename(before)
        try:
            draft.rename(folder)
        except OSError:
            before.rename(folder)
            raise
        shutil.rmtree(before)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
