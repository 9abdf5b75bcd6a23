"""What an injected failure looks like to the agent. Pure. Nothing in it says what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.faults import Failure
from schemas.places import escaped, find, for_text, places
from services.tool_proxy.jsons import as_body, is_text


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
        return _planted(failure, _as_seen(answer))
    if failure.kind == "partial":
        return _partial(failure.field, _as_seen(answer))
    raise ValueError(f"{failure.kind} does not alter an answer")


def _as_seen(answer: Any) -> Any:
    """A copy of an answer as it reaches the agent: an object, a list, or else text."""
    body = as_body(answer)
    return body if is_text(body) else orjson.loads(body)


def _planted(failure: Failure, answer: Any) -> Struck | None:
    if isinstance(answer, str):
        return Struck(f"{answer}\n{failure.content}", "planted in the text")
    place = for_text(failure.field, answer)
    if place is None:
        return None
    text = place.value
    place.value = f"{text}\n{failure.content}" if isinstance(text, str) else failure.content
    return Struck(answer, f"planted in {place.pointer}")


def _partial(field: str, answer: Any) -> Struck | None:
    if field:
        place = find(field, answer)
        if place is None:
            return None
        if isinstance(place.value, list) and place.value:
            return _halved(answer, place.value, place.pointer)
        place.drop()
        return Struck(answer, f"dropped {place.pointer}")
    if isinstance(answer, list) and answer:
        return _halved(answer, answer, "the list")
    for place in places(answer):
        if isinstance(place.value, list) and place.value:
            return _halved(answer, place.value, place.pointer)
    if isinstance(answer, dict) and len(answer) > 1:
        name = list(answer)[-1]
        del answer[name]
        return Struck(answer, f"dropped /{escaped(name)}")
    return None


def _halved(answer: Any, items: list[Any], pointer: str) -> Struck:
    count = len(items)
    del items[count // 2 :]
    return Struck(answer, f"kept {len(items)} of {count} of {pointer}")
