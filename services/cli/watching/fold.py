"""One run's records, folded into its figures. Reading a record again changes nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heappush, heappushpop

from schemas.gate import GateStatus
from schemas.runs import RunState, RunStatus
from schemas.scores import SessionScored
from schemas.trajectory import AGENT_TURN, EndReason, TrajectoryEvent
from services.cli.watching.figures import (
    CategoryFigures,
    Failure,
    Known,
    RunFigures,
    planned_by_category,
)
from services.cli.watching.window import Window

MAX_SESSIONS = 100_000
MAX_FAILURES = 50
_ENOUGH = 5
"""Fewer judged sessions than this give no estimate."""
_MAX_REASON, _MAX_NAME = 300, 100
_ORDER = (RunState.ACCEPTED, RunState.RUNNING, RunState.SESSIONS_DONE, RunState.AGGREGATED)
_DONE = frozenset({RunState.AGGREGATED, RunState.REJECTED, RunState.FAILED})


@dataclass(slots=True)
class _Session:
    """What is remembered of one session, so that no record of it counts twice. It is not counted
    before its category is known, which those of its records tell that begin and that judge it.
    """

    category: str | None = None
    attempt: int = 0
    reason: str = ""
    outcome: str = ""


class RunFold:
    """What one run's records say so far.

    Two sources say how far it is: its coordinator's status, and its sessions' own records. The
    larger count is the later one. Memory is bounded by `max_sessions`: of what comes beyond, only
    the status knows, and `has_more` says so.
    """

    def __init__(
        self,
        run_id: str,
        known: Known,
        *,
        max_sessions: int = MAX_SESSIONS,
    ) -> None:
        """`known`: what it will be told of the run's sessions."""
        self.run_id = run_id
        self.current: RunStatus | None = None
        self._rank: tuple[int, ...] = ()
        self._verdict = ""
        self.known = known
        self._max_sessions = max_sessions
        self._sessions: dict[str, _Session] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._reasons: Counter[str] = Counter()
        self._ended = Window()
        self._scored = Window()
        self._turns = Window()
        self._failures: list[Failure] = []
        self._has_more = False

    def begin(self, since_ms: int) -> None:
        """What sessions did before is not known."""
        for window in (self._ended, self._scored, self._turns):
            window.begin(since_ms)

    def status(self, status: RunStatus) -> None:
        """The coordinator, or the pipeline, says how far it is."""
        place = _ORDER.index(status.state) if status.state in _ORDER else len(_ORDER)
        rank = (place, status.at_ms, status.ended, status.scored, status.stored)
        if self.current is None or rank > self._rank:
            self.current, self._rank = status, rank
            self.begin(status.requested_at_ms)

    def verdict(self, status: GateStatus) -> None:
        """The gate has decided."""
        self._verdict = status.verdict

    def event(self, event: TrajectoryEvent) -> None:
        """Something happened in a session."""
        if (start := event.session_started) is not None:
            self._known(event.session_id, start.category, start.attempt)
        elif (end := event.session_ended) is not None:
            self._ended.add(event.session_id, event.at_ms)
            session = self._session(event.session_id)
            if session is not None and not session.reason:
                self._change(session, end.reason, session.outcome)
        elif event.kind == AGENT_TURN:
            self._turns.add(event.event_id, event.at_ms)

    def score(self, score: SessionScored) -> Failure | None:
        """A session was judged. Returns what failed, the first time it is heard of."""
        session = self._known(score.session_id, score.category, score.attempt)
        if session is None or session.outcome:
            return None  # of a session's scores the first one counts
        self._scored.add(score.session_id, score.at_ms)
        outcome = _outcome(score)
        self._change(session, session.reason or score.end_reason or "unknown", outcome)
        if outcome not in ("failed", "invalid"):
            return None
        failure = _failure(score, outcome)
        if len(self._failures) < MAX_FAILURES:
            heappush(self._failures, failure)
        else:
            heappushpop(self._failures, failure)
        return failure

    def figures(self, now_ms: int) -> RunFigures:
        """What is known now. Must not be asked for times before one that was asked for."""
        status = self.current or RunStatus(run_id=self.run_id, state="")
        categories = tuple(self._categories(status))
        ended = sum(one.ended for one in categories)
        judged = sum(one.judged for one in categories)
        started = sum(one.started or 0 for one in categories)
        if not self._knows_starts:
            started = max(status.started, ended)
        began_ms = status.requested_at_ms
        until_ms = status.at_ms if status.state in _DONE else now_ms
        return RunFigures(
            run_id=self.run_id,
            state=status.state,
            verdict=self._verdict,
            suite=f"{status.suite} {status.suite_version}".strip(),
            agent=status.request.agent_id if status.request is not None else status.agent_name,
            planned=status.planned,
            started=started,
            ended=ended,
            scored=max(status.scored, judged),
            lost=status.lost,
            retried=status.retried,
            categories=categories,
            reasons=self._by_reason(status),
            sessions_per_s=self._per_second(self._ended, now_ms),
            turns_per_s=self._per_second(self._turns, now_ms),
            elapsed_s=max(0, until_ms - began_ms) / 1000 if began_ms else None,
            left_s=self._left_s(status, max(status.scored, judged), now_ms),
            failures=tuple(sorted(self._failures, reverse=True)),
            known=self.known,
            has_more=self._has_more,
        )

    @property
    def _knows_starts(self) -> bool:
        return self.known is Known.ALL and not self._has_more

    def _per_second(self, window: Window, now_ms: int) -> float | None:
        return None if self.known is Known.NONE else window.per_second(now_ms)

    def _session(self, session_id: str) -> _Session | None:
        """What is remembered of the session; None when no more are told apart."""
        session = self._sessions.get(session_id)
        if session is None:
            if len(self._sessions) >= self._max_sessions:
                self._has_more = True
                return None
            session = self._sessions[session_id] = _Session()
        return session

    def _known(self, session_id: str, category: str, attempt: int) -> _Session | None:
        """As `_session`, and from now on counted."""
        session = self._session(session_id)
        if session is not None and session.category is None:
            session.category, session.attempt = category[:_MAX_NAME], attempt
            self._count(session, 1)
        return session

    def _change(self, session: _Session, reason: str, outcome: str) -> None:
        self._count(session, -1)
        session.reason, session.outcome = reason, outcome
        self._count(session, 1)

    def _count(self, session: _Session, by: int) -> None:
        if session.category is None:
            return
        self._counts[session.category, "started"] += by
        if session.attempt:  # it stands for one before, that its simulator had spoilt
            self._counts[session.category, "again"] += by
        if session.reason:
            self._counts[session.category, "ended"] += by
            self._reasons[session.reason] += by
        if session.outcome:
            self._counts[session.category, session.outcome] += by

    def _categories(self, status: RunStatus) -> list[CategoryFigures]:
        planned = planned_by_category(status)
        names = {*planned, *status.categories, *(name for name, _ in self._counts)}
        return [
            self._category(name, planned.get(name, 0), status.categories.get(name, 0))
            for name in sorted(names)
        ]

    def _category(self, name: str, planned: int, ended: int) -> CategoryFigures:
        counts = {
            what: self._counts[name, what]
            for what in ("started", "ended", "again", "passed", "failed", "unscored", "invalid")
        }
        again = counts["again"]
        invalid = max(0, counts["invalid"] - again)
        judged = counts["passed"] + counts["failed"] + counts["unscored"] + invalid
        ended = max(ended, counts["ended"] - again, judged)
        return CategoryFigures(
            category=name,
            planned=planned,
            started=max(counts["started"] - again, ended) if self._knows_starts else None,
            ended=ended,
            passed=counts["passed"],
            failed=counts["failed"],
            unscored=counts["unscored"],
            invalid=invalid,
        )

    def _by_reason(self, status: RunStatus) -> tuple[tuple[str, int], ...]:
        """By whoever knows of more sessions."""
        again = sum(count for (_, what), count in self._counts.items() if what == "again")
        own = self._reasons.copy()
        own[EndReason.SIMULATOR_INVALID] = max(0, own[EndReason.SIMULATOR_INVALID] - again)
        said = Counter(dict(status.reasons))
        more = own if own.total() > said.total() else said
        return tuple(
            sorted(((k, v) for k, v in more.items() if v > 0), key=lambda one: (-one[1], one[0]))
        )

    def _left_s(self, status: RunStatus, scored: int, now_ms: int) -> float | None:
        """By the pace of judging lately, or of the whole run; at most what the deadline leaves."""
        if status.state in _DONE:
            return 0.0
        left = status.planned - scored
        elapsed_s = (now_ms - status.requested_at_ms) / 1000
        if not status.planned or not status.requested_at_ms or elapsed_s <= 0:
            return None
        pace = 0.0  # sessions judged a second
        if self._scored.count(now_ms) >= _ENOUGH:
            pace = self._scored.per_second(now_ms) or 0.0
        elif scored >= _ENOUGH:
            pace = scored / elapsed_s
        if left <= 0 or not pace:
            return None  # without sessions left, what is left is counting and deciding
        bound_s = status.request.deadline_s - elapsed_s if status.request is not None else None
        return left / pace if bound_s is None else max(0.0, min(left / pace, bound_s))


def _outcome(score: SessionScored) -> str:
    if not score.valid:
        return "invalid"
    if score.passed is None:
        return "unscored"
    return "passed" if score.passed else "failed"


def _failure(score: SessionScored, outcome: str) -> Failure:
    dimension, reason = "", score.invalid_reason or score.end_reason
    if outcome == "failed":
        gates = [one for one in score.dimensions if one.kind == "gate" and one.passed is False]
        if gates:
            dimension, reason = gates[0].dimension, gates[0].reason
    short = reason if len(reason) <= _MAX_REASON else reason[:_MAX_REASON] + "..."
    return Failure(
        at_ms=score.at_ms,
        session_id=score.session_id[:_MAX_NAME],
        scenario_id=score.scenario_id[:_MAX_NAME],
        what=outcome,
        dimension=dimension[:_MAX_NAME],
        reason=short,
    )


def figures_of(status: RunStatus) -> RunFigures:
    """What a status alone says."""
    fold = RunFold(status.run_id, Known.NONE)
    fold.status(status)
    return fold.figures(status.at_ms)
