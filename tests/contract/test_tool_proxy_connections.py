"""R07: what one connection may cost the server, beyond the bodies that the contract caps."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from services.runtime import http_protocol
from services.tool_proxy.app import BASE
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import MemoryLog

pytestmark = pytest.mark.req("R07")
WAIT_S = 0.3


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", WAIT_S)
    monkeypatch.setattr(http_protocol, "LINGER_S", WAIT_S)
    monkeypatch.setattr(http_protocol, "LINGER_BYTES", 1024 * 1024)
    with serving(MemoryLog(ProxyCore({}))) as running:
        running.start("s1", world=None)
        yield running


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def closed_after(connection: socket.socket, *, trickle: bytes = b"", most_s: float = 5.0) -> float:
    """Seconds until the server closes the connection; `trickle` is sent all the time."""
    begun = time.monotonic()
    connection.settimeout(0.02)
    while time.monotonic() - begun < most_s:
        try:
            if trickle:
                connection.sendall(trickle)
            if not connection.recv(65536):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    return time.monotonic() - begun


def refused_post(*headers: str) -> bytes:
    lines = [f"POST {BASE}/tools/x HTTP/1.1", "Host: x", "Authorization: Bearer no", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("trickle", [b"", b"\r\n"])
def test_a_connection_that_asks_nothing_is_closed(server: Server, trickle: bytes) -> None:
    with connect(server) as connection:
        assert WAIT_S * 0.8 < closed_after(connection, trickle=trickle) < 4


def test_a_head_that_comes_too_slowly_is_given_up(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(refused_post()[:-2])
        assert closed_after(connection, trickle=b"X: y\r\n") < 4
    with connect(server) as connection:  # nor is one that follows a good request
        connection.sendall(refused_post("Content-Length: 0") + b"POST ")
        assert closed_after(connection, trickle=b"/") < 4


def test_an_answered_request_is_read_on_for_a_while(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(refused_post("Content-Length: 900000"))
        assert connection.recv(100).startswith(b"HTTP/1.1 401")
        connection.sendall(b"x" * 900_000 + refused_post("Content-Length: 0"))
        connection.settimeout(5)
        answers = b""
        while answers.count(b"HTTP/1.1 401") < 1:
            answers += connection.recv(65536)


@pytest.mark.parametrize("framing", ["Content-Length: 900000", "Transfer-Encoding: chunked"])
def test_but_not_for_ever(server: Server, framing: str) -> None:
    with connect(server) as connection:
        connection.sendall(refused_post(framing))
        assert closed_after(connection, trickle=b"1\r\nx\r\n") < 4


def test_nor_whatever_its_size(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "LINGER_S", 60.0)
    with connect(server) as connection:
        connection.sendall(refused_post("Content-Length: 1000000000"))
        assert closed_after(connection, trickle=b"x" * 65536) < 4
