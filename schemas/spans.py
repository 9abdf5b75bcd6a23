"""How much of a session has to pass: time of its world, turns of the user, or tool calls."""

from __future__ import annotations

from schemas.world_time import seconds

SPAN = r"^\d+(s|m|h|d| turns?| calls?)$"
NOTHING = "0s"
"""What has always passed."""


def unit_of(span: str) -> str:
    """What a span is counted in: `time` of the world, `turn` or `call`."""
    return span.partition(" ")[2].rstrip("s") or "time"


def length_of(span: str) -> int:
    """How many world seconds, turns or calls a span is.

    >>> length_of("3 turns"), length_of("2h")
    (3, 7200)

    Raises:
        ValueError: it is no span.
    """
    return seconds(span) if unit_of(span) == "time" else int(span.partition(" ")[0])
