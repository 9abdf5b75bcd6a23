"""The judge's part of a session, as a pure fold over its events and its score.

A session is scored when it has ended, and the run's coordinator is told when the score is in the
log: of two scores for one session the first counts, for the coordinator as for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.runs import SessionNotice
from schemas.scores import SessionScored
from schemas.trajectory import TrajectoryEvent
from services.runtime.bus.records import Incoming

SCORE = "score"
NOTIFY = "notify"


@dataclass(slots=True)
class JudgedSession:
    """What the judge remembers of a session."""

    session_id: str
    events: list[TrajectoryEvent]
    ended: bool = False
    scored: SessionScored | None = None
    """The score that counts, once it was read back."""
    notified: bool = False


class JudgeCore:
    """The fold. See `services.runtime.core.Core` for what each method owes."""

    def __init__(self, codec: Codec, unreadable: Callable[[Incoming, str], None]) -> None:
        """`unreadable` hears of scores that cannot be read, with the reason."""
        self._codec = codec
        self._unreadable = unreadable

    def start(self, record: TrajectoryEvent) -> JudgedSession:
        if record.session_started is None:
            raise DecodeError(f"{record.event_id}: no body of session_started")
        return JudgedSession(record.session_id, [record])

    def apply(self, state: JudgedSession, record: TrajectoryEvent) -> None:
        if not state.ended:
            state.events.append(record)
            state.ended = record.session_ended is not None

    def foreign(self, state: JudgedSession, incoming: Incoming) -> None:
        if state.scored is not None:
            return
        try:
            scored = self._codec.decode(SessionScored, incoming.value)
            if scored.session_id != state.session_id:
                raise DecodeError(f"a score of {scored.session_id!r} under another key")
        except DecodeError as error:
            self._unreadable(incoming, str(error))
            return
        state.scored = scored

    def wants(self, state: JudgedSession) -> Hashable | None:
        if state.scored is not None:
            return None if state.notified else NOTIFY
        return SCORE if state.ended else None

    def finished(self, state: JudgedSession) -> bool:
        return state.notified


def notice_of(scored: SessionScored, at_ms: int) -> SessionNotice:
    """What a run's coordinator is told about a scored session."""
    return SessionNotice(
        run_id=scored.run_id,
        session_id=scored.session_id,
        scenario_id=scored.scenario_id,
        category=scored.category,
        trial=scored.trial,
        what="scored",
        reason=scored.end_reason,
        valid=scored.valid,
        passed=scored.passed,
        at_ms=at_ms,
    )
