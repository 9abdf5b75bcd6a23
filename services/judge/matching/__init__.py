"""Trajectory matching: an agent's tool calls against those of a reference trajectory.

    calls = calls_of_events(trajectory.events)
    found = match(calls, reference_messages, mode="superset", arguments="subset")
    found.matched, found.score, found.explanation

Pure functions over calls and messages. docs/trajectory-matching.md says what each mode and
profile means.
"""

from services.judge.matching.arguments import ArgumentsMode, Difference, Override, Overrides
from services.judge.matching.calls import Call, calls_of_events, messages_of_events
from services.judge.matching.errors import (
    InvalidOptions,
    MatcherFailed,
    MatchingError,
    PackageRaises,
    TooManyCalls,
    UnreadableMessages,
)
from services.judge.matching.graph import match_graph
from services.judge.matching.match import Mode, Profile, match
from services.judge.matching.messages import calls_of_messages
from services.judge.matching.result import (
    Candidate,
    Divergence,
    Extra,
    GraphMatch,
    Match,
    Missing,
    Pair,
)

__all__ = [
    "ArgumentsMode",
    "Call",
    "Candidate",
    "Difference",
    "Divergence",
    "Extra",
    "GraphMatch",
    "InvalidOptions",
    "Match",
    "MatcherFailed",
    "MatchingError",
    "Missing",
    "Mode",
    "Override",
    "Overrides",
    "PackageRaises",
    "Pair",
    "Profile",
    "TooManyCalls",
    "UnreadableMessages",
    "calls_of_events",
    "calls_of_messages",
    "match",
    "match_graph",
    "messages_of_events",
]
