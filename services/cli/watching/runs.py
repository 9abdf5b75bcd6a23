"""All runs of a stack that are under way, or were just now."""

from __future__ import annotations

from collections import OrderedDict

from schemas.gate import GateStatus
from schemas.runs import RunState, RunStatus
from schemas.scores import SessionScored
from schemas.trajectory import TrajectoryEvent
from services.cli.watching.figures import Failure, Known, RunFigures
from services.cli.watching.fold import RunFold
from services.runtime.clock import Clock

MAX_RUNS = 200
KEPT_MS = 60_000
"""So long a run is shown after its end."""
_GRACE_MS = 300_000
"""For judging and deciding after a run's own deadline; who has no verdict then gets none."""
_MAX_VERDICTS = 1_000
_ENDED = frozenset({RunState.REJECTED, RunState.FAILED})


class Runs:
    """Folds the records of many runs, and forgets runs that have ended.

    At most `MAX_RUNS` are held; of further ones `has_more` says that there are some. The sessions
    of a run are told apart from the run's first status on.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._folds: OrderedDict[str, RunFold] = OrderedDict()
        self._verdicts: OrderedDict[str, GateStatus] = OrderedDict()
        self.has_more = False

    def begin(self, since_ms: int) -> None:
        """What the sessions of these runs did before is not known."""
        for fold in self._folds.values():
            fold.begin(since_ms)

    def status(self, status: RunStatus) -> None:
        fold = self._folds.get(status.run_id)
        if fold is None:
            if self._is_over(status, self._verdicts.get(status.run_id)):
                return
            if len(self._folds) >= MAX_RUNS:
                self._forget()
            if len(self._folds) >= MAX_RUNS:
                self.has_more = True
                return
            fold = self._folds[status.run_id] = RunFold(status.run_id, Known.SOME)
            if (verdict := self._verdicts.get(status.run_id)) is not None:
                fold.verdict(verdict)
        fold.status(status)

    def verdict(self, verdict: GateStatus) -> None:
        # Without its reasons and differences, of which there are many.
        short = GateStatus(run_id=verdict.run_id, verdict=verdict.verdict, at_ms=verdict.at_ms)
        self._verdicts[verdict.run_id] = short
        self._verdicts.move_to_end(verdict.run_id)
        if len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.popitem(last=False)
        if (fold := self._folds.get(verdict.run_id)) is not None:
            fold.verdict(verdict)

    def event(self, event: TrajectoryEvent) -> None:
        if (fold := self._folds.get(event.run_id)) is not None:
            fold.event(event)

    def score(self, score: SessionScored) -> Failure | None:
        """As `RunFold.score`."""
        fold = self._folds.get(score.run_id)
        return None if fold is None else fold.score(score)

    def wants(self, run_id: str) -> bool:
        """Whether records of the run's sessions are of any use."""
        return run_id in self._folds

    def figures(self) -> list[RunFigures]:
        """The runs under way, the oldest first, and then those that ended just now."""
        self._forget()
        now_ms = self._clock.now_ms()
        found = [fold.figures(now_ms) for fold in self._folds.values()]
        return sorted(found, key=is_over)

    def _forget(self) -> None:
        for run_id, fold in list(self._folds.items()):
            status = fold.current
            if status is not None and self._is_over(status, self._verdicts.get(run_id)):
                del self._folds[run_id]
                self.has_more = False

    def _is_over(self, status: RunStatus, verdict: GateStatus | None) -> bool:
        now_ms = self._clock.now_ms()
        if status.state in _ENDED:
            return now_ms - status.at_ms > KEPT_MS
        if verdict is not None:
            return now_ms - verdict.at_ms > KEPT_MS
        deadline_s = status.request.deadline_s if status.request is not None else 0
        return now_ms > max(status.requested_at_ms + deadline_s * 1000, status.at_ms) + _GRACE_MS


def is_over(run: RunFigures) -> bool:
    """Whether nothing more will come of a run."""
    return bool(run.verdict) or run.state in _ENDED
