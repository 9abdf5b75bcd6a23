"""R08: one call over its attempts: what is retried, how long is waited, and what is told."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
import logging
import random
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pydantic import BaseModel

from services.agent_kit import (
    Effects,
    Envelope,
    ProxyError,
    actor,
    aproxy_call,
    atrace,
    proxy_call,
    set_current,
    trace,
)
from services.agent_kit.kit import ATTEMPTS, MAX_ANSWER_BYTES, MAX_BODY_BYTES, to_json
from tests.support.http_server import raw_server

TOKEN = "canary-token-5f2a"
OK = {"tool_name": "t", "response": {"a": 1}, "source": "odyssey", "latency_ms": 1}


def error_body(code: str = "session_moved", *, retryable: bool = True) -> dict[str, Any]:
    return {"error": {"code": code, "message": "Not now.", "retryable": retryable}}


@dataclasses.dataclass
class Answer:
    status: int = 200
    body: Any = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    def encoded(self) -> bytes:
        body = OK if self.body is None else self.body
        return body if isinstance(body, bytes) else json.dumps(body).encode()


class Proxy:
    """A server with prepared answers, the last of them for good."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: list[Answer] = [Answer()]
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    def envelope(self) -> Envelope:
        return Envelope(
            task_id=1, run_id=2, user_instruction="hi", task_input={}, proxy_url=f"{self.url}/r/x/",
            run_token=TOKEN, run_token_jti="j",
        )  # fmt: skip


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.requests.append((self.path, headers, body))
            answer = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            encoded = answer.encoded()
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(encoded)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Proxy(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with set_current(state.envelope()):
            yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Recorded:
    """Effects that take no time, and how long they would have taken."""

    def __init__(self, uniform: Callable[[float, float], float] = lambda low, high: high) -> None:
        self.slept: list[float] = []

        async def asleep(seconds: float) -> None:
            self.slept.append(seconds)

        self.effects = Effects(sleep=self.slept.append, asleep=asleep, uniform=uniform)


def both_ways(
    call: Callable[[Effects], Any], acall: Callable[[Effects], Any]
) -> list[Callable[[Effects], Any]]:
    return [call, lambda effects: asyncio.run(acall(effects))]


WAYS = both_ways(
    lambda effects: proxy_call("t", {"x": 1}, effects=effects),
    lambda effects: aproxy_call("t", {"x": 1}, effects=effects),
)
TRACES = both_ways(
    lambda effects: trace("plan", {"steps": ["look"]}, effects=effects),
    lambda effects: atrace("plan", {"steps": ["look"]}, effects=effects),
)


@pytest.mark.req("R02", "R03", "R08", "R26")
@pytest.mark.parametrize("call", WAYS)
def test_what_is_sent_and_what_comes_back(proxy: Proxy, call: Callable[[Effects], Any]) -> None:
    assert call(Effects()) == {"a": 1}
    ((path, headers, body),) = proxy.requests
    assert (path, json.loads(body)) == ("/r/x/tools/t", {"x": 1})
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"
    assert 1 <= len(headers["idempotency-key"]) <= 255
    assert "x-pipelines-actor-id" not in headers
    call(Effects())
    assert proxy.requests[1][1]["idempotency-key"] != headers["idempotency-key"]


@pytest.mark.req("R08")
@pytest.mark.parametrize("call", WAYS + TRACES)
def test_three_refusals_and_an_answer(proxy: Proxy, call: Callable[[Effects], Any]) -> None:
    proxy.answers = [Answer(503, error_body())] * 3 + [Answer()]
    recorded = Recorded()
    call(recorded.effects)
    assert recorded.slept == [1.0, 1.5, 2.5]
    assert len(proxy.requests) == 4
    keys = {headers["idempotency-key"] for _, headers, _ in proxy.requests}
    assert len(keys) == 1
    assert len({body for _, _, body in proxy.requests}) == 1


@pytest.mark.req("R08")
@pytest.mark.parametrize("call", WAYS)
def test_the_fourth_refusal_is_the_last(proxy: Proxy, call: Callable[[Effects], Any]) -> None:
    proxy.answers = [Answer(503, error_body())]
    recorded = Recorded(uniform=lambda low, high: low)
    with pytest.raises(ProxyError) as refused:
        call(recorded.effects)
    assert recorded.slept == [0.5, 1.0, 2.0]
    assert len(proxy.requests) == ATTEMPTS == 4
    error = refused.value
    assert (error.code, error.status, error.message) == ("session_moved", 503, "Not now.")
    assert error.retryable


@pytest.mark.req("R08")
def test_waits_are_jittered_within_their_range(proxy: Proxy) -> None:
    rng = random.Random(5)
    waits: list[list[float]] = []
    for _ in range(50):
        proxy.answers = [Answer(503, error_body())]
        recorded = Recorded(uniform=rng.uniform)
        with pytest.raises(ProxyError):
            proxy_call("t", {}, effects=recorded.effects)
        waits.append(recorded.slept)
    assert all(0.5 <= wait <= 2.5 for slept in waits for wait in slept)
    assert all(slept == sorted(slept) for slept in waits)
    assert len({wait for slept in waits for wait in slept}) > 100


@pytest.mark.req("R08")
@pytest.mark.parametrize("call", WAYS + TRACES)
@pytest.mark.parametrize(
    "answer",
    [
        Answer(503, error_body(retryable=False)),
        Answer(503, {"error": {"code": "x", "message": "", "retryable": "true"}}),
        Answer(503, b"<html>Bad gateway</html>"),
        Answer(500, error_body("internal_error", retryable=False)),
        Answer(401, error_body("token_invalid", retryable=False)),
        Answer(422, error_body("arguments_invalid", retryable=False)),
        Answer(302, b"", {"Location": "http://169.254.169.254/"}),
    ],
)
def test_nothing_else_is_retried(
    proxy: Proxy, call: Callable[[Effects], Any], answer: Answer
) -> None:
    proxy.answers = [answer]
    recorded = Recorded()
    with pytest.raises(ProxyError) as refused:
        call(recorded.effects)
    assert (len(proxy.requests), recorded.slept) == (1, [])
    assert refused.value.status == answer.status
    assert not refused.value.retryable


@pytest.mark.req("R06", "R08")
@pytest.mark.parametrize(
    ("retry_after", "slept"),
    [("3", [3.0]), ("60", [60.0]), ("0", [1.0]), ("Wed, 21 Oct 2026 07:28:00 GMT", [1.0])],
)
@pytest.mark.parametrize("body", [error_body("rate_limited"), b"slow down"])
def test_retry_after_is_waited_for(
    proxy: Proxy, retry_after: str, slept: list[float], body: Any
) -> None:
    proxy.answers = [Answer(429, body, {"Retry-After": retry_after}), Answer()]
    recorded = Recorded()
    assert proxy_call("t", {}, effects=recorded.effects) == {"a": 1}
    assert recorded.slept == slept


@pytest.mark.req("R06", "R08")
def test_too_long_a_retry_after_fails_at_once(proxy: Proxy) -> None:
    proxy.answers = [Answer(429, error_body("rate_limited"), {"Retry-After": "61"})]
    recorded = Recorded()
    with pytest.raises(ProxyError) as refused:
        proxy_call("t", {}, effects=recorded.effects)
    assert (recorded.slept, refused.value.retryable) == ([], True)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.req("R08")
@pytest.mark.parametrize("call", WAYS + TRACES)
def test_a_connection_that_cannot_be_made(call: Callable[[Effects], Any]) -> None:
    recorded = Recorded()
    there = Proxy(f"http://127.0.0.1:{closed_port()}")
    with set_current(there.envelope()), pytest.raises(ProxyError) as refused:
        call(recorded.effects)
    assert len(recorded.slept) == 3
    assert (refused.value.code, refused.value.status) == ("unreachable", None)
    assert refused.value.retryable


@pytest.mark.req("R08")
def test_a_name_that_can_be_no_host_is_not_tried_again() -> None:
    recorded = Recorded()
    there = Proxy(f"http://{'a' * 64}.example")
    with set_current(there.envelope()), pytest.raises(ProxyError) as refused:
        proxy_call("t", {}, effects=recorded.effects)
    assert (refused.value.code, refused.value.retryable, recorded.slept) == (
        "unreachable", False, [],
    )  # fmt: skip


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate of localhost, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, *plain))
    return tmp_path / "cert.pem", tmp_path / "key.pem"


@pytest.mark.req("R08")
def test_certificates_are_checked(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    def handle(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            received = b""
            while not received.endswith(b"}"):
                received += secured.recv(65536)
            secured.sendall(WHOLE)

    recorded = Recorded()
    with raw_server(handle) as url:
        secure = url.replace("http://127.0.0.1", "https://localhost")
        with set_current(Proxy(secure).envelope()):
            with pytest.raises(ProxyError, match="SSLCertVerificationError"):
                proxy_call("t", {}, effects=recorded.effects)
            assert recorded.slept == []
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            assert proxy_call("t", {}, effects=recorded.effects) == "x"


@contextmanager
def answering(*replies: bytes) -> Iterator[tuple[Envelope, list[bytes]]]:
    """A server that reads a request and answers with these bytes, then closes."""
    seen: list[bytes] = []
    left = list(replies)

    def handle(connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received or not received.endswith(b"}"):
            received += connection.recv(65536)
        seen.append(received)
        connection.sendall(left.pop(0) if left else replies[-1])

    with raw_server(handle) as url:
        yield Proxy(url).envelope(), seen


CUT = b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"response": 1'
CUT_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"
WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{"response": "x"}'


@pytest.mark.req("R08")
@pytest.mark.parametrize("broken", [b"", CUT, CUT_CHUNK, b"SMTP ready\r\n"])
def test_a_connection_that_breaks_before_the_answer_is_whole(broken: bytes) -> None:
    recorded = Recorded()
    with answering(broken, broken, WHOLE) as (envelope, seen), set_current(envelope):
        assert proxy_call("t", {}, effects=recorded.effects) == "x"
    assert (len(seen), recorded.slept) == (3, [1.0, 1.5])


@pytest.mark.req("R08", "R10")
def test_a_trace_event_is_not_sent_twice_when_its_fate_is_unknown() -> None:
    recorded = Recorded()
    broken = pytest.raises(ProxyError, match="connection_broken")
    with answering(b"") as (envelope, seen), set_current(envelope), broken:
        trace("plan", {"steps": []}, effects=recorded.effects)
    assert (len(seen), recorded.slept) == (1, [])


@pytest.mark.req("R08")
def test_an_attempt_is_bounded_in_time_even_byte_by_byte() -> None:
    released = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not released.wait(0.02):
            connection.sendall(b" ")

    recorded = Recorded()
    with raw_server(drip) as url, set_current(Proxy(url).envelope()):
        try:
            with pytest.raises(ProxyError) as refused:
                proxy_call("t", {}, timeout=0.3, effects=recorded.effects)
        finally:
            released.set()
    assert (refused.value.code, recorded.slept) == ("timeout", [])


@pytest.mark.req("R07")
def test_bodies_are_bounded_both_ways(proxy: Proxy) -> None:
    with pytest.raises(ProxyError, match="body_too_large"):
        proxy_call("t", {"x": "a" * MAX_BODY_BYTES})
    assert proxy.requests == []
    proxy.answers = [Answer(body={"response": "a" * (MAX_ANSWER_BYTES - 100)})]
    assert len(proxy_call("t", {})) == MAX_ANSWER_BYTES - 100
    proxy.answers = [Answer(body={"response": "a" * MAX_ANSWER_BYTES})]
    recorded = Recorded()
    with pytest.raises(ProxyError, match="response_too_large"):
        proxy_call("t", {}, effects=recorded.effects)
    assert recorded.slept == []


@pytest.mark.req("R03")
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'"x"', b"[" * 100_000])
def test_an_answer_that_is_no_envelope(proxy: Proxy, body: bytes) -> None:
    proxy.answers = [Answer(body=body)]
    with pytest.raises(ProxyError, match="response_invalid") as refused:
        proxy_call("t", {}, effects=Recorded().effects)
    assert not refused.value.retryable


@pytest.mark.req("R09")
def test_attribution(proxy: Proxy) -> None:
    with actor("supervisor"), actor("refunds"):
        proxy_call("t", {"actor_id": "an argument"})
        asyncio.run(aproxy_call("t", {}))
        trace("handoff", {"to": "triage"})
        proxy_call("t", {}, actor="triage")
    proxy_call("t", {})
    sent = [headers.get("x-pipelines-actor-id") for _, headers, _ in proxy.requests]
    assert sent == ["supervisor/refunds"] * 3 + ["triage", None]
    assert json.loads(proxy.requests[0][2]) == {"actor_id": "an argument"}


@pytest.mark.req("R10")
def test_what_a_trace_event_looks_like(proxy: Proxy) -> None:
    trace("reasoning", {"text": "late"})
    path, headers, body = proxy.requests[0]
    assert path == "/r/x/trace"
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert json.loads(body) == {"type": "reasoning", "payload": {"text": "late"}}


@pytest.mark.req("R02")
def test_names_stay_one_segment_of_the_path(proxy: Proxy) -> None:
    proxy_call("a/../b?c#d é", {})
    assert proxy.requests[0][0] == "/r/x/tools/a%2F..%2Fb%3Fc%23d%20%C3%A9"


class Colour(enum.Enum):
    RED = "red"


class Address(BaseModel):
    street: str
    since: date


@dataclasses.dataclass
class Order:
    address: Address
    colours: tuple[Colour, ...]
    tags: frozenset[str]


@pytest.mark.req("R25", "R26")
def test_arguments_as_tool_bodies_have_them() -> None:
    order = Order(Address(street="Weg 1", since=date(2026, 4, 1)), (Colour.RED,), frozenset("a"))
    assert json.loads(to_json({"order": order})) == {
        "order": {
            "address": {"street": "Weg 1", "since": "2026-04-01"}, "colours": ["red"],
            "tags": ["a"],
        }
    }  # fmt: skip
    assert json.loads(to_json({"state": MappingProxyType({"a": 1})})) == {"state": {"a": 1}}
    loop: dict[str, Any] = {}
    loop["again"] = loop
    for bad in ({"x": object()}, {"x": float("nan")}, {"x": Order}, loop):
        with pytest.raises(TypeError, match="/tools/t has no JSON form"):
            proxy_call("t", bad)


def test_a_cancelled_call_is_not_retried(proxy: Proxy) -> None:
    proxy.answers = [Answer(503, error_body())]
    waiting = asyncio.Event()

    async def forever(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(aproxy_call("t", {}, effects=Effects(asleep=forever)))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert len(proxy.requests) == 1


def test_proxies_of_the_environment_are_not_used(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert proxy_call("t", {}) == {"a": 1}


@pytest.mark.req("R22")
def test_no_error_shows_the_token(proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """Not even one whose text a server took from the request."""
    caplog.set_level(logging.DEBUG)
    echo = {"code": TOKEN, "message": f"no: Bearer {TOKEN}", "retryable": False}
    shown: list[str] = []

    def fails(**options: Any) -> None:
        with pytest.raises((ProxyError, TypeError)) as failed:
            proxy_call("t", **{"args": {}, **options}, effects=Recorded().effects)  # type: ignore[arg-type]
        error = failed.value
        shown.extend([str(error), repr(error), repr(error.args)])
        shown.append("".join(traceback.format_exception(error)))
        shown.append(repr(vars(error)))

    for body in (
        {"error": {**echo, "details": {"headers": [TOKEN]}}},
        f"<html>Authorization: Bearer {TOKEN}</html>".encode(),
    ):
        for status in (400, 401, 429, 503):
            proxy.answers = [Answer(status, body)]
            fails()
    fails(args={"x": object()})
    fails(args={"x": "a" * MAX_BODY_BYTES})
    with answering(f"{TOKEN}\r\n".encode()) as (envelope, _):
        fails(envelope=envelope)
    fails(envelope=dataclasses.replace(proxy.envelope(), proxy_url=f"http://{TOKEN}.invalid"))
    assert len(shown) > 40
    assert not [text for text in [*shown, caplog.text] if TOKEN in text]
    assert any("[redacted]" in text for text in shown)
