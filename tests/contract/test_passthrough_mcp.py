"""Passthrough to MCP servers: real ones, made with the same official package, on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent
from pydantic import BaseModel
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.briefs import ToolSpec
from services.tool_proxy.mcp_tools import McpTools
from services.tool_proxy.passthrough import RealAnswer, RealCall
from services.tool_proxy.passthrough_tools import RealTools
from services.tool_proxy.session import ProxyCore
from tests.support.http_server import raw_server, serve
from tests.support.proxy_server import check_refused, serving
from tests.support.real_tools import LOOPBACK, client, reaching, real_tools
from tests.support.tool_proxy import MemoryLog, make_world

pytestmark = pytest.mark.req("R19")
CANARY = "canary-mcp-71x"


class Order(BaseModel):
    id: str
    total: float
    note: str | None = None


def make_server(seen: list[Any]) -> MCPServer:
    server = MCPServer("shop")

    @server.tool()
    def get_order(order_id: str) -> Order:
        """Structured content, with its text beside it."""
        seen.append(order_id)
        return Order(id=order_id, total=5.5)

    @server.tool()
    def ping() -> str:
        return "pong"

    @server.tool()
    def count() -> int:
        return 7

    @server.tool()
    def names() -> list[str]:
        return ["a", "b"]

    @server.tool(structured_output=False)
    def json_text() -> str:
        return '{"a": [1]}'

    @server.tool(structured_output=False)
    def nothing() -> CallToolResult:
        return CallToolResult(content=[])

    @server.tool(structured_output=False)
    def parts() -> CallToolResult:
        picture = ImageContent(type="image", data="aGk=", mime_type="image/png")
        return CallToolResult(content=[TextContent(type="text", text="see"), picture])

    @server.tool()
    def refuse(why: str) -> str:
        raise ToolError(why)

    @server.tool(structured_output=False)
    def details() -> CallToolResult:
        text = TextContent(type="text", text="not today")
        return CallToolResult(content=[text], structured_content={"day": 1}, is_error=True)

    @server.tool(structured_output=False)
    def arguments(value: Any = "absent") -> str:
        return json.dumps({"value": value})

    @server.tool(structured_output=False)
    def large(size: int) -> str:
        return "x" * size

    @server.tool(structured_output=False)
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    @server.tool(structured_output=False)
    def headers(ctx: Context[Any, Any]) -> str:
        return json.dumps(dict(ctx.headers or {}))

    @server.tool(structured_output=False)
    async def elicits(ctx: Context[Any, Any]) -> str:
        answer = await ctx.elicit("sure?", Order)
        return str(answer)

    return server


class Era:
    """In front of a server: makes it one of before 2026, counts, and can forget its sessions."""

    def __init__(self, app: ASGIApp, *, legacy: bool) -> None:
        self.app, self.legacy = app, legacy
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.forget = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {k.decode(): v.decode() for k, v in scope["headers"]}
        method = json.loads(body).get("method", "") if body else ""
        self.requests.append((scope["method"], method, headers))
        if self.legacy and method == "server/discover":
            await _plain(send, 400, b"what is that?")
            return
        if self.forget and "mcp-session-id" in headers:
            self.forget = False
            await _plain(send, 404, b"no such session")
            return
        sent = False

        async def replay() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay, send)

    def count(self, method: str) -> int:
        return sum(seen == method for _, seen, _ in self.requests)


async def _plain(send: Send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status,
                "headers": [(b"content-type", b"text/plain")]})  # fmt: skip
    await send({"type": "http.response.body", "body": body})


@contextmanager
def mcp_server(*, legacy: bool = False, json_response: bool = False) -> Iterator[tuple[str, Era]]:
    server = make_server([])
    era = Era(server.streamable_http_app(json_response=json_response), legacy=legacy)
    with serve(era, lifespan="on") as url:
        yield f"{url}/mcp", era


def real_call(url: str, tool: str, arguments: Any = None, **others: Any) -> RealCall:
    session_id = others.pop("session_id", "s1")
    values = {"mode": "passthrough", "target_kind": "mcp", "target": url, "input_schema": {},
              "target_timeout_s": 10}  # fmt: skip
    spec = ToolSpec(**{"name": tool, **values, **others})
    return RealCall(tool, spec, json.dumps(arguments or {}), "key", session_id)


def ask(*calls: RealCall, **options: Any) -> list[RealAnswer]:
    async def exchange() -> list[RealAnswer]:
        async with reaching(**options) as tools:
            return [await tools(call) for call in calls]

    return asyncio.run(exchange())


def error_of(answer: RealAnswer) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answer.body)["error"]
    return error


ERAS = pytest.mark.parametrize(
    "options",
    [{}, {"legacy": True}, {"legacy": True, "json_response": True}, {"json_response": True}],
    ids=["modern", "legacy", "legacy-json", "modern-json"],
)


@pytest.mark.req("R04")
@ERAS
def test_results_become_responses(options: dict[str, Any]) -> None:
    expected: list[tuple[str, Any, str]] = [
        ("get_order", {"order_id": "1"}, '{"id":"1","total":5.5,"note":null}'),
        ("ping", {}, "pong"),
        ("count", {}, "7"),
        ("names", {}, '{"result":["a","b"]}'),
        ("json_text", {}, '{"a": [1]}'),
        ("nothing", {}, ""),
        ("parts", {}, '[{"type":"text","text":"see"},'
                      '{"type":"image","data":"aGk=","mimeType":"image/png"}]'),
        ("arguments", {"value": {"a": None, "b": [1, 2.5, "é"]}},
         '{"value": {"a": null, "b": [1, 2.5, "\\u00e9"]}}'),
        ("arguments", {"value": None}, '{"value": null}'),
        ("arguments", {}, '{"value": "absent"}'),
    ]  # fmt: skip
    with mcp_server(**options) as (url, _):
        answers = ask(*(real_call(url, tool, given) for tool, given, _ in expected))
    assert [answer.body for answer in answers] == [body for _, _, body in expected]
    assert not any(answer.failed or answer.error_code for answer in answers)


@ERAS
def test_a_tools_own_error_is_its_answer(options: dict[str, Any]) -> None:
    with mcp_server(**options) as (url, _):
        refused, detailed = ask(
            real_call(url, "refuse", {"why": "too late"}), real_call(url, "details")
        )
    assert error_of(refused)["code"] == "tool_error"
    assert "too late" in error_of(refused)["message"]
    assert error_of(detailed) == {
        "code": "tool_error", "message": "not today", "details": {"day": 1},
    }  # fmt: skip
    assert not refused.failed


@ERAS
def test_what_goes_wrong_on_the_way_is_a_transport_error(options: dict[str, Any]) -> None:
    with mcp_server(**options) as (url, _):
        unknown, slow, after, large, last = ask(
            real_call(url, "no_such_tool"),
            real_call(url, "slow", {"seconds": 60}, target_timeout_s=1),
            real_call(url, "ping"),
            real_call(url, "large", {"size": 2_000_000}),
            real_call(url, "ping"),
        )
    assert error_of(unknown)["code"] in ("mcp_error", "tool_error")
    assert error_of(slow)["code"] == "timeout"
    assert slow.failed
    assert error_of(large)["code"] == "response_too_large"
    assert large.failed
    # Neither has cost the session.
    assert (after.body, last.body) == ("pong", "pong")


def test_a_tool_that_wants_to_ask_somebody_is_told_that_nobody_is_there() -> None:
    for options in ({}, {"legacy": True}):
        with mcp_server(**options) as (url, _):
            elicits, after = ask(real_call(url, "elicits"), real_call(url, "ping"))
        assert "error" in json.loads(elicits.body)
        assert after.body == "pong"


def test_one_session_at_the_server_for_each_of_ours() -> None:
    with mcp_server(legacy=True) as (url, era):
        calls = [real_call(url, "ping", session_id=s) for s in ("s1", "s2", "s1", "s1", "s2")]
        answers = ask(*calls)
        assert [answer.body for answer in answers] == ["pong"] * 5
        assert era.count("initialize") == 2
        ids = [h["mcp-session-id"] for _, m, h in era.requests if m == "tools/call"]
        assert [ids.index(one) for one in ids] == [0, 1, 0, 0, 1]
        # They are ended in the end, and what a server would send unasked is never fetched.
        assert [method for method, _, _ in era.requests].count("DELETE") == 2
        assert "GET" not in {method for method, _, _ in era.requests}
        assert era.count("tools/list") == 0


def test_parallel_calls_share_a_session() -> None:
    async def exchange(url: str) -> list[str]:
        async with reaching() as tools:
            calls = [tools(real_call(url, "slow", {"seconds": 0.3})) for _ in range(5)]
            return [answer.body for answer in await asyncio.gather(*calls)]

    with mcp_server(legacy=True) as (url, era):
        assert asyncio.run(exchange(url)) == ["done"] * 5
        assert era.count("initialize") == 1


def test_sessions_are_bounded() -> None:
    async def exchange(url: str) -> None:
        via = client(LOOPBACK)
        mcp = McpTools(via, max_sessions=2)
        tools = RealTools(mcp, mcp)
        for number in range(6):
            answer = await tools(real_call(url, "ping", session_id=f"s{number}"))
            assert answer.body == "pong"
            assert len(mcp._open) <= 2
        await mcp.close()
        assert not mcp._open
        await via.close()

    with mcp_server(legacy=True) as (url, era):
        asyncio.run(exchange(url))
        assert era.count("initialize") == 6
        assert [method for method, _, _ in era.requests].count("DELETE") == 6


def test_a_server_that_forgot_the_session_gets_a_new_one() -> None:
    async def exchange(url: str, era: Era) -> list[str]:
        async with reaching() as tools:
            first = await tools(real_call(url, "ping"))
            era.forget = True
            return [first.body, (await tools(real_call(url, "ping"))).body]

    with mcp_server(legacy=True) as (url, era):
        assert asyncio.run(exchange(url, era)) == ["pong", "pong"]
        assert era.count("initialize") == 2


def test_a_server_that_comes_back_is_found_again() -> None:
    async def exchange() -> list[RealAnswer]:
        async with reaching() as tools:
            with mcp_server(legacy=True) as (url, _):
                answers = [await tools(real_call(url, "ping"))]
            answers.append(await tools(real_call(url, "ping")))
            with mcp_server() as (other, _):
                answers.append(await tools(real_call(other, "ping")))
            return answers

    first, gone, other = asyncio.run(exchange())
    assert (first.body, other.body) == ("pong", "pong")
    assert error_of(gone)["code"] == "outage"


@pytest.mark.req("R18")
@ERAS
def test_credentials_and_only_they_go_along(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_KEY", f"Bearer {CANARY}")
    auth = {"target_auth_header": "X-Key", "target_auth_ref": "env:MCP_KEY"}
    with mcp_server(**options) as (url, era):
        (answer,) = ask(real_call(url, "headers", **auth))
    sent = json.loads(answer.body)
    assert sent["x-key"] == "Bearer [redacted]" or sent["x-key"] == "[redacted]"
    assert not any("pipelines" in name for _, _, headers in era.requests for name in headers)
    posted = [headers for method, _, headers in era.requests if method in ("POST", "DELETE")]
    assert {headers["x-key"] for headers in posted} == {f"Bearer {CANARY}"}


def test_another_tools_name_at_the_server() -> None:
    with mcp_server() as (url, _):
        (answer,) = ask(real_call(url, "mine", target_tool="ping"))
    assert answer.body == "pong"


def test_servers_inside_are_refused() -> None:
    with mcp_server() as (url, era):
        (answer,) = ask(real_call(url, "ping"), allow=())
        assert answer.error_code == "target_refused"
        assert not era.requests
    for url in ("http://169.254.169.254/mcp", "http://user:pw@127.0.0.1/mcp", "ftp://x/"):
        (answer,) = ask(real_call(url, "ping"))
        assert answer.error_code == "target_refused"


def test_a_server_that_redirects_inside_is_refused() -> None:
    def handle(connection: Any) -> None:
        connection.recv(65536)
        location = b"Location: http://169.254.169.254/mcp\r\n"
        connection.sendall(
            b"HTTP/1.1 307 Go\r\nContent-Length: 0\r\nConnection: close\r\n" + location + b"\r\n"
        )

    with raw_server(handle) as url:
        (answer,) = ask(real_call(url, "ping"))
    assert answer.error_code == "target_refused"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n{]",
            "mcp_error",
        ),
        (
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html\r\n\r\n<p>hello",
            "mcp_error",
        ),
        (b"HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "http_status"),
        (b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "http_status"),
        (
            b"HTTP/1.1 302 Away\r\nConnection: close\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
            "http_status",
        ),
        (b"SSH-2.0\r\n", "outage"),
        (b"", "outage"),
    ],
)
def test_what_is_no_mcp_server(reply: bytes, code: str) -> None:
    def handle(connection: Any) -> None:
        connection.recv(65536)
        connection.sendall(reply)

    with raw_server(handle) as url:
        answers = ask(real_call(url, "ping"), real_call(url, "ping"))
    for answer in answers:
        assert (error_of(answer)["code"], answer.failed) == (code, True)


def test_a_server_that_never_answers_is_given_up_on() -> None:
    def handle(connection: Any) -> None:
        connection.settimeout(20)
        while connection.recv(65536):
            pass

    with raw_server(handle) as url:
        (answer,) = ask(real_call(url, "ping", target_timeout_s=1))
    assert error_of(answer) == {
        "code": "timeout", "message": "ping did not answer in time.", "status": 504,
    }  # fmt: skip


def test_an_endless_stream_is_cut_off() -> None:
    def handle(connection: Any) -> None:
        connection.recv(65536)
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n"
        )
        while True:
            connection.sendall(b": nothing\n\n" * 1000)

    with raw_server(handle) as url:
        (answer,) = ask(real_call(url, "ping"))
    assert error_of(answer)["code"] == "response_too_large"


def test_through_the_proxy() -> None:
    """As an agent sees it."""
    with mcp_server() as (url, _):
        spec = real_call(url, "get_order").spec
        log = MemoryLog(ProxyCore({"desk": make_world()}))
        via = client(LOOPBACK)
        with serving(log, tools=real_tools(via)) as server:
            inside = spec.model_copy(update={"name": "inside", "target": "http://10.0.0.1/mcp"})
            server.start("s1", tools=[spec, inside])
            envelope = server.call("get_order", {"order_id": "1"}).json()
            assert envelope["response"] == {"id": "1", "total": 5.5, "note": None}
            assert envelope["source"] == "passthrough"
            assert "validation" not in envelope
            bad = server.call("get_order", {}).json()
            assert (bad["source"], bad["response"]["error"]["code"]) == (
                "passthrough", "tool_error",
            )  # fmt: skip
            check_refused(server.call("inside"), "target_refused")
