"""The proxy does what its OpenAPI document says: schemathesis over real sockets, derandomised."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import orjson
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from services.tool_proxy.app import BASE
from services.tool_proxy.errors import TABLE
from services.tool_proxy.openapi import document
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import MemoryLog, make_world

load_all_checks()
CHECKED = [
    check
    for check in CHECKS.get_all()
    # These follow links between operations, or users, of which there are none here.
    if check.__name__
    not in ("use_after_free", "ensure_resource_availability", "object_level_authorization")
]
PATHS = ("/tools/{name}", "/trace", "/runs/{run}/tools/{name}", "/runs/{run}/trace")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    world = make_world()
    with serving(MemoryLog(ProxyCore({"desk": world})), traces=1_000_000) as running:
        running.start("s1", max_calls=1_000_000, calls_per_minute=1_000_000)
        yield running


def for_one_tool(server: Server) -> dict[str, Any]:
    """The document with one tool's arguments in place of any, so that valid ones are taken."""
    spec = copy.deepcopy(document())
    arguments = next(t for t in make_world().tools if t.name == "add_note").input_schema
    for path, item in spec["paths"].items():
        for parameter in item["parameters"]:
            values = {"name": "add_note", "run": "jti-s1"}
            parameter["schema"] = {"enum": [values[parameter["name"]]]}
        if path.endswith("{name}"):
            # A key that was used for another call is refused, as it should be.
            operation = item["post"]["parameters"]
            operation[:] = [p for p in operation if p["name"] != "Idempotency-Key"]
            body = item["post"]["requestBody"]["content"]["application/json"]
            body["schema"] = dict(arguments)
    return spec


def representable(body: Any) -> bool:
    """Whether its integers fit into 64 bits, which a JSON Schema of any object cannot ask for."""
    try:
        orjson.dumps(body)
    except TypeError:
        return not isinstance(body, dict)  # no body at all, say
    return True


@pytest.mark.req("R02", "R03", "R08", "R09", "R10", "R22")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_the_proxy_keeps_to_its_document(server: Server, path: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(for_one_tool(server))
    operation = schema[path]["POST"]
    statuses: set[int] = set()
    token = server.token()
    both = {"Authorization": f"Bearer {token}", "X-Pipelines-Run-Token": token}

    @settings(
        max_examples=60, derandomize=True, deadline=None, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        assume(representable(case.body))
        response = case.call_and_validate(
            base_url=server.url + BASE, headers=both, checks=CHECKED, timeout=20
        )
        statuses.add(response.status_code)

    run()
    if mode is GenerationMode.POSITIVE:
        assert statuses == {202 if path.endswith("trace") else 200}
    else:
        # What was made invalid may be a header that is not looked at; `negative_data_rejection`
        # knows whether it was.
        assert statuses & {400, 404, 422}


def test_the_document_is_served_and_is_openapi(server: Server) -> None:
    response = server.client.get(f"{server.url}{BASE}/openapi.json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == document()
    schemathesis.openapi.from_dict(response.json()).validate()
    wrong = server.client.post(f"{server.url}{BASE}/openapi.json")
    assert (wrong.status_code, set(wrong.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})


@pytest.mark.req("R08")
def test_every_row_of_the_table_is_in_the_document() -> None:
    posts = [item["post"]["responses"] for item in document()["paths"].values()]
    for row in TABLE:
        found = [r[str(row.status)] for r in posts if str(row.status) in r]
        schemas = [answer["content"]["application/json"]["schema"] for answer in found]
        error = {"code": row.code, "message": row.message, "retryable": row.retryable}
        assert any(jsonschema_rs.is_valid(schema, {"error": error}) for schema in schemas)
        turned = {**error, "retryable": not row.retryable}
        assert not any(jsonschema_rs.is_valid(schema, {"error": turned}) for schema in schemas)


@pytest.mark.req("R03")
def test_only_simulated_answers_have_a_validation() -> None:
    spec = document()
    schema = {"$ref": "#/components/schemas/Envelope", "components": spec["components"]}
    answer = {"tool_name": "a", "response": "b", "latency_ms": 1, "matched_rule_index": None}
    for source in ("odyssey", "injected", "passthrough", "error", "transport_error"):
        envelope = {**answer, "source": source}
        assert jsonschema_rs.is_valid(schema, envelope)
        with_one = {**envelope, "validation": {"valid": True}}
        assert jsonschema_rs.is_valid(schema, with_one) == (source == "odyssey")
    assert not jsonschema_rs.is_valid(schema, {**answer, "source": "else"})
