"""The control API over HTTP: its operations, each with what it takes and may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from schemas.model import IDENTIFIER
from services.control.api import DEFAULT_TEST_S, MAX_TEST_S, AgentsApi
from services.control.openapi import document, parameter, responses
from services.control.requests import MAX_PAGE
from services.control.route import Endpoint, Gatekeeper
from services.runtime.http import Below

_AGENTS, _AGENT = "/api/agents", "/api/agents/{agent_id}"
_ANY = ("token_invalid", "query_invalid", "internal_error", "log_unavailable", "overloaded")
_BODY = (
    "body_invalid", "body_timeout", "body_too_large", "media_type_unsupported",
    "document_invalid", "registration_too_large",
)  # fmt: skip
_WRITE = ("write_crossed", "write_unconfirmed")
_SHOW = ("agent_unknown", "registration_invalid")
_ID = parameter("path", "agent_id", {"type": "string", "pattern": IDENTIFIER}, "The agent's id.")
_IF_MATCH = parameter(
    "header", "If-Match", {"type": "string"}, "Only if the agent's ETag is one of these."
)


@dataclass(frozen=True, slots=True)
class Operation:
    """An endpoint with its documentation. `answer` and `body` name models of `model.py`."""

    method: str
    path: str
    endpoint: Callable[[AgentsApi], Endpoint]
    summary: str
    status: int
    answer: str
    codes: tuple[str, ...]
    parameters: tuple[dict[str, Any], ...] = ()
    body: str = ""


OPERATIONS = (
    Operation(
        "POST", _AGENTS, lambda api: api.create, "Register an agent.", 201, "NewAgent",
        (*_BODY, *_WRITE, "agent_exists", "agents_full"), body="NewAgent",
    ),
    Operation(
        "GET", _AGENTS, lambda api: api.list, "The registered agents, by id, in pages.",
        200, "AgentPage", (),
        (
            parameter("query", "limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE,
                                         "default": 100}, "Agents of one page."),
            parameter("query", "cursor", {"type": "string", "pattern": IDENTIFIER},
                      "next_cursor of the page before."),
        ),
    ),
    Operation(
        "GET", _AGENT, lambda api: api.show, "An agent's document, as PUT takes it.",
        200, "NewAgent", _SHOW, (_ID,),
    ),
    Operation(
        "PUT", _AGENT, lambda api: api.change, "Change an agent, or flip single tools' modes.",
        200, "NewAgent", (*_BODY, *_WRITE, *_SHOW, "agent_changed"), (_ID, _IF_MATCH),
        body="AgentChanges",
    ),
    Operation(
        "DELETE", _AGENT, lambda api: api.remove, "Remove an agent. Its sessions go on.",
        204, "", (*_WRITE, "agent_unknown", "agent_changed"), (_ID, _IF_MATCH),
    ),
    Operation(
        "GET", f"{_AGENT}/fingerprint", lambda api: api.fingerprint,
        "What was registered, in one hash.", 200, "AgentFingerprint", ("agent_unknown",), (_ID,),
    ),
    Operation(
        "POST", f"{_AGENT}/test-connection", lambda api: api.test_connection,
        "Connect as a run would: with the agent's auth, then without.", 200, "ConnectionAnswer",
        ("agent_unknown",),
        (
            _ID,
            parameter("query", "timeout_s", {"type": "integer", "minimum": 1,
                                             "maximum": MAX_TEST_S, "default": DEFAULT_TEST_S},
                      "For each question that the agent is asked."),
        ),
    ),
)  # fmt: skip


def create_app(api: AgentsApi, gatekeeper: Gatekeeper) -> FastAPI:
    """The application; its OpenAPI document is at /openapi.json, for anybody."""
    # No pages of documentation: they would have the browser load scripts from elsewhere.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for status in (404, 405):
        app.add_exception_handler(status, gatekeeper.elsewhere)
    for operation in OPERATIONS:
        endpoint = operation.endpoint(api)
        app.add_api_route(
            operation.path,
            gatekeeper.guarded(
                f"{operation.method} {operation.path}",
                endpoint,
                [one["name"] for one in operation.parameters if one["in"] == "query"],
            ),
            methods=[operation.method],
            summary=operation.summary,
            operation_id=endpoint.__name__,
            status_code=operation.status,
            response_model=None,
            responses=responses(operation.status, operation.answer, (*_ANY, *operation.codes)),
            # Endpoints read their requests themselves, so FastAPI cannot know what they take.
            openapi_extra={"parameters": list(operation.parameters), **_request(operation.body)},
        )
    described = document(app)

    async def openapi(_: Request) -> Response:
        return JSONResponse(described)

    app.add_route("/openapi.json", openapi, methods=["GET"], include_in_schema=False)
    return app


def mounted(app: FastAPI) -> Below:
    """What to add to a service's application."""
    return Below("", app)


def _request(model: str) -> dict[str, Any]:
    if not model:
        return {}
    schema = {"$ref": f"#/components/schemas/{model}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
