"""Which calls a selector is for, and on which of those it is drawn. Pure.

A call *matches* a selector that fits its tool and arguments, its conversation, and how much of
the session has passed. The matching calls of a session are numbered from 1, and everything else
is decided by that number: by `calls`, by the dice of the session's seed, and by `burst`. So what
happens to one selector's calls does not depend on those of another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from schemas.briefs import ToolBrief
from schemas.faults import CallSelector, Failure
from schemas.spans import NOTHING, length_of, unit_of
from schemas.world_time import elapsed_s, seconds

UNSELECTED = frozenset(
    {"tool_unknown", "arguments_invalid", "tool_call_limit", "tool_schema_invalid",
     "world_unknown"}
)  # fmt: skip
"""Calls that the proxy refuses with these never reach any selector, and are not numbered."""
_LONGEST_TEXT = 4096
"""Of an argument that is compared with a glob, so that no call can make the comparison long."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a call is made, by ordinals from 1 that count over the whole session."""

    conversation: int = 1
    turn: int = 1
    call: int = 1


def fits(selector: CallSelector, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a selector is for such calls, whenever they are made."""
    if selector.tool not in ("*", tool):
        return False
    return all(
        name in arguments and same(arguments[name], value)
        for name, value in selector.arguments.items()
    ) and all(
        name in arguments and fnmatchcase(_text(arguments[name]), pattern)
        for name, pattern in selector.like.items()
    )


def counts_calls(selector: CallSelector, brief: ToolBrief) -> bool:
    """Whether all calls of a session, also those it does not fit, decide when it is for calls."""
    units = {
        unit_of(span) for span in (selector.after, selector.until or NOTHING) if span != NOTHING
    }
    takes_time = brief.world is not None and seconds(brief.world.call_takes) > 0
    return "call" in units or (takes_time and "time" in units)


def in_time(selector: CallSelector, brief: ToolBrief, moment: Moment) -> bool:
    """Whether a selector is for calls of this conversation, and of this part of the session."""
    if selector.conversations and moment.conversation not in selector.conversations:
        return False
    return _passed(selector.after, brief, moment) and not (
        selector.until is not None and _passed(selector.until, brief, moment)
    )


def _passed(span: str, brief: ToolBrief, moment: Moment) -> bool:
    """Whether so much of the session is over when the call is made."""
    if span == NOTHING:
        return True
    match unit_of(span):
        case "turn":
            done = moment.turn - 1
        case "call":
            done = moment.call - 1
        case _:
            done = elapsed_s(brief, moment.conversation, moment.turn, moment.call)
    return done >= length_of(span)


def chance(selector: CallSelector, multiplier: float) -> float:
    """How likely each selected call is drawn. The run's multiplier concerns failures alone."""
    factor = multiplier if isinstance(selector, Failure) else 1.0
    return min(1.0, selector.probability * factor)


def strikes(selector: CallSelector, key: str, seed: int, multiplier: float, ordinal: int) -> bool:
    """Whether the n-th matching call is struck, unless `times` is used up by then.

    It is when it was drawn itself, or one of the `burst - 1` matching calls before it was. Drawn
    are those in `calls`, each with the selector's chance. `key` tells selectors of one brief apart.
    """
    if selector.burst == 1:
        return is_drawn(selector, key, seed, multiplier, ordinal)
    earliest = max(1, ordinal - selector.burst + 1)
    return any(
        is_drawn(selector, key, seed, multiplier, number)
        for number in range(ordinal, earliest - 1, -1)
    )


def is_drawn(selector: CallSelector, key: str, seed: int, multiplier: float, ordinal: int) -> bool:
    """Whether the n-th matching call itself is drawn: selected by `calls`, and by the dice."""
    if selector.calls and ordinal not in selector.calls:
        return False
    likely = chance(selector, multiplier)
    return likely >= 1 or fraction(seed, key, ordinal) < likely


def fraction(seed: int, key: str, ordinal: int) -> float:
    """A number in [0, 1) for a selector's n-th matching call, whatever others have drawn."""
    data = hashlib.blake2b(f"{seed}\0{key}\0{ordinal}".encode(), digest_size=8).digest()
    return (int.from_bytes(data, "big") >> 11) / (1 << 53)


def same(left: Any, right: Any) -> bool:
    """Equality as JSON has it: 1 equals 1.0, and true equals neither."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:_LONGEST_TEXT]
