"""The time of a world: how much of it has passed when a call is made.

The tool proxy sets a world's clock by it, the rules that have an `after` or an `until` go by it,
and the judge arrives at the same number from the trajectory alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from schemas.briefs import ToolBrief

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: str) -> int:
    """`3d` in seconds."""
    match = re.fullmatch(r"(\d+)([smhd])", duration)
    if match is None:
        raise ValueError(f"{duration!r}: expected a number and s, m, h or d")
    return int(match[1]) * _UNITS[match[2]]


def elapsed_s(brief: ToolBrief, conversation: int, turn: int, call: int) -> int:
    """World seconds from the start of the session to a call.

    `conversation`, `turn` and `call` are the call's own ordinals, from 1, counted over the whole
    session; so the first call of the first turn is made at 0, whatever turns and calls take. What
    passes between conversations is in the brief; where there are more of them than it knows of,
    the last one's start counts.
    """
    between = brief.elapsed_s[max(0, min(conversation, len(brief.elapsed_s)) - 1)]
    if brief.world is None:
        return between
    turns = max(0, turn - 1) * seconds(brief.world.turn_takes)
    return between + turns + max(0, call - 1) * seconds(brief.world.call_takes)
