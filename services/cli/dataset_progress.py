"""How far an import is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from services.cli.output import console, say

_SAID_EVERY = 10_000
_SHOWN_EVERY = 50


class ImportProgress:
    """Shows what it is told. Leave it before printing anything else."""

    def __init__(self, total_bytes: int, *, live: bool | None = None) -> None:
        self._total = total_bytes
        self._live = sys.stderr.isatty() if live is None else live
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> ImportProgress:
        if self._live:
            columns = (TextColumn("{task.description}"), BarColumn())
            self._bar = Progress(*columns, console=console(stderr=True))
            self._task = self._bar.add_task("rows", total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, read_bytes: int, rows: int) -> None:
        """So many bytes were read and so many rows written."""
        if self._bar is not None:
            if rows % _SHOWN_EVERY == 0 or read_bytes == self._total:
                self._bar.update(self._task, completed=read_bytes, description=f"{rows} rows")
        elif rows % _SAID_EVERY == 0:
            say(f"{rows} rows")
