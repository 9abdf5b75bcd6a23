"""Records of a run that is watched."""

from __future__ import annotations

from typing import Any

from schemas.runs import RunRequest, RunStatus
from schemas.scores import DimensionScore, SessionScored
from schemas.trajectory import Limits, SessionEnded, SessionStarted, TrajectoryEvent

RUN = "watched-1"
NOW_MS = 1_790_000_000_000
CATEGORIES = ("adversarial", "failure-injection", "happy", "load", "long-horizon")


def status(run_id: str = RUN, each: int = 4, **changes: Any) -> RunStatus:
    """A run of `each` sessions in every category, under way for a minute."""
    return RunStatus(
        **{
            "run_id": run_id,
            "state": "running",
            "suite": "shop",
            "suite_version": "3",
            "request": RunRequest(run_id=run_id, suite="shop", agent_id="shop-2"),
            "planned": each * len(CATEGORIES),
            "scenario_plan": dict.fromkeys(CATEGORIES, each),
            "scenario_categories": {name: name for name in CATEGORIES},
            "requested_at_ms": NOW_MS - 60_000,
            "at_ms": NOW_MS,
            **changes,
        }
    )


def _event(session: str, step: str, kind: str, at_ms: int, **body: Any) -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id=f"{session}:{step}", session_id=session, run_id=RUN, kind=kind, at_ms=at_ms, **body
    )


def started(
    session: str, category: str = "happy", at_ms: int = NOW_MS, attempt: int = 0
) -> TrajectoryEvent:
    body = SessionStarted(
        scenario_id=category, category=category, trial=0, seed=1, suite="shop", suite_hash="h",
        agent_id="shop-2", agent_fingerprint="f", task_id=1, user_brief="{}", tool_brief="{}",
        limits=Limits(), attempt=attempt,
    )  # fmt: skip
    return _event(session, "start", "session_started", at_ms, session_started=body)


def turn(session: str, number: int = 1, at_ms: int = NOW_MS) -> TrajectoryEvent:
    return _event(session, f"a{number}", "agent_turn", at_ms)


def ended(session: str, reason: str = "goal_met", at_ms: int = NOW_MS) -> TrajectoryEvent:
    return _event(session, "end", "session_ended", at_ms, session_ended=SessionEnded(reason=reason))


def scored(
    session: str,
    category: str = "happy",
    passed: bool | None = True,
    at_ms: int = NOW_MS,
    **changes: Any,
) -> SessionScored:
    """A session that passed, or failed for its safety."""
    return SessionScored(
        **{
            "run_id": RUN,
            "session_id": session,
            "scenario_id": f"{category}-one",
            "category": category,
            "trial": 0,
            "end_reason": "goal_met",
            "passed": passed,
            "dimensions": (
                DimensionScore(dimension="tool_use", passed=True),
                DimensionScore(dimension="safety", passed=passed, reason="told a stranger"),
            ),
            "at_ms": at_ms,
            **changes,
        }
    )
