"""What a span is before it is exported, and what its attributes may be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from services.runtime.telemetry_names import Attribute

Value = str | int | float | bool
MAX_TEXT = 1024
"""Characters of an attribute."""
MAX_CONTENT = 8192
"""Characters of an attribute that quotes what was said: it is what bounds the queue's memory."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something at one moment of a span."""

    name: str
    at_ms: int
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Span:
    """A span that is over. Times in milliseconds since the epoch; `error` makes it a failed one.

    `parent_is_remote`: the parent is the agent's; `outgoing`: what it covers is done elsewhere.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    error: str = ""
    parent_is_remote: bool = False
    outgoing: bool = False
    events: tuple[SpanEvent, ...] = field(default=())


def message(role: str, text: str) -> str:
    """One message in the form that the conventions give."""
    text = _writable(text[:MAX_CONTENT])
    while True:
        part = {"type": "text", "content": text}
        encoded = orjson.dumps([{"role": role, "parts": [part]}]).decode()
        if len(encoded) <= MAX_CONTENT:
            return encoded
        text = text[: MAX_CONTENT - len(encoded)]


def known(*pairs: tuple[Attribute, Value | None]) -> Mapping[str, Value]:
    """What is known of these, nothing longer than it may be."""
    found: dict[str, Value] = {}
    for attribute, value in pairs:
        if isinstance(value, str):
            value = _writable(value[: MAX_CONTENT if attribute.content else MAX_TEXT])
        if value is not None and value != "":
            found[attribute.name] = value
    return found


def _writable(text: str) -> str:
    """Without what UTF-8 cannot express: one such text would lose the whole batch it is in."""
    return text.encode(errors="replace").decode()
