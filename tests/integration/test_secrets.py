"""Canaries in every place where an agent or operator has a secret; nowhere may they come out.

The tool proxy runs with its real HTTP server, real log output, and real tools that quote what they
were sent. See tests/e2e/test_run.py for the same over a whole run.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from schemas.briefs import ToolSpec
from services.runtime.addresses import AllowList
from services.runtime.http import HttpServer, application
from services.runtime.logs import configure
from services.runtime.metrics import Metrics
from services.runtime.outbound import Outbound
from services.runtime.tokens import Claims, Tokens
from services.tool_proxy.app import BASE, ProxyApp
from services.tool_proxy.passthrough_http import HttpTools
from services.tool_proxy.passthrough_tools import RealTools
from services.tool_proxy.proxy import ProxyLimits, ToolProxy
from services.tool_proxy.session import ProxyCore
from services.tool_proxy.world import Context, World
from tests.support.http_server import serve
from tests.support.services import FixedClock
from tests.support.tool_proxy import NOW_MS, SECRET, MemoryLog, make_brief, started

pytestmark = pytest.mark.req("R18", "R22")

AUTH = "canary-auth-value"
HEADER = "canary-request-header"
QUERY = "canary-in-url"
PATH = "canary-in-path"
BODY = "canary-in-body"
CANARIES = (AUTH, HEADER, QUERY, PATH, BODY, SECRET, "gAAAAA")
OBJECT = {"type": "object"}
ACTOR, KEY = "X-Pipelines-Actor-Id", "Idempotency-Key"


def leaky_tools() -> Starlette:
    """Real tools that say what they were sent, each in its way."""

    def sent(request: Request) -> str:
        return request.headers.get("authorization", "") + request.headers.get("x-key", "")

    async def echo(request: Request) -> Response:
        return JSONResponse({"headers": dict(request.headers), "quoted": f'a "{sent(request)}"'})

    async def refuse(request: Request) -> Response:
        return PlainTextResponse(f"no such key: {sent(request)}", 401)

    async def redirect(request: Request) -> Response:
        return RedirectResponse(f"http://127.0.0.1:1/{sent(request)}", 307)

    async def break_off(request: Request) -> Response:
        return Response(sent(request), headers={"content-length": "1000"})

    async def header(request: Request) -> Response:
        wrong = {"content-type": f"text/plain; charset={sent(request)}"}
        return Response(b"x", headers=wrong)

    routes = (echo, refuse, redirect, break_off, header)
    return Starlette(routes=[Route(f"/{f.__name__}", f, methods=["POST"]) for f in routes])


def careless_world() -> World:
    """A world whose author puts what it gets into exceptions."""
    world = World("careless")

    @world.tool
    def crash(ctx: Context, note: str) -> dict[str, Any]:
        """Breaks, saying what it was given."""
        raise RuntimeError(f"cannot handle {note}")

    return world


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """The real log output, undone afterwards: it is set up for a whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield capsys
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


class Proxy:
    """The proxy over HTTP, and all that comes out of it."""

    def __init__(self, url: str, log: MemoryLog, metrics: Metrics, client: httpx.AsyncClient):
        self.url, self.log, self.metrics, self.client = url, log, metrics, client
        self.answers: list[str] = []
        claims = Claims("s1", "run", "jti", 1, 1, "d1", NOW_MS, NOW_MS + 60_000)
        self.token = Tokens(SECRET).mint(claims)

    async def post(self, path: str, *, own: bool = False, **request: Any) -> httpx.Response:
        """Post; `own`: the answer may hold what this very request had as an argument."""
        headers = {"Authorization": f"Bearer {self.token}", **request.pop("headers", {})}
        url = path if path.startswith("http") else f"{self.url}{BASE}{path}"
        response = await self.client.post(url, headers=headers, **request)
        if not own:
            self.answers.append(f"{response.headers}\n{response.text}")
        return response

    def outputs(self, logs: str) -> dict[str, str]:
        """Everything that others get to see, by where."""
        return {
            "log": logs,
            "metrics": self.metrics.render().decode(),
            "answers": "\n".join(self.answers),
            "records": "\n".join(record.decode("latin-1") for record in self.log.records),
        }


@asynccontextmanager
async def proxying(tools: dict[str, ToolSpec], *, broken: bool = False) -> AsyncIterator[Proxy]:
    core = ProxyCore({"careless": careless_world()})
    log, metrics, clock = MemoryLog(core), Metrics(), FixedClock(NOW_MS)
    log.put(started(make_brief(world="careless", tools=list(tools.values()))))
    outbound = Outbound(
        AllowList(["127.0.0.1"]), max_connections=10, max_response_bytes=1024 * 1024
    )

    async def failing(call: Any) -> Any:
        raise RuntimeError(f"Authorization: Bearer {AUTH}-and-more")

    logger = configure("tool_proxy", "debug")
    executor = ThreadPoolExecutor(1)
    proxy = ToolProxy(
        core=core, sessions=log, record=log.record, clock=clock, metrics=metrics, log=logger,
        executor=executor, limits=ProxyLimits(start_wait_s=0.1),
        real_tools=failing if broken else RealTools(HttpTools(outbound), HttpTools(outbound)),
    )  # fmt: skip
    app = ProxyApp(proxy, Tokens(SECRET), clock, metrics, logger, body_timeout_s=0.3)
    server = HttpServer(application(metrics, list, app.routes()), "127.0.0.1", 0)
    port = await server.start()
    try:
        async with httpx.AsyncClient(timeout=20) as client:
            yield Proxy(f"http://127.0.0.1:{port}", log, metrics, client)
    finally:
        await server.stop()
        await outbound.close()
        executor.shutdown()


def assert_absent(proxy: Proxy, logs: str, *canaries: str) -> None:
    for where, text in proxy.outputs(logs).items():
        for canary in canaries:
            assert canary not in text, f"{canary} is in {where}"


def test_credentials_of_real_tools_come_out_nowhere(
    logged: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOL_AUTH", f"Bearer {AUTH}")
    monkeypatch.setenv("TOOL_KEY", f'{AUTH}"\\')
    names = ("echo", "refuse", "redirect", "break_off", "header")

    async def scenario(url: str) -> Proxy:
        tools = {
            f"{name}_{kind}": ToolSpec(
                name=f"{name}_{kind}", input_schema=OBJECT, mode="passthrough",
                target=f"{url}/{name}?key={QUERY}", target_auth_header=header,
                target_auth_ref=f"env:{variable}",
            )
            for name in names
            for kind, header, variable in (
                ("bearer", "Authorization", "TOOL_AUTH"), ("key", "X-Key", "TOOL_KEY"),
            )
        }  # fmt: skip
        tools["closed"] = ToolSpec(
            name="closed", input_schema=OBJECT, mode="passthrough",
            target=f"http://127.0.0.1:1/{QUERY}", target_auth_header="Authorization",
            target_auth_ref="env:TOOL_AUTH",
        )  # fmt: skip
        tools["refused"] = tools["closed"].model_copy(
            update={"name": "refused", "target": f"http://10.0.0.1/{QUERY}"}
        )
        tools["missing"] = tools["closed"].model_copy(
            update={"name": "missing", "target_auth_ref": "env:NOT_THERE"}
        )
        async with proxying(tools) as proxy:
            statuses = {name: (await proxy.post(f"/tools/{name}", json={})) for name in tools}
            assert statuses["echo_bearer"].json()["source"] == "passthrough"
            assert "redacted" in statuses["echo_bearer"].text
            assert statuses["refuse_key"].json()["source"] == "transport_error"
            for code in ("refused", "missing"):
                assert statuses[code].status_code >= 500
            # The session's start is what the operator registered, targets included.
            del proxy.log.records[0]
            return proxy

    with serve(leaky_tools()) as url:
        proxy = asyncio.run(scenario(url))
    assert len(proxy.log.records) == 13
    assert_absent(proxy, logged.readouterr().err, AUTH, QUERY, SECRET, "gAAAAA")


def test_what_a_request_carries_comes_out_nowhere(logged: pytest.CaptureFixture[str]) -> None:
    headers = {
        "Cookie": f"a={HEADER}", "X-Api-Key": HEADER, "User-Agent": HEADER, "Referer": HEADER,
        "X-Forwarded-For": HEADER, "X-Pipelines-Run-Id": HEADER,
    }  # fmt: skip

    async def scenario() -> Proxy:
        crash = ToolSpec(name="crash", input_schema=OBJECT)
        async with proxying({"crash": crash}) as proxy:
            body = {"password": BODY}
            wrong = [
                # Wrong places.
                await proxy.post(f"/nowhere/{PATH}", json=body, headers=headers),
                await proxy.post(f"/runs/{PATH}/tools/crash", json=body, headers=headers),
                await proxy.post(f"{proxy.url}/{PATH}", json=body, headers=headers),
                # No token, or none that is good.
                await proxy.post("/tools/crash", json=body, headers={"Authorization": HEADER}),
                await proxy.post("/trace", json=body, headers={"Authorization": f"Basic {HEADER}"}),
                # Headers that mean something, and mean nothing here.
                await proxy.post("/trace", json=body, headers={ACTOR: f"{HEADER} x"}),
                await proxy.post("/tools/crash", json=body, headers={KEY: f"{HEADER} x"}),
                await proxy.post("/tools/crash", json=body, headers={"Content-Encoding": HEADER}),
                # Bodies that are no arguments.
                await proxy.post("/tools/crash", content=f'{{"a": "{BODY}'),
                await proxy.post("/tools/crash", content=f'["{BODY}"]'),
                await proxy.post("/tools/crash", content=f'{{"{BODY}": 1, "{BODY}": 2}}'),
                await proxy.post("/tools/crash", content=BODY.encode() * 100_000),
                await proxy.post("/trace", json={"type": "plan", "payload": {"steps": [body]}}),
            ]  # fmt: skip
            assert all(response.status_code in range(400, 500) for response in wrong)
            ok = await proxy.post(f"/trace?key={QUERY}", headers=headers,
                                  json={"type": "custom", "payload": {"name": "n"}})  # fmt: skip
            assert ok.status_code == 202
            called = await proxy.post(
                f"/tools/crash?key={QUERY}", json={"note": "x"}, headers=headers
            )
            assert called.json()["error"]["code"] == "world_failed"
            assert len(proxy.log.records) == 3  # its start, the trace event, the call
            return proxy

    proxy = asyncio.run(scenario())
    assert_absent(proxy, logged.readouterr().err, *CANARIES)


def test_an_exception_that_quotes_a_token_is_told_to_nobody(
    logged: pytest.CaptureFixture[str],
) -> None:
    """A world raises with what it was given, which the agent took from its own token header; and
    something unforeseen raises with a header in its text."""

    async def scenario(broken: bool) -> Proxy:
        crash = ToolSpec(name="crash", input_schema=OBJECT)
        real = ToolSpec(name="real", input_schema=OBJECT, mode="passthrough", target="http://x/")
        async with proxying({"crash": crash, "real": real}, broken=broken) as proxy:
            for note in (proxy.token, f"Bearer {proxy.token}", json.dumps({"t": proxy.token})):
                response = await proxy.post("/tools/crash", json={"note": note})
                assert response.json()["error"]["code"] == "world_failed"
            if broken:
                response = await proxy.post("/tools/real", json={})
                assert response.json()["error"]["code"] == "internal_error"
            return proxy

    for broken in (False, True):
        proxy = asyncio.run(scenario(broken))
        logs = logged.readouterr().err
        assert "cannot handle" in logs  # it is told what happened, without the token
        assert ("request failed" in logs) == broken
        assert_absent(proxy, logs, AUTH, SECRET, "gAAAAA", proxy.token[20:])


def test_what_an_agent_puts_into_arguments_is_its_own_affair(
    logged: pytest.CaptureFixture[str],
) -> None:
    """Recorded as an argument, and nowhere else but where the world's author puts it."""

    async def scenario() -> Proxy:
        crash = ToolSpec(name="crash", input_schema={"type": "object", "required": ["note"]})
        async with proxying({"crash": crash}) as proxy:
            await proxy.post("/tools/crash", json={"password": BODY}, own=True)
            return proxy

    proxy = asyncio.run(scenario())
    outputs = proxy.outputs(logged.readouterr().err)
    assert [where for where, text in outputs.items() if BODY in text] == ["records"]
