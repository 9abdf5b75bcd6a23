"""A run's progress on stderr: bars by category on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from schemas.runs import RunStatus
from services.cli.escaping import printable
from services.cli.following import planned_by_category, progress_line
from services.cli.output import console, say


class RunProgress:
    """Shows the statuses it is told. Leave it before printing anything else."""

    def __init__(self, *, live: bool | None = None) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._said = ""
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> RunProgress:
        if self._live:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                console=console(stderr=True),
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def show(self, status: RunStatus) -> None:
        """The run is this far."""
        if self._bars is not None:
            self._update(self._bars, status)
            return
        line = progress_line(status)
        if line != self._said:
            self._said = line
            say(line)

    def _update(self, bars: Progress, status: RunStatus) -> None:
        for category, planned in planned_by_category(status).items():
            ended = status.categories.get(category, 0)
            self._task(bars, category, category, planned, ended)
        if status.planned:
            self._task(bars, "", f"judged ({status.state})", status.planned, status.scored)

    def _task(self, bars: Progress, key: str, label: str, total: int, completed: int) -> None:
        if key not in self._tasks:
            self._tasks[key] = bars.add_task(printable(label), total=total)
        bars.update(
            self._tasks[key], description=printable(label), total=total, completed=completed
        )
