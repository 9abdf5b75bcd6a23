"""Ids of traces and spans, and W3C Trace Context's `traceparent`. Pure.

A session is a trace. Ids are hashes: of the session's id, and of the id of the event that a span
belongs to. So a replay makes the same spans again, and every service can name a span's parent
without having seen it. They tell nothing of what they are made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.runtime.ids import digest

HEADER = "traceparent"
JOINED, MALFORMED, FOREIGN, UNSAMPLED = "joined", "malformed", "foreign", "unsampled"
OUTCOMES = (JOINED, MALFORMED, FOREIGN, UNSAMPLED)
"""What becomes of a traceparent that an agent sends."""
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_FIRST_VERSION, _NO_VERSION = "00", "ff"
_SAMPLED = 1
_LONGEST = 512


def trace_id(session_id: str) -> int:
    """128 bits, never 0."""
    return int.from_bytes(digest("trace", session_id, size=16), "big") or 1


def span_id(event_id: str) -> int:
    """64 bits, never 0: of the span that belongs to an event."""
    return int.from_bytes(digest("span", event_id, size=8), "big") or 1


def session_event(session_id: str) -> str:
    """The id of the event that a session's span, the root of its trace, belongs to."""
    return f"{session_id}:start"


def turn_event(session_id: str, turn: int) -> str:
    """The id of the event that a turn's span belongs to."""
    return f"{session_id}:a{turn}"


def traceparent(session_id: str, turn: int) -> str:
    """What the agent is given with a turn: the turn's span, sampled."""
    parent = span_id(turn_event(session_id, turn))
    return f"{_FIRST_VERSION}-{trace_id(session_id):032x}-{parent:016x}-{_SAMPLED:02x}"


def accept(values: Sequence[str], session_id: str) -> tuple[str, int | None]:
    """What becomes of the traceparent of a request, one of `OUTCOMES`, and the id of its span.

    There is one only if it is joined: of the session's own trace, and sampled. A span that the
    agent does not export would leave ours without a parent.

    Args:
        values: The header's values, in the order received; not empty.
    """
    found = _FORM.fullmatch(values[0].strip(" \t")) if _is_one(values) else None
    if found is None:
        return MALFORMED, None
    version, trace, span, flags, more = found.groups()
    if version == _NO_VERSION or (version == _FIRST_VERSION and more is not None):
        return MALFORMED, None
    if not int(trace, 16) or not int(span, 16):
        return MALFORMED, None
    if int(trace, 16) != trace_id(session_id):
        return FOREIGN, None
    if not int(flags, 16) & _SAMPLED:
        return UNSAMPLED, None
    return JOINED, int(span, 16)


def _is_one(values: Sequence[str]) -> bool:
    return len(values) == 1 and len(values[0]) <= _LONGEST
