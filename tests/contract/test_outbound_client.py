"""The guarded client against real servers on loopback: what it connects to, and what it reads."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from services.runtime.addresses import TargetRefused
from services.runtime.outbound import (
    MAX_REDIRECTS,
    ConnectionBroken,
    NotConnected,
    Outbound,
    ResponseEncoded,
    ResponseTooLarge,
    TooManyRedirects,
)
from tests.support.http_server import raw_server, serve
from tests.support.real_tools import client

pytestmark = pytest.mark.req("R19")


class Dns:
    """A name server that answers differently each time; the last answer stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Got:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.text = status, body.decode()

    def json(self) -> Any:
        return json.loads(self.text)


async def exchange(via: Outbound, url: str, headers: Any = None) -> Got:
    answer = await via.send("POST", url, headers or {}, b'{"a":1}')
    try:
        return Got(answer.status, await answer.read())
    finally:
        answer.close()


def post(url: str, *, times: int = 1, headers: Any = None, **options: Any) -> Got:
    async def all_of_them() -> Got:
        via = client(**options)
        try:
            return [await exchange(via, url, headers) for _ in range(times)][-1]
        finally:
            await via.close()

    return asyncio.run(all_of_them())


async def echo(request: Request) -> Response:
    return JSONResponse(
        {"headers": dict(request.headers), "body": (await request.body()).decode()},
        headers={"Set-Cookie": "who=somebody"},
    )


def redirecting(to: Callable[[], str], status: int = 307) -> Starlette:
    async def away(request: Request) -> Response:
        return RedirectResponse(to(), status)

    return Starlette(
        routes=[Route("/", away, methods=["POST"]), Route("/echo", echo, methods=["GET", "POST"])]
    )


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_it_connects_to_the_address_that_was_checked_and_asks_once() -> None:
    """With a name server that would have it connect elsewhere the second time."""
    with serve(redirecting(lambda: "")) as url:
        dns = Dns(["127.0.0.1"], ["10.255.255.1"])
        target = f"http://tools.example:{port_of(url)}/echo"
        response = post(target, resolve=dns)
        assert response.json()["headers"]["host"] == f"tools.example:{port_of(url)}"
        assert dns.asked == [("tools.example", port_of(url))]
        # A kept connection is not resolved anew, and goes where it was checked to go.
        dns = Dns(["127.0.0.1"], ["10.255.255.1"])
        assert post(target, resolve=dns, times=3).status == 200
        assert len(dns.asked) == 1


def test_a_name_that_turns_bad_is_refused_when_it_is_asked_for_again() -> None:
    async def twice() -> None:
        via = client(resolve=Dns(["127.0.0.1"], ["10.255.255.1"]))
        headers = {"Connection": "close"}
        target = f"http://tools.example:{port_of(url)}/echo"
        assert (await exchange(via, target, headers)).status == 200
        with pytest.raises(TargetRefused, match=r"10\.255\.255\.1"):
            await exchange(via, target, headers)
        await via.close()

    with serve(redirecting(lambda: "")) as url:
        asyncio.run(twice())


@pytest.mark.parametrize(
    "addresses",
    [["10.0.0.1"], ["8.8.8.8", "10.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["::ffff:10.0.0.1"],
     ["64:ff9b::10.0.0.1"], ["2606:4700::1", "fe80::1%lo"], ["not an address"]],
)  # fmt: skip
def test_one_bad_address_is_one_too_many(addresses: list[str]) -> None:
    with pytest.raises(TargetRefused):
        post("http://tools.example:9/", resolve=Dns(addresses))


def test_nothing_is_connected_to_where_nothing_is_allowed() -> None:
    touched = threading.Event()

    def handle(connection: socket.socket) -> None:
        touched.set()

    with raw_server(handle) as url:
        for target in (url, url.replace("127.0.0.1", "localhost"), url.replace("127.0", "127")):
            with pytest.raises(TargetRefused):
                post(target, allow=())
    assert not touched.is_set()


def test_names_without_an_address_are_no_connection() -> None:
    with pytest.raises(NotConnected):
        post("http://tools.example:9/", resolve=Dns([]))


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_repeats_the_post_and_leaves_credentials_behind(status: int) -> None:
    headers = {"X-Api-Key": "secret-1", "Authorization": "secret-2", "Idempotency-Key": "k",
               "Content-Type": "application/json"}  # fmt: skip
    with serve(redirecting(lambda: "")) as other:
        with serve(redirecting(lambda: f"{other}/echo", status)) as url:
            response = post(url, headers=headers)
            assert response.json()["body"] == '{"a":1}'
            assert "secret" not in response.text
            assert response.json()["headers"]["idempotency-key"] == "k"
        with serve(redirecting(lambda: "/echo", status)) as url:
            seen = post(url, headers=headers).json()["headers"]
            assert (seen["x-api-key"], seen["authorization"]) == ("secret-1", "secret-2")


@pytest.mark.parametrize(
    "location",
    ["http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://[::ffff:a9fe:a9fe]/",
     "//0x7f.1/", "ftp://127.0.0.1/", "http://user:pw@127.0.0.1/", "http://10.0.0.1/",
     "http://[::1/", "file:///etc/passwd"],
)  # fmt: skip
def test_a_redirect_is_checked_like_the_first_address(location: str) -> None:
    with serve(redirecting(lambda: location)) as url, pytest.raises(TargetRefused):
        post(url)


def test_a_redirect_to_a_name_is_resolved_and_checked() -> None:
    where = r"inside\.example:80 is at 10\.0\.0\.1"
    with (
        serve(redirecting(lambda: "http://inside.example/")) as url,
        pytest.raises(TargetRefused, match=where),
    ):
        post(url, resolve=Dns(["10.0.0.1"]))


@pytest.mark.parametrize("status", [301, 302, 303])
def test_redirects_that_would_change_the_request_are_not_followed(status: int) -> None:
    with serve(redirecting(lambda: "/echo", status)) as url:
        assert post(url).status == status


def test_redirects_end() -> None:
    hops = []

    def again() -> str:
        hops.append(1)
        return "/"

    with serve(redirecting(again)) as url, pytest.raises(TooManyRedirects):
        post(url)
    assert len(hops) == MAX_REDIRECTS + 1


def test_it_keeps_no_cookies_and_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serve(redirecting(lambda: "")) as url:
        seen = post(f"{url}/echo", times=2).json()["headers"]
    assert "cookie" not in seen
    assert "authorization" not in seen
    assert seen["accept-encoding"] == "identity"


def answering(*parts: bytes) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        for part in parts:
            connection.sendall(part)

    return handle


OK = b"HTTP/1.1 200 OK\r\n"


def test_an_answer_over_the_bound_is_not_read_to_its_end() -> None:
    sent = 0

    def endless(connection: socket.socket) -> None:
        nonlocal sent
        connection.recv(65536)
        connection.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
        with suppress(OSError):
            while sent < 1 << 30:
                connection.sendall(chunk)
                sent += 0x8000

    with raw_server(endless) as url, pytest.raises(ResponseTooLarge):
        post(url, max_response_bytes=100_000)
    assert sent < 64 << 20


def test_compressed_answers_are_not_unpacked() -> None:
    head = OK + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
    with raw_server(answering(head, b"abc")) as url, pytest.raises(ResponseEncoded):
        post(url)


@pytest.mark.parametrize(
    "parts",
    [(OK + b"Content-Length: 10\r\n\r\n", b"abc"), (b"",), (b"HTTP/1.1 200",),
     (b"\x00\x01\x02\r\n",), (b"SSH-2.0-OpenSSH_9\r\n",),
     (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n")],
)  # fmt: skip
def test_what_is_no_whole_answer_is_a_broken_connection(parts: tuple[bytes, ...]) -> None:
    with raw_server(answering(*parts)) as url, pytest.raises(ConnectionBroken):
        post(url)


@pytest.mark.parametrize("gap_s", [None, 0, 0.02])
def test_a_body_that_breaks_off_is_told_however_it_is_cut_into_packets(
    gap_s: float | None,
) -> None:
    parts = (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n")

    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        for part in parts if gap_s is not None else (b"".join(parts),):
            connection.sendall(part)
            time.sleep(gap_s or 0)

    for _ in range(20):
        with raw_server(handle) as url, pytest.raises(ConnectionBroken):
            post(url)


def test_nobody_listening_is_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotConnected) as error:
        post(f"http://127.0.0.1:{port}/", headers={"X-Key": "a secret"})
    assert str(error.value) == "no connection"


def test_certificates_are_checked_against_the_name_not_the_address(tmp_path: Path) -> None:
    context, trusted = certificates(tmp_path, "tools.example")

    def handle(connection: socket.socket) -> None:
        with suppress(ssl.SSLError), context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(OK + b"Content-Length: 2\r\n\r\n{}")

    with raw_server(handle) as url:
        port = port_of(url)
        dns = Dns(["127.0.0.1"])
        good = f"https://tools.example:{port}/"
        assert post(good, resolve=dns, ssl_context=trusted).text == "{}"
        for target, trust in [(good, None), (f"https://other.example:{port}/", trusted)]:
            with pytest.raises(NotConnected):
                post(target, resolve=dns, ssl_context=trust)


def certificates(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for a name, and a client's that trusts it."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "cert.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cadata=pem.decode())
