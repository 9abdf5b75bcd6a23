"""What an injected failure looks like to the agent. Pure. Nothing in it says what it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.faults import Failure
from services.tool_proxy.jsons import private_copy

_PROSE = ("description", "note", "notes", "comment", "comments", "message", "summary", "text",
          "body", "content", "details", "title")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Struck:
    """The answer after injection, and what exactly was done."""

    value: Any
    detail: str


def replacing(failure: Failure, tool: str, field: str) -> Struck:
    """The answer of a tool that failed instead of answering.

    `field` is what a schema mismatch is blamed on unless the failure names one.
    """
    error: dict[str, Any]
    if failure.kind == "timeout":
        error = {"code": "timeout", "message": f"{tool} did not answer in time.", "status": 504}
        detail = f"no answer after {failure.delay_ms} ms"
    elif failure.kind == "outage":
        error = {"code": "outage", "message": f"{tool} is unavailable.", "status": 503}
        detail = "unavailable"
    elif failure.kind == "rate_limit":
        error = {"code": "rate_limit", "message": "Too many requests.", "status": 429,
                 "retry_after": failure.retry_after_s}  # fmt: skip
        detail = f"retry after {failure.retry_after_s} s"
    elif failure.kind == "schema_mismatch":
        blamed = failure.field or field
        error = {"code": "schema_mismatch", "message": f"Field {blamed!r} is not as expected.",
                 "status": 422, "field": blamed}  # fmt: skip
        detail = f"blamed on {blamed}"
    else:
        raise ValueError(f"{failure.kind} does not replace an answer")
    if failure.message:
        error["message"] = failure.message
    return Struck({"error": error}, detail)


def malformed(answer: Any) -> Struck:
    """The answer's JSON text, broken off: no JSON any more."""
    whole = answer if isinstance(answer, Mapping | list) else {"result": answer}
    text = orjson.dumps(whole).decode()
    kept = text[: max(1, len(text) * 2 // 3)]
    return Struck(kept, f"kept {len(kept)} of {len(text)} characters")


def altering(failure: Failure, answer: Any) -> Struck | None:
    """The real answer with something planted or missing, or just late.

    None where the answer has no place for it: then nothing was injected.
    """
    if failure.kind == "slow":
        return Struck(answer, f"{failure.delay_ms} ms late")
    if failure.kind == "content":
        return _planted(failure, private_copy(answer))
    if failure.kind == "partial":
        return _partial(failure.field, private_copy(answer))
    raise ValueError(f"{failure.kind} does not alter an answer")


def _planted(failure: Failure, answer: Any) -> Struck | None:
    if isinstance(answer, str):
        return Struck(f"{answer}\n{failure.content}", "planted in the text")
    if failure.field:
        place = _find(failure.field, answer)
        if place is None and isinstance(answer, dict) and not failure.field.startswith("/"):
            place = _Place(answer, failure.field, f"/{failure.field}")
    else:
        place = _prose(answer)
    if place is None:
        return None
    text = place.value
    place.value = f"{text}\n{failure.content}" if isinstance(text, str) else failure.content
    return Struck(answer, f"planted in {place.pointer}")


def _prose(answer: Any) -> _Place | None:
    """A field that reads as text, never an id, date or status: overwriting those breaks the tool
    instead of planting something in it."""
    texts = [place for place in _places(answer) if isinstance(place.value, str)]
    for name in _PROSE:
        for place in texts:
            if place.key == name:
                return place
    sentences = [place for place in texts if " " in place.value.strip()]
    if sentences:
        return max(sentences, key=lambda place: len(place.value))
    if isinstance(answer, list):
        answer = next((item for item in answer if isinstance(item, dict)), None)
        return _Place(answer, "note", "/0/note") if answer is not None else None
    return _Place(answer, "note", "/note") if isinstance(answer, dict) else None


def _partial(field: str, answer: Any) -> Struck | None:
    if field:
        place = _find(field, answer)
        if place is None:
            return None
        if isinstance(place.value, list) and place.value:
            return _halved(answer, place.value, place.pointer)
        place.drop()
        return Struck(answer, f"dropped {place.pointer}")
    if isinstance(answer, list) and answer:
        return _halved(answer, answer, "the list")
    for place in _places(answer):
        if isinstance(place.value, list) and place.value:
            return _halved(answer, place.value, place.pointer)
    if isinstance(answer, dict) and len(answer) > 1:
        name = list(answer)[-1]
        del answer[name]
        return Struck(answer, f"dropped /{name}")
    return None


def _halved(answer: Any, items: list[Any], pointer: str) -> Struck:
    count = len(items)
    del items[count // 2 :]
    return Struck(answer, f"kept {len(items)} of {count} of {pointer}")


@dataclass(slots=True)
class _Place:
    """A spot in a JSON value: a key of an object, or an index of a list."""

    parent: Any
    key: str | int
    pointer: str

    @property
    def value(self) -> Any:
        if isinstance(self.parent, list):
            return self.parent[self.key]  # type: ignore[index]
        return self.parent.get(self.key)

    @value.setter
    def value(self, value: Any) -> None:
        self.parent[self.key] = value

    def drop(self) -> None:
        del self.parent[self.key]


def _places(value: Any, pointer: str = "") -> Iterator[_Place]:
    """Every spot below `value`, outer before inner, in document order."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, _ in items:
        yield _Place(value, key, f"{pointer}/{key}")
    for key, inner in items:
        yield from _places(inner, f"{pointer}/{key}")


def _find(field: str, answer: Any) -> _Place | None:
    """A field by JSON pointer if it starts with a slash, else the first one of that name."""
    for place in _places(answer):
        if field in (place.pointer, place.key):
            return place
    return None
