"""R13, R16: whatever an agent sends instead of an answer is a typed outcome, in bounded time."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration
from services.runtime.agents.client import AgentClient, AgentFailed, TurnRequest
from services.runtime.agents.exchange import MAX_RESPONSE_BYTES, Exchanger
from tests.support.http_server import raw_server

TOKEN = "gAAAAABmcanary-run-token_0123456789=="
SECRET = "Bearer canary/auth+value"
REQUEST = TurnRequest(
    body={"task_id": 42, "run_id": 17, "run_token_jti": "j", "input": {"user_instruction": "hi"}},
    run_token=TOKEN, proxy_url="http://127.0.0.1:1/p", run_id=17, task_id=42, jti="j",
    idempotency_key="s-1",
)  # fmt: skip
Handle = Callable[[socket.socket], None]


def request_of(connection: socket.socket) -> bytes:
    """A whole request, so that closing the connection is no reset."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def sends(raw: bytes) -> Handle:
    def handle(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(raw)

    return handle


def ok(body: bytes, headers: bytes = b"") -> Handle:
    length = str(len(body)).encode()
    return sends(
        b"HTTP/1.1 200 OK\r\n" + headers + b"Content-Length: " + length + b"\r\n\r\n" + body
    )


def ask(url: str, **fields: Any) -> ParsedResponse:
    async def main() -> ParsedResponse:
        client = AgentClient(10)
        try:
            return await client.turn(agent_at(url, **fields), REQUEST)
        finally:
            await client.close()

    return asyncio.run(main())


def agent_at(url: str, **fields: Any) -> AgentRegistration:
    return AgentRegistration(
        **({"agent_id": "a", "name": "a", "endpoint": url, "run_timeout_s": 1} | fields)
    )


def silent(connection: socket.socket) -> None:
    request_of(connection)
    time.sleep(5)


def slow_headers(connection: socket.socket) -> None:
    request_of(connection)
    for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.1)


def slow_chunks(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(100):
        connection.sendall(b"1\r\nx\r\n")
        time.sleep(0.1)


def hints_for_ever(connection: socket.socket) -> None:
    request_of(connection)
    for _ in range(100):
        connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        time.sleep(0.1)


def endless(connection: socket.socket) -> None:
    request_of(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in itertools.repeat(None):
        connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")


def resets(connection: socket.socket) -> None:
    request_of(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def closes(connection: socket.socket) -> None:
    request_of(connection)


BOMB = gzip.compress(b'{"final_response": "' + b"x" * 50_000_000 + b'"}')
ANSWER = b'{"final_response": "fine"}'
CASES: dict[str, tuple[Handle, str, str]] = {
    "never answers": (silent, "timeout", "timeout"),
    "one byte at a time, headers": (slow_headers, "timeout", "timeout"),
    "one byte at a time, chunks": (slow_chunks, "timeout", "timeout"),
    "early hints for ever": (hints_for_ever, "timeout", "timeout"),
    "10 MB": (ok(b"x" * 10_000_000), "error", "response_too_large"),
    "10 MB announced": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\nx"),
        "error", "response_too_large",
    ),
    "without end": (endless, "error", "response_too_large"),
    "one byte too many": (ok(b" " * (MAX_RESPONSE_BYTES + 1)), "error", "response_too_large"),
    "gzip bomb": (ok(BOMB, b"Content-Encoding: gzip\r\n"), "error", "content_encoding"),
    "no JSON": (ok(b"{nope"), "error", "response_not_json"),
    "nothing": (ok(b""), "error", "response_not_json"),
    "NaN": (ok(b'{"final_response": "x", "metadata": {"a": NaN}}'), "error", "response_not_json"),
    "not UTF-8": (ok(b'{"final_response": "\xff"}'), "error", "response_not_json"),
    "very deep": (ok(b"[" * 2_000_000), "error", "response_not_json"),
    "huge number": (ok(b'{"a": 1e999}'), "error", "response_not_json"),
    "huge digits": (ok(b'{"a": ' + b"9" * 100_000 + b"}"), "error", "response_not_json"),
    "empty answer": (ok(b'{"final_response": ""}'), "error", "final_response_missing"),
    "blank answer": (
        ok(b'{"final_response": "\xe2\x80\x8b \\n"}'), "error", "final_response_missing",
    ),
    "number for an answer": (ok(b'{"final_response": 5}'), "error", "final_response_missing"),
    "array": (ok(b"[]"), "error", "response_not_object"),
    "redirect to link-local": (
        sends(b"HTTP/1.1 307 X\r\nLocation: http://169.254.169.254/latest\r\n\r\n"),
        "error", "redirect",
    ),
    "redirect without location": (sends(b"HTTP/1.1 302 X\r\n\r\n"), "error", "redirect"),
    "500": (sends(b"HTTP/1.1 500 X\r\nContent-Length: 4\r\n\r\nboom"), "error", "http_status"),
    "401": (sends(b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n"), "error", "http_status"),
    "204": (sends(b"HTTP/1.1 204 X\r\n\r\n"), "error", "response_not_json"),
    "101": (sends(b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"),
            "error", "http_status"),
    "closes at once": (closes, "error", "connection_broken"),
    "closes mid-body": (
        sends(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"final'),
        "error", "connection_broken",
    ),
    "closes mid-chunk": (
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc"),
        "error", "connection_broken",
    ),
    "resets": (resets, "error", "connection_broken"),
    "bad chunks": (
        sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"),
        "error", "response_not_http",
    ),
    "no HTTP": (sends(b"220 smtp.example ESMTP\r\n"), "error", "response_not_http"),
    "huge header": (
        ok(ANSWER, b"X-Big: " + b"x" * 200_000 + b"\r\n"), "error", "response_not_http",
    ),
    "many headers": (ok(ANSWER, b"X-Many: 1\r\n" * 10_000), "error", "response_not_http"),
    "two lengths": (
        sends(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\n{}}}}"),
        "error", "response_not_http",
    ),
}  # fmt: skip


@pytest.mark.req("R13", "R16")
@pytest.mark.parametrize("name", CASES)
def test_every_misbehaviour_is_a_typed_outcome_in_bounded_time(name: str) -> None:
    handle, outcome, code = CASES[name]
    started = time.monotonic()
    with raw_server(handle) as url, pytest.raises(AgentFailed) as caught:
        ask(url)
    assert (caught.value.outcome, caught.value.code) == (outcome, code), caught.value.detail
    assert len(caught.value.detail) < 600
    # A second for the turn; the rest is room for a busy machine.
    assert time.monotonic() - started < 10


@pytest.mark.req("R13")
@pytest.mark.parametrize(
    "handle",
    [
        sends(b"HTTP/1.0 200 OK\r\n\r\n" + ANSWER),
        ok(ANSWER, b"Content-Encoding: identity\r\n"),
        ok(b"\xef\xbb\xbf" + ANSWER),
        ok(ANSWER, b"Content-Type: text/plain\r\n"),
        sends(
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n"
            b"Content-Length: 26\r\n\r\n" + ANSWER
        ),
        sends(
            b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n1a\r\n" + ANSWER
            + b"\r\n0\r\n\r\n"
        ),
    ],
    ids=["http-1.0", "identity", "bom", "text", "early-hints", "chunked"],
)  # fmt: skip
def test_unusual_but_good_answers_are_taken(handle: Handle) -> None:
    with raw_server(handle) as url:
        assert ask(url).final_response == "fine"


def test_nothing_is_compressed_and_no_cookie_goes_from_one_turn_to_the_next() -> None:
    heads: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        heads.append(request_of(connection).lower())
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nSet-Cookie: who=one; Path=/\r\nContent-Length: 26\r\n\r\n" + ANSWER
        )

    async def main(url: str) -> None:
        client = AgentClient(10)
        for _ in range(2):
            await client.turn(agent_at(url), REQUEST)
        await client.close()

    with raw_server(handle) as url:
        asyncio.run(main(url))
    assert len(heads) == 2
    assert all(b"accept-encoding: identity\r\n" in head for head in heads)
    assert not any(b"cookie" in head for head in heads)


def test_what_was_sent_is_not_sent_again() -> None:
    requests: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        requests.append(request_of(connection))

    with raw_server(handle) as url, pytest.raises(AgentFailed, match="connection_broken"):
        ask(url, run_timeout_s=5)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [
        ("http://no-such-host.invalid/x", "dns_failed"),
        ("http://127.0.0.1:1/x", "unreachable"),
        ("ftp://127.0.0.1/x", "endpoint_invalid"),
        ("http://[::1/x", "endpoint_invalid"),
    ],
)
def test_an_endpoint_that_leads_nowhere(endpoint: str, code: str) -> None:
    with pytest.raises(AgentFailed) as caught:
        ask(endpoint, run_timeout_s=20)
    assert caught.value.code == code


def test_tls_that_cannot_be_made() -> None:
    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with raw_server(handle) as url, pytest.raises(AgentFailed) as caught:
        ask(url.replace("http:", "https:"), run_timeout_s=20)
    assert caught.value.code == "tls_failed"


def test_a_certificate_that_nobody_vouches_for(tmp_path: Any) -> None:
    key, certificate = self_signed()
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "cert.pem").write_bytes(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")

    def handle(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)

    with raw_server(handle) as url, pytest.raises(AgentFailed) as caught:
        ask(url.replace("http:", "https:"), run_timeout_s=20)
    assert caught.value.code == "tls_failed"
    assert "certificate" in caught.value.detail


def self_signed() -> tuple[bytes, bytes]:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private, certificate.public_bytes(pem)


@pytest.mark.req("R18", "R22")
@pytest.mark.parametrize("status", [500, 200])
def test_an_error_quotes_little_printable_and_no_secret(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_AUTH", SECRET)

    def handle(connection: socket.socket) -> None:
        seen = request_of(connection)
        # Everything that was received, and an earlier turn's token, right where quoting stops.
        body = b"\x1b[31m\x00" + b"-" * 200 + seen + b"y" * 40 + b"gAAAAAearlier" * 900
        connection.sendall(
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )

    with raw_server(handle) as url, pytest.raises(AgentFailed) as caught:
        ask(url, auth_header="Authorization", auth_value_ref="env:TEST_AUTH")
    detail = caught.value.detail
    for canary in (TOKEN, "gAAAAA", SECRET, "canary"):
        assert canary not in detail
    assert detail.isprintable()
    assert len(detail.encode()) < 400


def test_an_answer_for_another_task_is_noted() -> None:
    body = b'{"final_response": "x", "task_id": 43, "run_id": "17", "run_token_jti": "k"}'
    with raw_server(ok(body)) as url:
        parsed = ask(url)
    assert parsed.final_response == "x"
    assert [w.split("'")[1] for w in parsed.soft_warnings] == ["43", "k"]


def test_hostile_answers_do_not_disturb_others() -> None:
    """A good agent's turns, while every misbehaviour is under way through the same client."""

    async def main(urls: list[str], good: str) -> list[str]:
        client = AgentClient(100)
        hostile = [asyncio.create_task(client.turn(agent_at(url), REQUEST)) for url in urls]
        texts = [(await client.turn(agent_at(good, run_timeout_s=20), REQUEST)).final_response
                 for _ in range(20)]  # fmt: skip
        outcomes = await asyncio.gather(*hostile, return_exceptions=True)
        assert all(isinstance(outcome, AgentFailed) for outcome in outcomes)
        await client.close()
        return texts

    from contextlib import ExitStack

    with ExitStack() as stack:
        urls = [stack.enter_context(raw_server(case[0])) for case in CASES.values()]
        good = stack.enter_context(raw_server(ok(ANSWER)))
        assert asyncio.run(main(urls, good)) == ["fine"] * 20


def test_an_exchanger_that_was_never_used_can_be_closed() -> None:
    asyncio.run(Exchanger(1).close())
