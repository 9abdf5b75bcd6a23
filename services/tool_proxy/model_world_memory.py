"""What a model that plays a session's tools is told of the calls before: the latest, shortened."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.trajectory import ToolCalled

MAX_CALLS = 50
_MAX_TEXT = 4000
_MAX_TEXTS = 48_000
_CARRIED_OUT = frozenset({"content", "partial", "slow"})
"""Injected failures whose call was answered all the same, in another form or late."""


@dataclass(frozen=True, slots=True)
class TellingCall:
    """A call that had an effect. `response` is None where what the caller got was not the tool's
    own answer: the model that plays the tool must not read what was planted for the agent."""

    requestor: str
    tool: str
    arguments: str
    response: str | None

    @property
    def size(self) -> int:
        return len(self.tool) + len(self.arguments) + len(self.response or "")


def with_call(told: tuple[TellingCall, ...], called: ToolCalled) -> tuple[TellingCall, ...]:
    """The calls with one more, without the oldest where they become too many."""
    if called.error_code is not None or called.source == "transport_error":
        return told
    struck = called.injection
    if struck is not None and struck.kind not in _CARRIED_OUT:
        return told
    answer = called.response if struck is None or struck.kind == "slow" else None
    one = TellingCall(
        called.requestor, called.tool, _short(called.arguments),
        _short(answer) if answer is not None else None,
    )  # fmt: skip
    kept = (*told, one)[-MAX_CALLS:]
    total = sum(call.size for call in kept)
    while len(kept) > 1 and total > _MAX_TEXTS:
        total -= kept[0].size
        kept = kept[1:]
    return kept


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text)} characters)"
