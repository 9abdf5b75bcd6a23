"""The tool proxy's side of the contract, as an agent meets it: reading a request, refusing it.

Services do not import one another, so the rows that the kit needs of the proxy's error table stand
here again; a test compares them, and what is read, with the proxy itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message
from typing import Any

import orjson
from starlette.datastructures import Headers

BASE = "/api/odyssey-proxy"
PROBE_TOOL = "__reachability_probe__"
MAX_BODY_BYTES = 1024 * 1024
TRACE_TYPES = ("reasoning", "plan", "handoff", "state", "custom")
_UTF8 = ("", "utf-8", "utf8", "us-ascii")
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,63}"
_ACTOR = re.compile(rf"{_LABEL}(/{_LABEL}){{0,15}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of docs/tool-proxy-errors.md."""

    status: int
    retryable: bool
    message: str


ROWS = {
    "token_invalid": Row(
        401, False, "The run token is missing, damaged, expired, revoked or for another URL."
    ),
    "actor_id_invalid": Row(
        400, False, "X-Pipelines-Actor-Id must be a call path of /-delimited labels."
    ),
    "trace_invalid": Row(
        400, False, "The body is no trace event and no batch; see /schemas/trace-event.json."
    ),
    "body_invalid": Row(400, False, "The body must be one JSON object in UTF-8."),
    "path_unknown": Row(404, False, "There is nothing at this path."),
    "tool_unknown": Row(404, False, "The agent has no tool of this name."),
    "method_not_allowed": Row(405, False, "Use POST."),
    "body_timeout": Row(408, True, "The body did not arrive in time."),
    "body_too_large": Row(413, False, "The body is larger than 1 MiB."),
    "body_encoding_unsupported": Row(
        415, False, "Send the body uncompressed (no Content-Encoding) and in UTF-8."
    ),
    "arguments_invalid": Row(422, False, "The arguments do not match the tool's input schema."),
    "rate_limited": Row(429, True, "Too many requests; wait for Retry-After seconds."),
    "session_not_ready": Row(503, True, "The session's start has not been read yet."),
}


class Refused(Exception):
    """The request is answered with a row of the table."""

    def __init__(self, code: str, **details: Any) -> None:
        self.code, self.details = code, details
        super().__init__(code)


def error_body(code: str, details: dict[str, Any]) -> bytes:
    """The JSON body of a refusal."""
    row = ROWS[code]
    error = {"code": code, "message": row.message, "retryable": row.retryable}
    return orjson.dumps({"error": error | ({"details": details} if details else {})})


def status_of(code: str) -> int:
    """The status of a refusal; 200 for the empty code."""
    return ROWS[code].status if code else 200


def tokens_of(headers: Headers) -> set[str]:
    """The run tokens in a request's headers; a valid request has exactly one."""
    given = {value.strip() for value in headers.getlist("x-pipelines-run-token")}
    for value in headers.getlist("authorization"):
        scheme, _, token = value.partition(" ")
        given.add(token.strip() if scheme.lower() == "bearer" else "")
    return given


def check_actor(headers: Headers) -> None:
    """Raises Refused: actor_id_invalid."""
    values = headers.getlist("x-pipelines-actor-id")
    if len(values) > 1 or (values and not _ACTOR.fullmatch(values[0])):
        raise Refused("actor_id_invalid")


def check_encoding(headers: Headers) -> None:
    """Raises Refused: body_encoding_unsupported."""
    codings = ",".join(headers.getlist("content-encoding")).lower().split(",")
    media = Message()
    media["content-type"] = headers.get("content-type", "")
    charset = media.get_param("charset", "")
    plain = all(coding.strip() in ("", "identity") for coding in codings)
    if not plain or not isinstance(charset, str) or charset.lower() not in _UTF8:
        raise Refused("body_encoding_unsupported")


def object_of(body: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises Refused: body_invalid."""
    try:
        value = orjson.loads(body)
        orjson.dumps(value)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise Refused("body_invalid", problem=str(error)[:200]) from None
    if not isinstance(value, dict):
        raise Refused("body_invalid", problem=f"expected an object, got {type(value).__name__}")
    return value


def check_trace(body: dict[str, Any]) -> None:
    """The outer shape of a trace event or a batch; payloads are the proxy's to judge.

    Raises:
        Refused: trace_invalid.
    """
    batch = "events" in body
    events = body["events"] if batch else [body]
    if not isinstance(events, list) or not events or (batch and set(body) != {"events"}):
        raise Refused("trace_invalid", problem="expected events to be a non-empty array, alone")
    for event in events:
        if not isinstance(event, dict) or event.get("type") not in TRACE_TYPES:
            raise Refused("trace_invalid", problem=f"expected type to be one of {TRACE_TYPES}")
        if not isinstance(event.get("payload"), dict):
            raise Refused("trace_invalid", problem="expected payload to be an object")
        if unknown := set(event) - {"type", "payload", "version"}:
            raise Refused("trace_invalid", problem=f"unknown fields {sorted(unknown)}")
