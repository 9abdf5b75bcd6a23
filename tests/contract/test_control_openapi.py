"""The control API does what its OpenAPI document says: schemathesis over sockets, derandomised."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from services.control.app import OPERATIONS
from services.control.errors import BY_CODE
from services.control.openapi import document
from tests.support.control import TOKEN, MemoryTopic, Replica, agent_document
from tests.support.http_server import serve

load_all_checks()
# These follow links between operations, or users, of which there are none here.
_LINKED = ("use_after_free", "ensure_resource_availability", "object_level_authorization")
CHECKED = [c for c in CHECKS.get_all() if c.__name__ not in _LINKED]
AUTH = {"Authorization": f"Bearer {TOKEN}"}
GOOD = {201, 200, 204}


async def _replica() -> Replica:
    return Replica(MemoryTopic())


@pytest.fixture(scope="module")
def replica() -> Replica:
    return asyncio.run(_replica())


@pytest.fixture(scope="module")
def url(replica: Replica) -> Iterator[str]:
    with serve(replica.app) as found:
        yield found


def for_few_agents(replica: Replica, mode: GenerationMode) -> dict[str, Any]:
    """The document with few ids, so that some of them are registered; and for valid requests with
    one kind of agents, whose fields go together whatever they are."""
    spec = copy.deepcopy(document(replica.fastapi))
    if mode is GenerationMode.POSITIVE:
        schemas = spec["components"]["schemas"]
        for model in ("NewAgent", "AgentChanges"):
            schemas[f"Plain{model}"] = _plain(schemas[model], schemas["ToolDocument"])
        schemas["PlainNewAgent"]["required"] = ["agent_id", "name", "endpoint"]
        schemas["PlainAgentChanges"]["properties"].pop("agent_id")
        for item in spec["paths"].values():
            for operation in item.values():
                body = operation.get("requestBody", {}).get("content", {}).get("application/json")
                if body:
                    reference = body["schema"]["$ref"].replace("schemas/", "schemas/Plain")
                    body["schema"] = {"$ref": reference}
    for item in spec["paths"].values():
        for operation in item.values():
            given = operation["parameters"]
            # Whether it matches is no matter of its form.
            given[:] = [parameter for parameter in given if parameter["name"] != "If-Match"]
            for parameter in given:
                if parameter["name"] == "agent_id":
                    parameter["schema"] = {"enum": ["a", "b", "c"]}
    return spec


def _plain(model: dict[str, Any], tool: dict[str, Any]) -> dict[str, Any]:
    model, tool = copy.deepcopy(model), copy.deepcopy(tool)
    fields, of_tool = model["properties"], tool["properties"]
    for name in ("auth_header", "auth_value_ref", "code", "chat", "rasa", "tool_modes"):
        fields.pop(name, None)
    for name in [name for name in of_tool if name.startswith(("target", "mode"))]:
        of_tool.pop(name)
    for name in ("input_schema", "output_schema"):
        of_tool[name] = {"enum": [{}, {"type": "object", "properties": {"é": {"minimum": 0.5}}}]}
    fields["run_timeout_s"] = {"enum": [1, 300, 1800]}
    fields["kind"] = {"const": "http"}
    fields["endpoint"] = {"enum": ["http://a.example", "https://b.example:1/c?d=e"]}
    fields["actors"] = {"type": "array", "items": {"enum": ["a", "a/b.c"]}}
    fields["tools"] = {"type": "array", "items": tool, "maxItems": 1}
    return model


@pytest.mark.req("R18", "R17", "R01")
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize(("method", "path"), [(o.method, o.path) for o in OPERATIONS])
def test_the_api_keeps_to_its_document(
    replica: Replica, url: str, method: str, path: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(for_few_agents(replica, mode))
    operation = schema[path][method]
    statuses: set[int] = set()
    client = httpx.Client(base_url=url, headers=AUTH)

    @settings(
        max_examples=25, derandomize=True, deadline=None, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if "{agent_id}" in path:
            for agent_id in ("a", "b"):
                client.post("/api/agents", json=agent_document(agent_id))
        response = case.call_and_validate(base_url=url, headers=AUTH, checks=CHECKED, timeout=20)
        statuses.add(response.status_code)
        if response.status_code >= 400:
            error = response.json()["error"]
            assert BY_CODE[error["code"]].status == response.status_code
        assert response.status_code < 500

    with client:
        run()
    if mode is GenerationMode.POSITIVE:
        assert GOOD & statuses
        assert statuses <= GOOD | {404, 409, 412}
    else:
        assert statuses & {400, 404, 422}


def test_the_document_is_openapi_and_served_to_anybody(replica: Replica, url: str) -> None:
    answer = httpx.get(f"{url}/openapi.json")
    assert answer.json() == document(replica.fastapi)
    schemathesis.openapi.from_dict(answer.json()).validate()
