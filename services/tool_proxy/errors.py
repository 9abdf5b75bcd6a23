"""Every answer with which the proxy refuses a request: one table, from which the docs are made.

`docs/tool-proxy-errors.md` is written by `python -m services.tool_proxy.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row: what the client gets, and what it means for the session."""

    code: str
    status: int
    retryable: bool
    message: str
    recorded: bool = False

    @property
    def spoils(self) -> bool:
        """Whether a session in which it is recorded is invalid: the fault was not the agent's."""
        return self.recorded and self.status >= 500


TABLE: tuple[ErrorRow, ...] = (
    ErrorRow("token_invalid", 401, False,
             "The run token is missing, damaged, expired, revoked or for another URL."),
    ErrorRow("actor_id_invalid", 400, False,
             "X-Pipelines-Actor-Id must be a call path of /-delimited labels."),
    ErrorRow("idempotency_key_invalid", 400, False,
             "Idempotency-Key must be 1 to 255 printable ASCII characters, given once."),
    ErrorRow("body_invalid", 400, False, "The body must be one JSON object in UTF-8."),
    ErrorRow("trace_invalid", 400, False,
             "The body is no trace event and no batch; see /schemas/trace-event.json."),
    ErrorRow("trace_version_unknown", 400, False,
             "A trace event has a version that is not known here; `details` names those that are."),
    ErrorRow("tool_call_limit", 403, False, "No more tool calls are allowed in this session.",
             recorded=True),
    ErrorRow("trace_limit", 403, False, "No more trace events are allowed in this session."),
    ErrorRow("path_unknown", 404, False, "There is nothing at this path."),
    ErrorRow("tool_unknown", 404, False, "The agent has no tool of this name.", recorded=True),
    ErrorRow("method_not_allowed", 405, False, "Use POST."),
    ErrorRow("body_timeout", 408, True, "The body did not arrive in time."),
    ErrorRow("turn_superseded", 409, False, "The turn was posted again; use its new token."),
    ErrorRow("body_too_large", 413, False, "The body is larger than 1 MiB."),
    ErrorRow("body_encoding_unsupported", 415, False,
             "Send the body uncompressed (no Content-Encoding) and in UTF-8."),
    ErrorRow("arguments_invalid", 422, False, "The arguments do not match the tool's input schema.",
             recorded=True),
    ErrorRow("idempotency_key_reused", 422, False,
             "This Idempotency-Key was used for a call with another tool or other arguments."),
    ErrorRow("rate_limited", 429, True, "Too many requests; wait for Retry-After seconds."),
    ErrorRow("internal_error", 500, False, "The request failed here; the reason is in the logs."),
    ErrorRow("world_failed", 500, False, "The tool failed internally.", recorded=True),
    ErrorRow("answer_failed", 500, False, "The tool gave no usable answer.", recorded=True),
    ErrorRow("tool_schema_invalid", 500, False, "The tool's registered schema cannot be used.",
             recorded=True),
    ErrorRow("world_unknown", 501, False, "No tool of this session can answer here.",
             recorded=True),
    ErrorRow("tool_unavailable", 501, False, "Nothing answers for this tool here.",
             recorded=True),
    ErrorRow("target_refused", 502, False,
             "The tool's target is not one that may be called from here.", recorded=True),
    ErrorRow("target_secret_missing", 500, False,
             "The tool's credentials are missing here.", recorded=True),
    ErrorRow("response_too_large", 502, False, "The tool's response is larger than 1 MiB.",
             recorded=True),
    ErrorRow("log_unavailable", 503, True, "The call could not be recorded; repeat it."),
    ErrorRow("session_not_ready", 503, True, "The session's start has not been read yet."),
    ErrorRow("session_moved", 503, True, "The session now belongs to another replica."),
    ErrorRow("session_busy", 503, True, "Too many calls of this session are waiting."),
    ErrorRow("overloaded", 503, True, "Too many requests are under way."),
)  # fmt: skip

BY_CODE = {row.code: row for row in TABLE}


def error_body(code: str, **details: Any) -> bytes:
    """The JSON body of a refusal. Raises KeyError for a code that is not in the table."""
    row = BY_CODE[code]
    error: dict[str, Any] = {"code": code, "message": row.message, "retryable": row.retryable}
    return orjson.dumps({"error": error | ({"details": details} if details else {})})


class Refused(Exception):
    """The request is answered with a row of the table."""

    def __init__(self, code: str, *, retry_after_s: int | None = None, **details: Any) -> None:
        super().__init__(code)
        self.row = BY_CODE[code]
        self.retry_after_s = retry_after_s
        self.details = details

    @property
    def body(self) -> bytes:
        return error_body(self.row.code, **self.details)


def documentation() -> str:
    """The table as Markdown."""
    lines = [
        "# Errors of the tool proxy",
        "",
        "Every refusal is a JSON body `{\"error\": {\"code\", \"message\", \"retryable\"}}`, with",
        "`details` where there is more to say. Retryable ones are conditions of the platform: try",
        "again up to four times, waiting 0.5 to 2.5 s with jitter, longer where `Retry-After` says",
        "so. A tool's own failure is not in this table: it is a 200 whose `response` tells it.",
        "",
        "What is not HTTP at all is answered before it gets here, in plain text: 400, or 431 for a",
        "request line and headers of more than 64 KiB; nothing of it is recorded.",
        "",
        "*In the trajectory*: the call is recorded, with the code as `error_code`. *Spoils*: the",
        "fault is the platform's or the scenario's, and the session counts as invalid.",
        "",
        "| code | status | retryable | in the trajectory | spoils | meaning |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in TABLE:
        flags = " | ".join("yes" if f else "no" for f in (row.retryable, row.recorded, row.spoils))
        lines.append(f"| `{row.code}` | {row.status} | {flags} | {row.message} |")
    return "\n".join([*lines, "", _REQUESTS])


_REQUESTS = """\
## What a request may be

- **URL**: `{odyssey_proxy_url}/tools/{name}` or `/trace`, spelt with single slashes and none at the
  end. Nothing redirects.
- **Token**: in `Authorization: Bearer` or in `X-Pipelines-Run-Token`; in both, or in one of them
  twice, only if it is the same each time. Any other `Authorization` beside it is refused.
- **Body**: one JSON object of at most 1 MiB in UTF-8, without a byte order mark. Not taken, because
  two readers could take them differently: a key given twice in one object, NaN and infinities,
  integers beyond 64 bits, lone surrogates, more than 100 levels. `Content-Type` is not looked at,
  except for a `charset` other than UTF-8; a compressed body is refused as well.
- **Reply**: at most 1 MiB, the envelope included.
- **Run tokens** in a body or a tool's name are replaced by `[redacted]` before anything is done
  with them: they are secrets, and what is recorded is what the tool got.

The whole of it as OpenAPI is served at `/api/odyssey-proxy/openapi.json`.
"""


if __name__ == "__main__":
    print(documentation(), end="")
