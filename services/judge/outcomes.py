"""What a tool call came to, and which calls a pattern means. The one place that decides.

A call **succeeded** when all of this holds:

- it was not refused: no `error_code`, and a status below 400;
- it was answered by the world or the real tool (`odyssey`, `passthrough`), or by something put in
  that still is the tool's answer: a canned response, or an injection of kind `content` (a planted
  text), `slow` or `partial`. The other kinds of injection, `FAILING`, take the answer away;
- the answer does not itself report an error: it is no object with an `error` that is neither
  null, false nor empty.

A call was **refused for the agent's own mistake** when it has an `error_code`, nothing was
injected, and the status is a 4xx other than 408, 425 and 429, which concern time and load. Running
into the session's bound on tool calls (`tool_call_limit`) is no mistake of this kind.

Values are compared as JSON: `1` equals `1.0`, `true` does not equal `1`, objects have no order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jsonpointer import EndOfList, JsonPointer, JsonPointerException

from schemas.moments import CallMatch, Condition
from services.judge.trajectory import Call

FAILING = frozenset({"timeout", "schema_mismatch", "outage", "malformed", "rate_limit"})
"""Kinds of injection after which the agent has no answer to work with."""

_ANSWERING = frozenset({"odyssey", "passthrough", "injected"})
_TOOL_CALL_LIMIT = "tool_call_limit"
_ABOUT_TIME_AND_LOAD = frozenset({408, 425, 429})


class MalformedBrief(Exception):
    """The scenario asks for something that cannot be looked up, such as a broken JSON pointer."""


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()
"""What `at` gives for a pointer that leads nowhere."""


def succeeded(call: Call) -> bool:
    """Whether the call did what it was made for, as defined above."""
    body = call.body
    if body.error_code is not None or body.status >= 400 or body.source not in _ANSWERING:
        return False
    if failed_by_injection(call):
        return False
    return not (isinstance(call.response, dict) and call.response.get("error"))


def failed_by_injection(call: Call) -> bool:
    """Whether the call's answer was taken away by an injected failure."""
    return call.body.injection is not None and call.body.injection.kind in FAILING


def refused_for_mistake(call: Call) -> bool:
    """Whether the proxy refused the call because of what the agent sent."""
    body = call.body
    return (
        body.error_code not in (None, _TOOL_CALL_LIMIT)
        and body.injection is None
        and 400 <= body.status < 500
        and body.status not in _ABOUT_TIME_AND_LOAD
    )


def matches(call: Call, pattern: CallMatch, *, ok: bool | None = None) -> bool:
    """Whether a call fits a pattern: tool, arguments it has at least and what they are like,
    success, response, and who made it.

    `ok` is what applies where the pattern does not say; None: either.

    Raises:
        MalformedBrief: a key of the pattern's `response` or `where` is no JSON pointer.
    """
    wanted = pattern.ok if pattern.ok is not None else ok
    return (
        call.tool == pattern.tool
        and (pattern.actor is None or is_actor(call.body.actor, pattern.actor))
        and _has(call, pattern.arguments)
        and all(fits(at(call.arguments, key), like) for key, like in pattern.where.items())
        and (wanted is None or succeeded(call) is wanted)
        and all(same(at(call.response, key), value) for key, value in pattern.response.items())
    )


def is_actor(path: str | None, name: str) -> bool:
    """Whether a call path is that of the sub-agent: its whole path, or labels at the end of it."""
    return path is not None and f"/{path}".endswith(f"/{name}")


def fits(value: Any, condition: Condition) -> bool:
    """Whether a value is like what a condition asks for; what is not there is not."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (
        value is not ABSENT
        and (condition.above is None or (number and value > condition.above))
        and (condition.below is None or (number and value < condition.below))
        and (
            condition.matches is None
            or (isinstance(value, str) and condition.matches.found_in(value))
        )
        and (not condition.one_of or any(same(value, one) for one in condition.one_of))
        and not any(same(value, one) for one in condition.none_of)
    )


def _has(call: Call, arguments: Mapping[str, Any]) -> bool:
    return all(same(call.arguments.get(name, ABSENT), arguments[name]) for name in arguments)


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def at(document: Any, pointer: str) -> Any:
    """The value at a JSON pointer, or ABSENT.

    Raises:
        MalformedBrief: it is no JSON pointer.
    """
    try:
        parsed = JsonPointer(pointer)
    except JsonPointerException as error:
        raise MalformedBrief(f"{pointer!r} is not a JSON pointer: {error}") from error
    value = parsed.resolve(document, ABSENT)
    return ABSENT if isinstance(value, EndOfList) else value


def show(value: Any, limit: int = 80) -> str:
    """A value as short JSON, for reasons that people read."""
    text = repr(value) if value is ABSENT else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def describe(pattern: CallMatch) -> str:
    """`refund_order(order_id="7")`, with what else the pattern asks for."""
    asked = [f"{name}={show(value)}" for name, value in pattern.arguments.items()]
    asked += [
        f"{key} {show(like.model_dump(mode='json', exclude_defaults=True))}"
        for key, like in pattern.where.items()
    ]
    text = f"{pattern.tool}({', '.join(asked)})" if asked else pattern.tool
    if pattern.ok is not None:
        text += " (succeeding)" if pattern.ok else " (failing)"
    if pattern.response:
        text += f" answering {show(dict(pattern.response))}"
    return text + (f" by {pattern.actor}" if pattern.actor else "")


def call_key(call: Call) -> tuple[str, str]:
    """Equal for calls of one tool with the same arguments."""
    return call.tool, canonical(call.arguments)


def canonical(value: Any) -> str:
    """Equal texts for values that are the same JSON."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
