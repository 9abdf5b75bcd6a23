"""A stack in plain lines, or as one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from services.cli.escaping import printable
from services.cli.output import plain
from services.cli.watching.drawing_stack import Picture, services_line
from services.cli.watching.figures import Failure, RunFigures
from services.cli.watching.telling import EVERY_S, Lines, failure_line, progress_line
from services.runtime.clock import Clock

_NOTHING = "no runs are active"


class StackLines:
    """Tells what changes: each run as `Lines` does, failures, services, the broker."""

    def __init__(self, tell: Callable[[str], None], clock: Clock, interval_s: float) -> None:
        self._tell = tell
        self._clock = clock
        self._every_s = max(interval_s, EVERY_S)
        self._runs: dict[str, Lines] = {}
        self._failures = self._lines()
        self._ready: tuple[tuple[str, int, int], ...] = ()
        self._is_lost = self._is_idle = False

    def failed(self, failure: Failure) -> None:
        self._failures.failed(failure)

    def show(self, picture: Picture) -> None:
        """Tell what is new in it."""
        if bool(picture.note) != self._is_lost:
            self._is_lost = not self._is_lost
            self._tell(printable(picture.note) or "the broker answers again")
        self._failures.settle()
        self._runs = {run.run_id: self._told(run) for run in picture.runs}
        if not picture.active and not self._is_idle:
            self._tell(_NOTHING)
        self._is_idle = not picture.active
        ready = tuple((one.service, one.ready, one.replicas) for one in picture.services)
        if ready != self._ready:
            self._ready = ready
            self._tell(printable(services_line(picture.services) if ready else "services: unknown"))

    def _told(self, run: RunFigures) -> Lines:
        lines = self._runs.get(run.run_id) or self._lines()
        lines.show(run)
        return lines

    def _lines(self) -> Lines:
        return Lines(self._tell, self._clock, rates=True, every_s=self._every_s)


def picture_lines(picture: Picture, most_failures: int = 10) -> Iterator[str]:
    """The whole picture in lines, as they are printed once."""
    if picture.note:
        yield printable(picture.note)
    for run in picture.runs:
        yield progress_line(run, rates=True)
        for failure in run.failures[:most_failures]:
            yield "  " + failure_line(failure)
    if not picture.runs:
        yield _NOTHING
    if picture.has_more:
        yield "there are more runs than are told apart"
    if picture.services:
        yield printable(services_line(picture.services))


def document(picture: Picture) -> dict[str, Any]:
    """The whole picture in JSON's types; what is not known is null."""
    return {
        "at_ms": picture.at_ms,
        "bootstrap": picture.bootstrap,
        "runs": [_run(run) for run in picture.runs],
        "has_more_runs": picture.has_more,
        "services": plain(list(picture.services)),
    }


def _run(run: RunFigures) -> dict[str, Any]:
    return {
        **plain(run),
        "reasons": dict(run.reasons),
        "active": run.active,
        "passed": run.passed,
        "failed": run.failed,
        "unscored": run.unscored,
        "invalid": run.invalid,
        "outcomes_missing": run.outcomes_missing,
    }
