"""The kit's own proxy answers as the real one: same status, same headers, same body.

What an agent is told by the kit must be true here. Every request below goes to both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from schemas.registry import ToolRegistration
from schemas.traces import json_schema
from services.cli.conformance.contract import ROWS, TRACE_TYPES
from services.cli.conformance.probe import Probe
from services.cli.conformance.recording import Behaviour
from services.runtime.clock import SystemClock
from services.tool_proxy.errors import BY_CODE
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import STATE as WORLD
from tests.support.tool_proxy import MemoryLog, make_world

SCHEMA = (
    '{"type": "object", "properties": {"order_id": {"type": "string"}}, '
    '"required": ["order_id"], "additionalProperties": false}'
)
PATH = "/tools/get_order"
ORDER = b'{"order_id": "1"}'
HEADERS = ("content-type", "www-authenticate", "allow", "accept-encoding", "retry-after")
GOOD = {"Authorization": "Bearer {token}"}
PLAN = b'{"type": "plan", "payload": {"steps": []}}'

REQUESTS: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("POST", PATH, GOOD, ORDER),
    ("POST", PATH, {"authorization": "bearer {token}"}, ORDER),
    ("POST", PATH, {"X-Pipelines-Run-Token": "{token}"}, ORDER),
    ("POST", PATH, {"X-Pipelines-Run-Token": "{token}", **GOOD}, ORDER),
    ("POST", PATH, {"X-Pipelines-Run-Token": "else", **GOOD}, ORDER),
    ("POST", PATH, {}, ORDER),
    ("POST", PATH, {"Authorization": "{token}"}, ORDER),
    ("POST", PATH, {"Authorization": "Basic {token}"}, ORDER),
    ("POST", PATH, {"Authorization": "Bearer fake-token"}, ORDER),
    ("POST", "/tools/__reachability_probe__", {"Authorization": "Bearer fake-token"}, b"{}"),
    ("POST", "/tools/unheard_of", GOOD, b"{}"),
    ("POST", "/tool/get_order", GOOD, ORDER),
    ("POST", "/tools", GOOD, ORDER),
    ("POST", "/tools/", GOOD, ORDER),
    ("POST", "//tools/get_order", GOOD, ORDER),
    ("POST", "/tools/get_order/", GOOD, ORDER),
    ("POST", "/tools/get_order?order_id=1", GOOD, ORDER),
    ("GET", PATH, GOOD, b""),
    ("PUT", PATH, GOOD, ORDER),
    ("POST", PATH, GOOD, b""),
    ("POST", PATH, GOOD, b"[]"),
    ("POST", PATH, GOOD, b'"x"'),
    ("POST", PATH, GOOD, b"{"),
    ("POST", PATH, GOOD, b"order_id=1"),
    ("POST", PATH, GOOD, b'{"order_id": NaN}'),
    ("POST", PATH, GOOD, b'{"order_id": "\xff"}'),
    ("POST", PATH, GOOD, b'{"order_id": 1}'),
    ("POST", PATH, GOOD, b'{"arguments": {"order_id": "1"}}'),
    ("POST", PATH, GOOD, b'{"order_id": "1"' + b" " * 1024 * 1024 + b"}"),
    ("POST", PATH, {**GOOD, "Content-Encoding": "gzip"}, ORDER),
    ("POST", PATH, {**GOOD, "Content-Type": "application/json; charset=latin-1"}, ORDER),
    ("POST", PATH, {**GOOD, "Content-Type": "text/plain"}, ORDER),
    ("POST", PATH, {**GOOD, "X-Pipelines-Actor-Id": "supervisor/refunds"}, ORDER),
    ("POST", PATH, {**GOOD, "X-Pipelines-Actor-Id": "supervisor / refunds"}, ORDER),
    ("POST", PATH, {**GOOD, "X-Pipelines-Actor-Id": ""}, ORDER),
    ("POST", "/trace", GOOD, PLAN),
    ("POST", "/trace", {}, PLAN),
    ("GET", "/trace", GOOD, b""),
    ("POST", "/trace", GOOD, b'{"events": [' + PLAN + b"]}"),
    ("POST", "/trace", GOOD, b'{"events": []}'),
    ("POST", "/trace", GOOD, b'{"type": "mood", "payload": {}}'),
    ("POST", "/trace", GOOD, b'{"type": "plan"}'),
    ("POST", "/trace", GOOD, b'{"type": "plan", "payload": [], "version": 1}'),
    ("POST", "/trace", GOOD, b'{"type": "plan", "payload": {"steps": []}, "actor": "x"}'),
)


@pytest.fixture
def real() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as server:
        server.start("s1")
        yield server


async def ask(
    client: httpx.AsyncClient, base: str, token: str, request: tuple[str, str, Any, bytes]
) -> httpx.Response:
    method, path, headers, body = request
    sent = {name: value.format(token=token) for name, value in headers.items()}
    return await client.request(method, base + path, headers=sent, content=body)


def comparable(response: httpx.Response) -> tuple[Any, ...]:
    """What an agent can go by. Which of several mistakes is told, and how, is left out."""
    body = response.json()
    if "latency_ms" in body:
        assert isinstance(body.pop("latency_ms"), int)
    error = body.get("error", {})
    if isinstance(error, dict):
        error.pop("details", None)
    headers = {name: response.headers.get(name) for name in HEADERS}
    return response.status_code, headers, list(body), body


@pytest.mark.req("R02", "R03", "R05", "R07", "R09", "R10", "R21", "R26")
def test_every_request_is_answered_alike(real: Server) -> None:
    tool = ToolRegistration(name="get_order", input_schema=SCHEMA)
    order = {"get_order": WORLD["orders"]["1"]}

    async def main() -> list[tuple[httpx.Response, httpx.Response]]:
        probe = Probe(SystemClock(), [tool], order)
        await probe.start("127.0.0.1", None)
        run = probe.open("a-run", real.token(), "RF-1", Behaviour())
        try:
            async with httpx.AsyncClient(timeout=20) as client:
                return [
                    (
                        await ask(client, real.base(), real.token(), request),
                        await ask(client, run.proxy_url, run.token, request),
                    )
                    for request in REQUESTS
                ]
        finally:
            await probe.stop()

    statuses = set()
    for request, (from_real, from_probe) in zip(REQUESTS, asyncio.run(main()), strict=True):
        assert comparable(from_probe) == comparable(from_real), (*request[:3], request[3][:60])
        statuses.add(from_real.status_code)
    assert statuses == {200, 202, 400, 401, 404, 405, 413, 415, 422}


@pytest.mark.req("R08")
def test_the_rows_are_those_of_the_documented_table() -> None:
    for code, row in ROWS.items():
        theirs = BY_CODE[code]
        assert (row.status, row.retryable, row.message) == (
            theirs.status, theirs.retryable, theirs.message,
        )  # fmt: skip


@pytest.mark.req("R10")
def test_the_types_of_trace_events_are_the_documented_ones() -> None:
    mapping = json_schema()["anyOf"][0]["discriminator"]["mapping"]
    assert set(mapping) == set(TRACE_TYPES)
