"""When a session under load ran, and how long its agent took.

The time of a first turn runs from when the session was to start, not from when there was room for
it: what waits for a slow agent is part of how slow it is (coordinated omission). A turn with an
error has no time, since a quick error is no quick answer; one that timed out took at least so long.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.scenario import Category
from schemas.scores import SessionTiming
from schemas.trajectory import TrajectoryEvent

_INFRASTRUCTURE = "infrastructure"
_TIMED = ("ok", "timeout")


def timing_of(events: Sequence[TrajectoryEvent]) -> SessionTiming | None:
    """The times of an ended session of a load scenario; None for others. Of several events with
    one id the first counts."""
    start = next((e for e in events if e.session_started), None)
    end = next((e for e in events if e.session_ended), None)
    if start is None or end is None or start.session_started is None:
        return None
    if start.session_started.category != Category.LOAD:
        return None
    planned_at = start.session_started.planned_at_ms or start.at_ms
    due_late_ms = max(0, start.at_ms - planned_at)
    first: dict[str, TrajectoryEvent] = {}
    for event in events:
        first.setdefault(event.event_id, event)
    turns = [
        e.agent_turn
        for e in first.values()
        if e.agent_turn
        and e.agent_turn.outcome != _INFRASTRUCTURE  # whose fault is not the agent's
    ]
    return SessionTiming(
        planned_at_ms=planned_at,
        started_at_ms=start.at_ms,
        ended_at_ms=end.at_ms,
        turn_ms=tuple(
            turn.latency_ms + (due_late_ms if number == 0 else 0)
            for number, turn in enumerate(turns)
            if turn.outcome in _TIMED
        ),
        failed_turns=sum(turn.outcome != "ok" for turn in turns),
        turns=len(turns),
    )
