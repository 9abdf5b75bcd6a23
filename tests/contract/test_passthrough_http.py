"""Passthrough to real HTTP servers, well-behaved and otherwise, through the proxy's own HTTP."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from schemas.briefs import ToolSpec
from schemas.codec import Codec
from services.tool_proxy.session import ProxyCore
from tests.support.http_server import raw_server, serve
from tests.support.proxy_server import Server, check_refused, serving
from tests.support.real_tools import LOOPBACK, client, real_tools
from tests.support.tool_proxy import MemoryLog, make_world, specs

pytestmark = pytest.mark.req("R19")

CANARY = "canary-Zx81-Auth/Value"
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"


def real(url: str, name: str = "real", **others: Any) -> ToolSpec:
    values = {"input_schema": {}, "mode": "passthrough", "target": url, "target_timeout_s": 10}
    return ToolSpec(name=name, **{**values, **others})


@contextmanager
def proxying(*tools: ToolSpec, allow: Any = LOOPBACK, **brief: Any) -> Iterator[Server]:
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    with serving(log, tools=real_tools(client(allow)), waiting_calls=200) as server:
        server.start("s1", tools=specs(make_world(), *tools), **brief)
        yield server


def error_of(server: Server, tool: str = "real") -> dict[str, Any]:
    """The error that a transport error tells, checked for its form."""
    response = server.call(tool)
    assert response.status_code == 200, response.text
    envelope = response.json()
    assert envelope["source"] == "transport_error"
    assert set(envelope["response"]) == {"error"}
    error: dict[str, Any] = envelope["response"]["error"]
    assert {"code", "message"} <= set(error)
    (event,) = server.recorded()
    called = event.tool_called
    assert called is not None
    assert (called.source, called.status, called.error_code) == ("transport_error", 200, None)
    return error


class Recorder:
    """A real tool that answers what it was set to, and keeps what it got."""

    def __init__(self, body: bytes = b"{}", status: int = 200, **headers: str) -> None:
        self.body, self.status = body, status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.seen: list[tuple[dict[str, str], bytes]] = []

    async def answer(self, request: Request) -> Response:
        self.seen.append((dict(request.headers), await request.body()))
        return Response(self.body, self.status, headers=self.headers)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/tool", self.answer, methods=["POST"])])


@pytest.mark.req("R02", "R22")
def test_the_arguments_arrive_byte_for_byte_and_nothing_of_the_run_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOL_KEY", f"Bearer {CANARY}")
    body = '{ "é": 1.50,\n\t"a" : [1e3, "\\u00e9"] }'.encode()
    tool = Recorder(b'{"fine": true}')
    auth = {"target_auth_header": "X-Tool-Key", "target_auth_ref": "env:TOOL_KEY"}
    with serve(tool.app()) as url, proxying(real(f"{url}/tool", **auth)) as server:
        headers = {"X-Pipelines-Actor-Id": "a/b", "Idempotency-Key": "key-1", "Cookie": "c=d"}
        envelope = server.call("real", content=body, headers=headers).json()
        assert envelope["response"] == {"fine": True}
        assert envelope["source"] == "passthrough"
        assert "validation" not in envelope
        server.call("real", content=body)
        token = server.token()
    (sent, received), (other, _) = tool.seen
    assert received == body
    assert sent["content-type"] == "application/json"
    assert sent["x-tool-key"] == f"Bearer {CANARY}"
    assert sent["idempotency-key"] == "key-1"
    assert len(other["idempotency-key"]) >= 16
    allowed = {"host", "user-agent", "accept", "accept-encoding", "content-type", "content-length",
               "idempotency-key", "x-tool-key"}  # fmt: skip
    assert set(sent) == allowed
    assert token not in str(tool.seen)


@pytest.mark.req("R04")
@pytest.mark.parametrize(
    ("body", "content_type", "response"),
    [
        (b'{"a": [1, 2]}', "application/json", {"a": [1, 2]}),
        (b"[1]", "text/plain", [1]),
        (b"pong", "text/plain", "pong"),
        (b"7", "application/json", "7"),
        (b"<p>\r\n \xc3\xa9</p>", "text/html", "<p>\r\n é</p>"),
        (b"a,b\r\n1,2\r\n", "text/csv", "a,b\r\n1,2\r\n"),
        (b"caf\xe9", "text/plain; charset=iso-8859-1", "café"),
        ("{}".encode("utf-16"), "application/json; charset=utf-16", {}),
        (b'{"a":', "application/json", '{"a":'),
        (b"", "text/plain", ""),
    ],
)
def test_answers_arrive_as_the_contract_has_it(
    body: bytes, content_type: str, response: Any
) -> None:
    tool = Recorder(body, content_type=content_type)
    with serve(tool.app()) as url, proxying(real(f"{url}/tool")) as server:
        envelope = server.call("real").json()
        assert (envelope["response"], envelope["source"]) == (response, "passthrough")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"\xff\xfe\x00", "text/plain"), (b"caf\xe9", "application/json"),
     (b"abc", "text/plain; charset=zlib"), (b"abc", "text/plain; charset=no-such"),
     (b"+2AA-", "text/plain; charset=utf-7"), (b"\x00\xd8", "text/plain; charset=utf-16-le"),
     (b"abc", "text/plain; charset*=utf-8''x")],
)  # fmt: skip
def test_what_is_no_text_is_a_transport_error(body: bytes, content_type: str) -> None:
    tool = Recorder(body, content_type=content_type)
    with serve(tool.app()) as url, proxying(real(f"{url}/tool")) as server:
        assert error_of(server)["code"] == "response_undecodable"


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (500, {}, {"code": "http_status", "status": 500, "body": {"why": "x"}}),
        (404, {}, {"code": "http_status", "status": 404, "body": {"why": "x"}}),
        (401, {}, {"code": "http_status", "status": 401, "body": {"why": "x"}}),
        (429, {"Retry-After": "7"}, {"code": "rate_limit", "status": 429, "retry_after": 7}),
        (429, {"Retry-After": "soon"}, {"code": "rate_limit", "status": 429}),
        (302, {"Location": "/tool"}, {"code": "redirect", "status": 302}),
        (304, {}, {"code": "redirect", "status": 304}),
    ],
)
def test_statuses_of_a_tool_are_data_for_the_agent(
    status: int, headers: dict[str, str], expected: dict[str, Any]
) -> None:
    tool = Recorder(b'{"why": "x"}' if status != 304 else b"", status, **headers)
    with serve(tool.app()) as url, proxying(real(f"{url}/tool")) as server:
        error = error_of(server)
        assert expected.items() <= error.items()


def test_a_long_error_page_is_left_out() -> None:
    tool = Recorder(b"x" * 100_000, 503)
    with serve(tool.app()) as url, proxying(real(f"{url}/tool")) as server:
        assert set(error_of(server)) == {"code", "message", "status"}


def answering(*parts: bytes) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)

    return handle


def endless(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")


def silent(connection: socket.socket) -> None:
    connection.settimeout(20)
    while connection.recv(65536):
        pass


def trickling(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(OK + b"Content-Length: 100\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def slow_headers(connection: socket.socket) -> None:
    connection.recv(65536)
    for byte in b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 1000:
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


@pytest.mark.req("R07")
@pytest.mark.parametrize(
    ("handle", "code"),
    [
        (answering(OK + b"Content-Length: 100\r\n\r\n{"), "outage"),
        (answering(OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"), "outage"),
        (answering(), "outage"),
        (answering(b"220 smtp.example ESMTP\r\n"), "outage"),
        (answering(OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n"), "outage"),
        (answering(OK + b"Content-Length: 10485760\r\n\r\n", b"x" * 10_485_760),
         "response_too_large"),
        (answering(OK + b"\r\n" + b"x" * 10_485_760), "response_too_large"),
        (endless, "response_too_large"),
        (answering(OK + b"Content-Encoding: gzip\r\n\r\nabc"), "response_undecodable"),
        (silent, "timeout"),
        (trickling, "timeout"),
        (slow_headers, "timeout"),
    ],
)  # fmt: skip
def test_tools_that_misbehave_are_transport_errors(
    handle: Callable[[socket.socket], None], code: str
) -> None:
    def one(connection: socket.socket) -> None:
        with suppress(OSError):
            handle(connection)

    with raw_server(one) as url, proxying(real(url, target_timeout_s=1)) as server:
        error = error_of(server)
        assert error["code"] == code
        if code == "timeout":
            # As an injected one looks (ADR 0003).
            assert error == {
                "code": "timeout", "message": "real did not answer in time.", "status": 504,
            }  # fmt: skip
        # The session goes on, and so do others.
        assert server.call("get_order", {"order_id": "1"}).json()["source"] == "odyssey"


def test_nobody_there_is_an_outage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with proxying(real(f"http://127.0.0.1:{port}")) as server:
        error = error_of(server)
        assert (error["code"], error["status"]) == ("outage", 503)
        assert str(port) not in error["message"] + error["reason"]


def test_no_tls_where_there_should_be() -> None:
    with (
        serve(Recorder().app()) as url,
        proxying(real(url.replace("http:", "https:"))) as server,
    ):
        assert error_of(server)["reason"] == "no TLS connection"


@pytest.mark.parametrize("hops", [0, 1])
def test_a_target_inside_is_refused_directly_and_by_redirect(hops: int) -> None:
    inside = "http://169.254.169.254/latest/meta-data/"
    tool = Recorder(b"", 307, Location=inside)
    with serve(tool.app()) as url, proxying(real(f"{url}/tool" if hops else inside)) as server:
        response = server.call("real")
        check_refused(response, "target_refused")
        assert "169.254" not in response.text
        (event,) = server.recorded()
        assert event.tool_called is not None
        assert event.tool_called.error_code == "target_refused"
    assert len(tool.seen) == hops


def test_without_an_entry_in_the_allow_list_loopback_is_refused() -> None:
    tool = Recorder()
    with serve(tool.app()) as url, proxying(real(f"{url}/tool"), allow=()) as server:
        check_refused(server.call("real"), "target_refused")
    assert not tool.seen


@pytest.mark.req("R18")
@pytest.mark.parametrize("value", [None, "WINDTUNNEL", "line\nbreak", "sécret"])
def test_missing_credentials_are_a_fault_of_the_deployment(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDTUNNEL_TOKEN_SECRET", CANARY)
    name = "WINDTUNNEL_TOKEN_SECRET" if value == "WINDTUNNEL" else "TOOL_KEY"
    if value is not None and name == "TOOL_KEY":
        monkeypatch.setenv(name, value)
    auth = {"target_auth_header": "X-Key", "target_auth_ref": f"env:{name}"}
    tool = Recorder()
    with serve(tool.app()) as url, proxying(real(f"{url}/tool", **auth)) as server:
        response = server.call("real")
        check_refused(response, "target_secret_missing")
        assert name not in response.text
    assert not tool.seen


@pytest.mark.req("R18")
@pytest.mark.parametrize("status", [200, 403])
def test_a_tool_that_echoes_its_credentials_does_not_bring_them_into_the_log(
    status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOOL_KEY", f'Bearer {CANARY}"q')
    tool = Recorder(b"", status)

    async def echo(request: Request) -> Response:
        text = f'{request.headers["x-key"]} or {CANARY}\\"q or {CANARY}"q'
        return PlainTextResponse(text, status)

    app = Starlette(routes=[Route("/tool", echo, methods=["POST"])])
    auth = {"target_auth_header": "X-Key", "target_auth_ref": "env:TOOL_KEY"}
    with serve(app) as url, proxying(real(f"{url}/tool", **auth)) as server:
        response = server.call("real")
        assert response.status_code == 200
        assert "[redacted]" in response.text
        assert CANARY not in response.text
        assert not any(CANARY.encode() in record for record in server.log.records)
        metrics = server.client.get(f"{server.url}/metrics").text
    assert not tool.seen
    assert CANARY not in metrics + "".join(capfd.readouterr())


def test_slow_tools_of_one_session_run_side_by_side() -> None:
    together = asyncio.Event()
    waiting = 0

    async def meet(request: Request) -> Response:
        nonlocal waiting
        waiting += 1
        if waiting == 4:
            together.set()
        async with asyncio.timeout(15):
            await together.wait()  # only where all four are here at once does any return
        return PlainTextResponse("met")

    app = Starlette(routes=[Route("/", meet, methods=["POST"])])
    with (
        serve(app) as url,
        proxying(real(url, target_timeout_s=20)) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        calls = [pool.submit(server.call, "real", {"n": n}) for n in range(4)]
        assert [call.result().json()["response"] for call in calls] == ["met"] * 4


def test_connections_are_kept_and_cookies_are_not() -> None:
    ports: list[int] = []
    cookies: list[str | None] = []

    async def handle(request: Request) -> Response:
        assert request.client is not None
        ports.append(request.client.port)
        cookies.append(request.headers.get("cookie"))
        return PlainTextResponse("", headers={"Set-Cookie": "session=one"})

    app = Starlette(routes=[Route("/", handle, methods=["POST"])])
    with serve(app) as url, proxying(real(url)) as server:
        server.start("s2", tools=[real(url)])
        for session_id in ("s1", "s2", "s1"):
            server.call("real", session_id=session_id)
    assert len(set(ports)) == 1
    assert cookies == [None] * 3


def test_every_event_can_be_read() -> None:
    with serve(Recorder(b"\x01\x02 {").app()) as url, proxying(real(f"{url}/tool")) as server:
        server.call("real")
        codec = Codec()
        from schemas.trajectory import TrajectoryEvent

        events = [codec.decode(TrajectoryEvent, record) for record in server.log.records]
    assert events[-1].tool_called is not None
    assert events[-1].tool_called.response == "\x01\x02 {"
