"""The OpenAPI document of the proxy, built from the models and the error table it answers by."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.json_schema import models_json_schema

from schemas.traces import ACTOR_PATH, body_schema
from services.tool_proxy.errors import TABLE, ErrorRow

BASE = "/api/odyssey-proxy"
TRACE_SCHEMA_PATH = "/schemas/trace-event.json"

_TOOLS_ONLY = ("idempotency_key_invalid", "idempotency_key_reused")
_TRACE_ONLY = ("trace_invalid", "trace_version_unknown", "trace_limit")


class Violation(BaseModel):
    """Where a value breaks its schema, and which rule it breaks, as JSON pointers."""

    model_config = ConfigDict(extra="forbid")

    path: str
    rule: str
    message: str


class Validation(BaseModel):
    """Whether a simulated answer matches the tool's output schema."""

    model_config = ConfigDict(extra="forbid")

    valid: bool
    errors: list[Violation] = Field(default=[], description="Absent when it is valid.")


class Envelope(BaseModel):
    """What a call is answered with. `validation` is there for `odyssey` alone."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "if": {"properties": {"source": {"not": {"const": "odyssey"}}}},
            "then": {"properties": {"validation": False}},
        },
    )

    tool_name: str
    response: dict[str, JsonValue] | list[JsonValue] | str = Field(
        description="Decoded where the tool answered a JSON object or array, else its text."
    )
    source: Literal["odyssey", "injected", "passthrough", "error", "transport_error"]
    latency_ms: int = Field(ge=0)
    matched_rule_index: int | None = Field(ge=0)
    validation: Validation = Field(default=Validation(valid=True))


class Accepted(BaseModel):
    """The trace events are in the trajectory."""

    model_config = ConfigDict(extra="forbid")

    accepted: Literal[True]


def document() -> dict[str, Any]:
    """The document, which is served at `{base}/openapi.json`."""
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]]
    models = [(Envelope, "validation"), (Accepted, "validation")]
    _, shapes = models_json_schema(models, ref_template="#/components/schemas/{model}")
    trace, trace_shapes = body_schema("#/components/schemas/{model}")
    tools = [row for row in TABLE if row.code not in _TRACE_ONLY]
    traces = [row for row in TABLE if row.code not in _TOOLS_ONLY and not row.recorded]
    del shapes["$defs"]["Envelope"]["properties"]["validation"]["default"]
    call = _operation(
        "Call a tool", _answer("The tool's answer.", "Envelope", 200), tools,
        {"type": "object", "description": "The tool's arguments, bare."}, "callTool",
    )  # fmt: skip
    report = _operation(
        "Report trace events", _answer("They are recorded.", "Accepted", 202), traces, trace,
        "reportTraceEvents",
    )  # fmt: skip
    paths: dict[str, Any] = {}
    for prefix, suffix in (("", ""), ("/runs/{run}", "OfRun")):
        for path, operation in (("/tools/{name}", call), ("/trace", report)):
            post = {**operation, "operationId": operation["operationId"] + suffix}
            parts = [part for part in ("run", "name") if f"{{{part}}}" in prefix + path]
            paths[prefix + path] = {"parameters": [_PARAMETERS[p] for p in parts], "post": post}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tool proxy",
            "version": "1",
            "description": "Where an agent's tool calls and trace events go while a run lasts.",
        },
        "servers": [{"url": BASE}],
        "paths": paths,
        "components": {
            "schemas": {**shapes["$defs"], **trace_shapes, "Refusal": _refusal_of(list(TABLE))},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "runToken": {"type": "apiKey", "in": "header", "name": "X-Pipelines-Run-Token"},
            },
        },
        "security": [{"bearer": []}, {"runToken": []}],
    }


_PARAMETERS: dict[str, Any] = {
    "run": {
        "name": "run", "in": "path", "required": True, "schema": {"type": "string"},
        "description": "The run token's jti.",
    },
    "name": {
        "name": "name", "in": "path", "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]{0,127}$"},
    },
    "actor": {
        "name": "X-Pipelines-Actor-Id", "in": "header", "required": False,
        "schema": {"type": "string", "pattern": f"^{ACTOR_PATH}$"},
        "description": "The acting sub-agent's call path.",
    },
    "key": {
        "name": "Idempotency-Key", "in": "header", "required": False,
        "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,255}$"},
        "description": "The same key and call again is answered with the same reply.",
    },
}  # fmt: skip


def _operation(
    summary: str, answer: dict[str, Any], rows: list[ErrorRow], body: dict[str, Any], name: str
) -> dict[str, Any]:
    headers = ("actor", "key") if name == "callTool" else ("actor",)
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [_PARAMETERS[header] for header in headers],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {**answer, **_refusals(rows)},
    }


def _answer(description: str, model: str, status: int) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model}"}
    return {str(status): {"description": description, **_json(schema)}}


def _refusals(rows: list[ErrorRow]) -> dict[str, Any]:
    by_status: dict[int, list[ErrorRow]] = defaultdict(list)
    for row in rows:
        by_status[row.status].append(row)
    return {str(status): _refusal(status, by_status[status]) for status in sorted(by_status)}


def _refusal(status: int, rows: list[ErrorRow]) -> dict[str, Any]:
    headers = {
        401: {"WWW-Authenticate": {"const": "Bearer"}},
        405: {"Allow": {"type": "string"}},
        415: {"Accept-Encoding": {"const": "identity"}},
        429: {"Retry-After": {"type": "string", "pattern": "^[1-9][0-9]*$"}},
    }.get(status, {})
    return {
        "description": "\n".join(f"`{row.code}`: {row.message}" for row in rows),
        **_json(_refusal_of(rows)),
        **({"headers": {n: {"required": True, "schema": s} for n, s in headers.items()}}
           if headers else {}),
    }  # fmt: skip


def _refusal_of(rows: list[ErrorRow]) -> dict[str, Any]:
    """The error body, with the codes, messages and verdicts that go together."""
    known = [
        {"code": {"const": r.code}, "message": {"const": r.message},
         "retryable": {"const": r.retryable}, "details": {"type": "object"}}
        for r in rows
    ]  # fmt: skip
    error = {
        "type": "object",
        "required": ["code", "message", "retryable"],
        "oneOf": [{"properties": one, "additionalProperties": False} for one in known],
    }
    return {
        "type": "object",
        "required": ["error"],
        "additionalProperties": False,
        "properties": {"error": error},
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
