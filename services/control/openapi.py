"""The OpenAPI document: made from the operations, the models and the table of errors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from services.control.errors import TABLE
from services.control.model import (
    AgentChanges,
    AgentFingerprint,
    AgentPage,
    ConnectionAnswer,
    ErrorAnswer,
    NewAgent,
)

_DESCRIPTION = """\
Agents under test: registered, changed, tested, removed. Every write is a record on the `agents`
topic, acknowledged before it is answered, and seen by whoever asks next, at any replica.
Secrets go by reference only: `env:NAME` or `file:PATH`. Errors: docs/control-api-errors.md."""
_TEXT = {"type": "string"}
_MODELS: tuple[type[BaseModel], ...] = (
    NewAgent, AgentChanges, AgentPage, AgentFingerprint, ConnectionAnswer, ErrorAnswer,
)  # fmt: skip


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an application, models and security included."""
    found = get_openapi(
        title="Windtunnel control API", version="1", description=_DESCRIPTION, routes=app.routes
    )
    _, definitions = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    schemas = definitions["$defs"]
    # Changes start from what is registered.
    schemas["AgentChanges"].pop("required", None)
    found["components"] = {
        "schemas": schemas,
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
    }
    found["security"] = [{"bearer": []}]
    return found


def parameter(place: str, name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """A parameter in the path, the query or a header."""
    return {"in": place, "name": name, "required": place == "path", "schema": schema,
            "description": description}  # fmt: skip


def responses(status: int, model: str, codes: Collection[str]) -> dict[int | str, Any]:
    """What an operation may answer: a model, or nothing, and rows of the table."""
    good: dict[str, Any] = {"description": "Done."}
    if model:
        good |= _content(model)
    if model == "NewAgent":
        good["headers"] = {"ETag": {"description": "The fingerprint, quoted.", "schema": _TEXT}}
    if status == 201:
        good["headers"]["Location"] = {"description": "Its path.", "schema": _TEXT}
    found: dict[int | str, Any] = {status: good}
    for row in TABLE:
        if row.code in codes:
            entry = found.setdefault(row.status, _content("ErrorAnswer"))
            said = entry.get("description")
            entry["description"] = f"{said}, `{row.code}`" if said else f"`{row.code}`"
    return found


def _content(model: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{model}"}
    return {"content": {"application/json": {"schema": schema}}}
