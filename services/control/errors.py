"""Every answer with which the control API refuses a request: one table, which makes the docs too.

`docs/control-api-errors.md` is written by `python -m services.control.errors`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.errors import InvalidDocument

_MOST_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row: what the client gets, and whether the same request may succeed later."""

    code: str
    status: int
    retryable: bool
    message: str


TABLE: tuple[ErrorRow, ...] = (
    ErrorRow("body_invalid", 400, False,
             "The body must be one JSON object in UTF-8, each key once; the details say why not."),
    ErrorRow("query_invalid", 400, False,
             "A parameter of the URL is not what it should be; the details name it."),
    ErrorRow("token_invalid", 401, False, "Send Authorization: Bearer with a token of this API."),
    ErrorRow("agent_unknown", 404, False, "No agent is registered under this id."),
    ErrorRow("path_unknown", 404, False, "There is nothing at this path; see /openapi.json."),
    ErrorRow("method_not_allowed", 405, False, "This path has other methods; see Allow."),
    ErrorRow("body_timeout", 408, True, "The body did not arrive in time."),
    ErrorRow("agent_exists", 409, False,
             "An agent is registered under this id already; change it with PUT."),
    ErrorRow("agents_full", 409, False, "As many agents are registered as are remembered."),
    ErrorRow("write_crossed", 409, False,
             "Another write to this agent arrived just before this one. Both took place; read "
             "the agent to see what stands."),
    ErrorRow("agent_changed", 412, False,
             "If-Match names another state of the agent than the present one."),
    ErrorRow("body_too_large", 413, False, "The body is larger than 12 MiB."),
    ErrorRow("registration_too_large", 413, False,
             "Without its source, a registration may take about 1 MB."),
    ErrorRow("media_type_unsupported", 415, False,
             "Send application/json in UTF-8, uncompressed."),
    ErrorRow("document_invalid", 422, False,
             "The registration has mistakes; all of them are in details.problems."),
    ErrorRow("internal_error", 500, False, "The request failed here; the reason is in the logs."),
    ErrorRow("registration_invalid", 500, False,
             "What somebody else registered under this id is no document; DELETE it."),
    ErrorRow("log_unavailable", 503, True,
             "The broker did not answer in time. Nothing was registered, changed or removed."),
    ErrorRow("write_unconfirmed", 503, True,
             "The broker did not confirm in time; the write may have taken place. Repeating a PUT "
             "or DELETE is safe; before repeating a POST, read the agent."),
    ErrorRow("overloaded", 503, True, "Too many requests are under way."),
)  # fmt: skip

BY_CODE: Mapping[str, ErrorRow] = {row.code: row for row in TABLE}


class Refused(Exception):
    """The request is answered with a row of the table. Details must never quote what was sent
    where it may be a secret."""

    def __init__(self, code: str, **details: Any) -> None:
        super().__init__(code)
        self.row = BY_CODE[code]
        self.details = details

    @property
    def body(self) -> bytes:
        row = self.row
        error: dict[str, Any] = {
            "code": row.code,
            "message": row.message,
            "retryable": row.retryable,
        }
        if self.details:
            error["details"] = self.details
        return json.dumps({"error": error}).encode()


def invalid(error: InvalidDocument) -> Refused:
    """The refusal that lists a document's problems, the first hundred of them."""
    listed = [{"path": p.path, "message": p.message} for p in error.problems[:_MOST_PROBLEMS]]
    left_off = len(error.problems) - len(listed)
    return Refused("document_invalid", problems=listed, left_off=left_off)


def documentation() -> str:
    """The table as Markdown."""
    lines = [
        "# Errors of the control API",
        "",
        "Every refusal is a JSON body `{\"error\": {\"code\", \"message\", \"retryable\"}}`, with",
        "`details` where there is more to say. The same request may succeed later where it is",
        "retryable: wait some seconds, longer each time. No answer repeats what was sent where a",
        "secret's reference belongs.",
        "",
        "What is not HTTP at all is answered before it gets here, in plain text: 400, or 431 for a",
        "request line and headers of more than 64 KiB.",
        "",
        "| code | status | retryable | meaning |",
        "|---|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| `{row.code}` | {row.status} | {'yes' if row.retryable else 'no'} | {row.message} |"
        for row in TABLE
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(documentation(), end="")
