"""Runs in plain lines: for logs, pipes, and terminals that can do nothing else."""

from __future__ import annotations

from collections.abc import Callable

from services.cli.escaping import printable
from services.cli.watching.figures import Failure, RunFigures
from services.runtime.clock import Clock

EVERY_S = 3.0
_MOST_FAILURES = 20
"""So many are told one by one within `EVERY_S`; of more, the number."""
_UNKNOWN = "-"


def progress_line(run: RunFigures, *, rates: bool = False) -> str:
    """One line on how far a run is.

    >>> from schemas.runs import RunStatus
    >>> from services.cli.watching.fold import figures_of
    >>> progress_line(figures_of(RunStatus(run_id="r1", state="accepted")))
    'r1 accepted'
    """
    parts = [f"{run.run_id} {run.state or 'requested'}"]
    if run.planned:
        parts.append(f"{run.ended}/{run.planned} ended, {run.scored} scored")
    if run.retried:
        parts.append(f"{run.retried} played again")
    if run.lost:
        parts.append(f"{run.lost} lost")
    parts += [f"{one.category} {one.ended}/{one.planned}" for one in run.categories]
    if rates:
        parts += _watched(run)
    return printable(": ".join(parts[:2]) + "".join(f", {part}" for part in parts[2:]))


def failure_line(failure: Failure) -> str:
    """One line on a session that failed: the scenario first, then which session, and why."""
    why = ": ".join(part for part in (failure.dimension, failure.reason) if part)
    return printable(f"{failure.what}: {failure.scenario_id} session {failure.session_id}: {why}")


def duration(seconds: float | None) -> str:
    """Seconds as people say them.

    >>> duration(4000), duration(125), duration(7.4), duration(None)
    ('1 h 6 min', '2 min 5 s', '7 s', 'unknown')
    """
    if seconds is None:
        return "unknown"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest and minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def rate(per_second: float | None) -> str:
    """A rate with as many digits as it has meaning."""
    if per_second is None:
        return _UNKNOWN
    return f"{per_second:.0f}" if per_second >= 100 else f"{per_second:.1f}"


class Lines:
    """Tells of one run what has changed, seldom enough to be read, and every failure."""

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Clock,
        *,
        rates: bool,
        every_s: float = EVERY_S,
    ) -> None:
        """`rates`: sessions are watched, so that there is more to tell than how far the run is."""
        self._tell = tell
        self._clock = clock
        self._rates = rates
        self._every_s = every_s
        self._said = ""
        self._state = ("", "")
        self._at: float | None = None
        self._failures_at = clock.monotonic()
        self._failures = 0

    def show(self, run: RunFigures) -> None:
        """Tell how far it is: at once when its state has changed, else every few seconds."""
        self.settle()
        now = self._clock.monotonic()
        counts = f"{progress_line(run)} {run.failed} {run.invalid}"
        is_due = self._at is None or now - self._at >= self._every_s
        if counts == self._said or not (is_due or (run.state, run.verdict) != self._state):
            return
        self._said, self._state, self._at = counts, (run.state, run.verdict), now
        self._tell(progress_line(run, rates=self._rates))

    def failed(self, failure: Failure) -> None:
        """Tell what failed."""
        self.settle()
        self._failures += 1
        if self._failures <= _MOST_FAILURES:
            self._tell(failure_line(failure))

    def settle(self, *, is_last: bool = False) -> None:
        """Tell, when it is time to, or for the last time, how many failures were held back."""
        now = self._clock.monotonic()
        if not is_last and now - self._failures_at < self._every_s:
            return
        if self._failures > _MOST_FAILURES:
            self._tell(f"and {self._failures - _MOST_FAILURES} more failures")
        self._failures, self._failures_at = 0, now


def _watched(run: RunFigures) -> list[str]:
    parts = [f"{run.active} active", f"{run.passed} passed"]
    parts += [
        f"{count} {what}"
        for what, count in (
            ("failed", run.failed), ("unscored", run.unscored), ("invalid", run.invalid),
        )
        if count
    ]  # fmt: skip
    if run.sessions_per_s is not None:
        parts.append(f"{rate(run.sessions_per_s)} sessions/s")
    if run.turns_per_s is not None:
        parts.append(f"{rate(run.turns_per_s)} turns/s")
    if run.left_s is None:
        return [*parts, "time left unknown"]
    return [*parts, f"about {duration(run.left_s)} left"] if run.left_s else parts
