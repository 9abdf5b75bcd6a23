"""How often failures strike, against exact bounds, and what deciding it costs.

`python -m tests.bench.injection` plays 10,000 seeded calls for every kind of failure through the
tool proxy's own parts, lets the judge hold the record against the plan, and prints JSON.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.briefs import ToolBrief
from schemas.injection_plan import recorded_plan
from schemas.selection import Moment
from services.tool_proxy import rules
from tests.support.binomial import bounds, clopper_pearson
from tests.support.injected import KINDS, LOOKUP, Played, brief_with, play, why_invalid
from tests.support.tool_proxy import STATE

ANSWER = STATE["orders"]["2"]
RATE = 0.03
SESSIONS, CALLS = 10, 1000
_ALPHA = 1e-4
_REPEATS = 20_000


@dataclass(frozen=True)
class Session:
    """One session, and why the judge would not let it count."""

    brief: ToolBrief
    played: Played
    invalid: str


@dataclass(frozen=True)
class Measured:
    """All sessions with failures of one kind."""

    kind: str
    sessions: tuple[Session, ...]

    @property
    def calls(self) -> int:
        return sum(len(session.played.replies) for session in self.sessions)

    @property
    def struck(self) -> int:
        return sum(sum(session.played.injected) for session in self.sessions)


@functools.cache
def measured(kind: str) -> Measured:
    """10,000 calls over ten seeds, each of which fails in this way at the rate of production."""
    # A name of its own for each kind, so that each has its own dice.
    failures = [{"id": f"a-{kind}", "kind": kind, "probability": RATE, **KINDS[kind]}]
    sessions = []
    for seed in range(SESSIONS):
        # A canned answer: what a world costs is not the question here.
        brief = brief_with(failures, seed=seed, world=None, rules=[{"respond": ANSWER}])
        played = play(brief, [LOOKUP] * CALLS)
        sessions.append(Session(brief, played, why_invalid(played, failures, brief)))
    return Measured(kind, tuple(sessions))


def report() -> dict[str, Any]:
    """Rates by kind with the exact bounds for them, and microseconds."""
    by_kind = {}
    for kind in KINDS:
        one = measured(kind)
        low, high = clopper_pearson(one.calls, one.struck, _ALPHA)
        least, most = bounds(one.calls, RATE, _ALPHA)
        by_kind[kind] = {
            "calls": one.calls,
            "struck": one.struck,
            "rate": one.struck / one.calls,
            "asked_for": RATE,
            "exact_interval": [round(low, 5), round(high, 5)],
            "counts_within_bounds": [least, most],
            "within": least <= one.struck <= most and low < RATE < high,
            "sessions_that_count": sum(session.invalid == "" for session in one.sessions),
        }
    return {"alpha": _ALPHA, "kinds": by_kind, "microseconds": _costs()}


def _costs() -> dict[str, float]:
    none = brief_with([])
    eight = brief_with(
        [{"id": f"a-{kind}", "kind": kind, "probability": RATE, **KINDS[kind]} for kind in KINDS]
    )
    moment, (tool, arguments) = Moment(), LOOKUP

    def deciding(brief: ToolBrief) -> Callable[[], object]:
        count = [0] * len(brief.failures)
        return lambda: rules.select(brief, count, count, tool, arguments, moment)

    return {
        "deciding_without_failures": _micros(deciding(none), _REPEATS),
        "deciding_among_8_failures": _micros(deciding(eight), _REPEATS // 10),
        "planning_8_failures_over_40_calls": _micros(
            lambda: recorded_plan(eight.failures, 1, 1.0, 40), _REPEATS // 100
        ),
    }


def _micros(work: Callable[[], object], repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    return round((time.perf_counter() - started) / repeats * 1e6, 2)


if __name__ == "__main__":
    print(json.dumps(report(), indent=2))
