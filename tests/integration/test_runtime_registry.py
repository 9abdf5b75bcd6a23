"""D02: with a schema registry configured, records use the Confluent wire format.

The registry's REST protocol is served by the test, over real HTTP: register, list, get.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.codec import RECORDS, Codec
from schemas.record import avro_schema, full_name
from schemas.runs import RunRequest
from services.runtime.registry import codec_for
from services.runtime.settings import ConfigurationError, Settings
from tests.support.http_server import serve

pytestmark = pytest.mark.req("D02")


class Registry:
    """Subjects with versions, and global ids, as the registry has them."""

    def __init__(self) -> None:
        self.subjects: dict[str, list[dict[str, Any]]] = {}
        self.last_id = 40

    def app(self) -> Starlette:
        path = "/subjects/{subject}/versions"
        return Starlette(
            routes=[
                Route(path, self.register, methods=["POST"]),
                Route(path, self.versions, methods=["GET"]),
                Route(path + "/{version:int}", self.version, methods=["GET"]),
            ]
        )

    def add(self, subject: str, schema: str) -> int:
        versions = self.subjects.setdefault(subject, [])
        for entry in versions:
            if json.loads(entry["schema"]) == json.loads(schema):
                return int(entry["id"])
        self.last_id += 1
        versions.append({"id": self.last_id, "schema": schema})
        return self.last_id

    async def register(self, request: Request) -> Response:
        schema = (await request.json())["schema"]
        return JSONResponse({"id": self.add(request.path_params["subject"], schema)})

    async def versions(self, request: Request) -> Response:
        entries = self.subjects[request.path_params["subject"]]
        return JSONResponse(list(range(1, len(entries) + 1)))

    async def version(self, request: Request) -> Response:
        entries = self.subjects[request.path_params["subject"]]
        return JSONResponse(entries[request.path_params["version"] - 1])


def test_schemas_are_registered_and_records_carry_their_ids() -> None:
    registry = Registry()
    with serve(registry.app()) as url:
        codec = codec_for(Settings(schema_registry=url))
    assert set(registry.subjects) == {full_name(cls) for cls in RECORDS}
    request = RunRequest(run_id="r", suite="s", agent_id="a")
    data = codec.encode(request)
    (entry,) = registry.subjects[full_name(RunRequest)]
    assert data[:5] == b"\0" + int(entry["id"]).to_bytes(4, "big")
    assert codec.decode(RunRequest, data) == request


def test_records_of_an_earlier_registered_version_are_read() -> None:
    registry = Registry()
    earlier = avro_schema(RunRequest)
    earlier["fields"] = [f for f in earlier["fields"] if f["name"] != "deadline_s"]
    old_id = registry.add(full_name(RunRequest), json.dumps(earlier))
    with serve(registry.app()) as url:
        codec = codec_for(Settings(schema_registry=url))
    current = Codec().encode(RunRequest(run_id="r", suite="s", agent_id="a", deadline_s=7))
    body = current[10:-1]  # deadline_s is the last field, and 7 takes one byte
    old = codec.decode(RunRequest, b"\0" + old_id.to_bytes(4, "big") + body)
    assert (old.run_id, old.deadline_s) == ("r", 3600)


def test_a_registry_that_is_not_there_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="WINDTUNNEL_SCHEMA_REGISTRY"):
        codec_for(Settings(schema_registry="http://127.0.0.1:9"))


def test_a_registry_that_refuses_is_a_configuration_error() -> None:
    async def refuse(_: Request) -> Response:
        return JSONResponse({"error_code": 409, "message": "incompatible"}, status_code=409)

    app = Starlette(routes=[Route("/{path:path}", refuse, methods=["POST", "GET"])])
    with serve(app) as url, pytest.raises(ConfigurationError, match="409"):
        codec_for(Settings(schema_registry=url))
