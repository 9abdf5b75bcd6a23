"""The proxy's HTTP contract over real sockets: every row of the error table, and every header."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.briefs import ToolSpec
from schemas.codec import Codec
from schemas.trajectory import TrajectoryEvent
from services.tool_proxy.app import BASE
from services.tool_proxy.errors import BY_CODE, TABLE, documentation
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, check_refused, serving
from tests.support.tool_proxy import NOW_MS, STATE, MemoryLog, make_world, specs

MIB = 1024 * 1024
ROOT = Path(__file__).parents[2]
SEEN: set[str] = set()
"""Codes that some test of this module has met; the last test compares them with the table."""


@pytest.fixture
def server() -> Iterator[Server]:
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    with serving(log) as running:
        running.start("s1")
        running.start("s2")
        yield running


def refused(response: httpx.Response, code: str) -> dict[str, Any]:
    """Check a refusal against the table; its details."""
    SEEN.add(code)
    return check_refused(response, code)


def last_code(server: Server, session_id: str = "s1") -> str | None:
    called = server.recorded(session_id)[-1].tool_called
    assert called is not None
    return called.error_code


@pytest.mark.req("R02", "R03", "R04")
def test_a_call_is_answered_with_the_envelope(server: Server) -> None:
    response = server.call("get_order", {"order_id": "1"})
    assert response.status_code == 200
    body = response.json()
    latency = body.pop("latency_ms")
    assert isinstance(latency, int)
    assert list(body) == [
        "tool_name", "response", "source", "matched_rule_index", "validation",
    ]  # fmt: skip
    assert body == {
        "tool_name": "get_order", "response": STATE["orders"]["1"], "source": "odyssey",
        "matched_rule_index": None, "validation": {"valid": True},
    }  # fmt: skip


@pytest.mark.req("R03", "V05")
def test_an_injected_answer_has_no_validation(server: Server) -> None:
    server.start("inj", failures=[{"id": "f", "kind": "outage"}])
    body = server.call("get_order", {"order_id": "1"}, session_id="inj").json()
    assert set(body) == {"tool_name", "response", "source", "latency_ms", "matched_rule_index"}
    assert (body["source"], body["matched_rule_index"]) == ("injected", 0)


@pytest.mark.req("R02")
def test_both_headers_and_both_urls_carry_a_token(server: Server) -> None:
    token = server.token()
    for base in (server.base(), f"{server.url}{BASE}"):
        for headers in (
            {"Authorization": f"Bearer {token}"},
            {"authorization": f"bearer {token}"},
            {"X-Pipelines-Run-Token": token},
            {"X-Pipelines-Run-Token": token, "Authorization": f"Bearer {token}"},
        ):
            url = f"{base}/tools/get_order"
            response = server.client.post(url, json={"order_id": "1"}, headers=headers)
            assert response.status_code == 200


@pytest.mark.req("R04")
@pytest.mark.parametrize(
    "text", ["pong", '<p>é\u2028"\\\n</p>\r\n', "a,b\n1,2\n", "\u0000\u001f\U0001f600", "", "[1,"]
)
def test_text_arrives_byte_for_byte(server: Server, text: str) -> None:
    response = server.call("answer", {"value": text})
    assert response.json()["response"] == text
    called = server.recorded()[-1].tool_called
    assert called is not None
    assert called.response == text
    assert called.response_is_text


@pytest.mark.req("R05")
def test_arguments_are_validated_and_the_mistake_is_named_and_recorded(server: Server) -> None:
    details = refused(
        server.call("add_note", {"text": "x" * 51, "kind": "fax", "more": 1}), "arguments_invalid"
    )
    found = {(error["path"], error["rule"].rsplit("/", 1)[-1]) for error in details["errors"]}
    assert found == {("/text", "maxLength"), ("/kind", "enum"), ("", "additionalProperties")}
    called = server.recorded()[-1].tool_called
    assert called is not None
    assert (called.source, called.status, called.error_code) == ("error", 422, "arguments_invalid")
    assert json.loads(called.arguments)["more"] == 1


@pytest.mark.req("R06")
def test_over_the_rate_limit(server: Server) -> None:
    server.start("rate", calls_per_minute=2)
    answers = [server.call("get_order", {"order_id": "1"}, session_id="rate") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    refused(answers[2], "rate_limited")
    assert answers[2].headers["retry-after"] == "60"
    assert len(server.recorded("rate")) == 2


def raw_request(server: Server, head: str, chunks: Iterator[bytes]) -> bytes:
    """Send by hand until the server answers; the answer."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        connection.settimeout(0.02)
        received = b""
        for chunk in chunks:
            try:
                connection.sendall(chunk)
                received = connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            break
        connection.settimeout(5)
        try:
            while data := connection.recv(65536):
                received += data
        except OSError:
            pass
        return received


def head_of(server: Server, *more: str) -> str:
    lines = [f"POST {BASE}/tools/get_order HTTP/1.1", "Host: x",
             f"Authorization: Bearer {server.token()}", *more]  # fmt: skip
    return "\r\n".join(lines) + "\r\n\r\n"


@pytest.mark.req("R07")
def test_a_body_is_capped_while_it_arrives(server: Server) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(400):
            sent += 64 * 1024
            yield b"10000\r\n" + b" " * 65536 + b"\r\n"

    answer = raw_request(server, head_of(server, "Transfer-Encoding: chunked"), endless())
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"body_too_large"' in answer
    assert sent < 8 * MIB  # refused long before the end, which is at 25 MiB
    declared = raw_request(server, head_of(server, f"Content-Length: {MIB + 1}"), iter([b"{"]))
    assert declared.startswith(b"HTTP/1.1 413")
    exactly = b'{"order_id": "1"' + b" " * (MIB - 17) + b"}"
    assert server.call("get_order", content=exactly).status_code == 200
    refused(server.call("get_order", content=exactly + b" "), "body_too_large")
    assert len(server.recorded()) == 1


@pytest.mark.req("R07")
def test_a_response_is_capped(server: Server) -> None:
    limit = '"' * (MIB // 2 - 4000)  # each quote takes two bytes in the envelope
    rules = [
        {"tool": "answer", "arguments": {"value": n}, "respond": text}
        for n, text in enumerate([limit, limit + '"' * 4000])
    ]
    server.start("big", rules=rules)
    assert server.call("answer", {"value": 0}, session_id="big").json()["response"] == limit
    refused(server.call("answer", {"value": 1}, session_id="big"), "response_too_large")
    assert last_code(server, "big") == "response_too_large"


def test_a_slow_body_is_given_up_on(server: Server) -> None:
    head = head_of(server, "Content-Length: 100")
    answer = raw_request(server, head, (b"" for _ in range(200)))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"body_timeout"' in answer
    SEEN.add("body_timeout")


@pytest.mark.req("R02")
@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b'"x"', b"{", b'{"a": NaN}', b'{"a": 1e400}', b'{"a": "\xff"}',
     b'{"a": "\\ud800"}', b"[" * 3000, b'{"a":' * 2000, b"order_id=1", b"\xef\xbb\xbf{}",
     b'{"order_id": "1", "order_id": "2"}', b'{"a": [{"b": 1, "\\u0062": 2}]}',
     b'{"a": 18446744073709551616}', b'{"a": -9223372036854775809}',
     b'{"a": 1' + b"0" * 5000 + b"}",
     b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "{}".encode("utf-16")],
)  # fmt: skip
def test_a_body_that_is_no_json_object(server: Server, content: bytes) -> None:
    refused(server.call("get_order", content=content), "body_invalid")
    assert server.recorded() == []


@pytest.mark.req("R02", "R04")
@pytest.mark.parametrize(
    "value",
    ["18446744073709551615", "-9223372036854775808", "1e308", "0.1", "-0.0", "[" * 98 + "]" * 98],
)
def test_what_a_body_may_hold(server: Server, value: str) -> None:
    sent = f' {{"value" :{value}}}\r\n'
    response = server.call("answer", content=sent)
    assert response.status_code == 200, response.text
    called = server.recorded()[-1].tool_called
    assert called is not None
    assert called.arguments == sent  # byte for byte


@pytest.mark.req("R02")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "identity, br"}, 415),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Type": 'application/json; charset="iso-8859-1"'}, 415),
        ({"Content-Type": "application/json; charset*=utf-8''x"}, 415),
        ({"Content-Encoding": "identity"}, 200),
        ({"Content-Encoding": ""}, 200),
        ({"Content-Type": 'application/json; charset="UTF-8"; x=y'}, 200),
        ({"Content-Type": "text/plain"}, 200),
        ({"Content-Type": ""}, 200),
        ({"Content-Type": ";;=;"}, 200),
    ],
)
def test_how_a_body_may_be_encoded(server: Server, headers: dict[str, str], status: int) -> None:
    """The media type is not looked at; a coding that would make it other bytes is refused."""
    response = server.call("get_order", content=b'{"order_id": "1"}', headers=headers)
    if status == 200:
        assert response.json()["source"] == "odyssey"
    else:
        refused(response, "body_encoding_unsupported")
        assert response.headers["accept-encoding"] == "identity"
        assert server.recorded() == []


@pytest.mark.req("R09")
def test_the_actor_header(server: Server) -> None:
    server.start("team", actors=["supervisor/refunds", "triage"])
    for actor, declared in [("supervisor/refunds", True), ("triage", True), ("x", False),
                            ("supervisor", False), ("triage/triage", True)]:  # fmt: skip
        response = server.call(
            "get_order", {"order_id": "1"}, session_id="team",
            headers={"X-Pipelines-Actor-Id": actor},
        )  # fmt: skip
        assert response.status_code == 200
        called = server.recorded("team")[-1].tool_called
        assert called is not None
        assert (called.actor, called.actor_declared) == (actor, declared)
    before = len(server.recorded("team"))
    for actor in ["", "/", "a/", "/a", "a//b", "a b", "-a", "a" * 65, "/".join("a" * 17), "é"]:
        response = server.call(
            "get_order", {"order_id": "1"}, session_id="team",
            headers={"X-Pipelines-Actor-Id": actor.encode("latin-1")},  # type: ignore[dict-item]
        )  # fmt: skip
        refused(response, "actor_id_invalid")
    assert len(server.recorded("team")) == before


@pytest.mark.req("R09")
def test_without_the_header_nothing_shows_that_it_exists() -> None:
    """The reply's bytes, and the event's: the header's absence must not be distinguishable from
    the feature's, and an argument of that name is an argument."""
    tool = ToolSpec(name="who", input_schema={"type": "object"})
    seen = []
    for actors in ((), ("supervisor",)):
        log = MemoryLog(ProxyCore({}))
        with serving(log) as server:
            server.start("s1", world=None, tools=[tool], rules=[{"respond": {"a": 1}}],
                         actors=actors)  # fmt: skip
            response = server.call("who", {"actor_id": "supervisor"})
            seen.append((response.content, log.records[-1]))
    assert seen[0] == seen[1]
    event = Codec().decode(TrajectoryEvent, seen[0][1])
    assert event.tool_called is not None
    assert event.tool_called.actor is None
    assert event.tool_called.actor_declared is None
    assert json.loads(event.tool_called.arguments) == {"actor_id": "supervisor"}


@pytest.mark.req("R21")
def test_the_reachability_probe(server: Server) -> None:
    for base in (f"{server.url}{BASE}", server.base()):
        response = server.client.post(
            f"{base}/tools/__reachability_probe__", json={},
            headers={"Authorization": "Bearer fake-token"},
        )  # fmt: skip
        refused(response, "token_invalid")
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.req("R08")
def test_refusals_that_are_recorded(server: Server) -> None:
    tools = specs(
        make_world(),
        ToolSpec(name="real", input_schema={}, mode="passthrough", target="http://127.0.0.1:1/"),
        ToolSpec(
            name="locked",
            input_schema={},
            mode="passthrough",
            target="http://127.0.0.1:1/",
            target_auth_header="Authorization",
            target_auth_ref="env:NO_SUCH_VARIABLE",
        ),
        ToolSpec(name="unanswered", input_schema={}),
        ToolSpec(name="remote", input_schema={"$ref": "http://127.0.0.1:1/schema"}),
        ToolSpec(name="broken", input_schema={"type": "unheard-of"}),
    )
    server.start("rec", tools=tools, rules=[{"tool": "real", "respond": "never"}])
    for tool, code in [
        ("unheard-of", "tool_unknown"),
        ("__reachability_probe__", "tool_unknown"),
        ("x" * 500, "tool_unknown"),
        ("real", "target_refused"),
        ("locked", "target_secret_missing"),
        ("unanswered", "tool_unavailable"),
        ("remote", "tool_schema_invalid"),
        ("broken", "tool_schema_invalid"),
        ("crash", "world_failed"),
    ]:
        refused(server.call(tool, session_id="rec"), code)
        called = server.recorded("rec")[-1].tool_called
        assert called is not None
        assert (called.error_code, called.source) == (code, "error")
        assert called.status == BY_CODE[code].status
        assert len(called.tool) <= 128
    server.start("lost", world="no-such-world")
    refused(server.call("crash", session_id="lost"), "world_unknown")
    assert last_code(server, "lost") == "world_unknown"
    server.start("unplayed", world="", answers="model")
    refused(server.call("crash", session_id="unplayed"), "answer_failed")
    assert last_code(server, "unplayed") == "answer_failed"
    server.start("limit", max_calls=0)
    refused(server.call("crash", session_id="limit"), "tool_call_limit")
    refused(server.call("crash", session_id="limit"), "tool_call_limit")
    assert [e.event_id for e in server.recorded("limit")] == ["limit:t1"]


@pytest.mark.req("R08")
def test_refusals_that_leave_no_trace(server: Server) -> None:
    one = {"order_id": "1"}
    refused(server.call("get_order", one, session_id="unread"), "session_not_ready")
    server.log.failing = "lost"
    refused(server.call("get_order", one), "log_unavailable")
    server.log.failing = ""
    assert server.recorded() == []
    later = {"dispatch_id": "d2", "issued_at_ms": NOW_MS + 5}
    assert server.call("get_order", one, claims=later).status_code == 200
    refused(server.call("get_order", one), "turn_superseded")
    for headers in ({"Idempotency-Key": ""}, {"Idempotency-Key": "a b"},
                    {"Idempotency-Key": "k" * 256}):  # fmt: skip
        response = server.call("get_order", one, claims=later, headers=headers)
        refused(response, "idempotency_key_invalid")
    key = {"Idempotency-Key": "k"}
    first = server.call("get_order", {"order_id": "2"}, claims=later, headers=key)
    again = server.call("get_order", {"order_id": "2"}, claims=later, headers=key)
    assert (first.status_code, again.content) == (200, first.content)
    refused(server.call("get_order", one, claims=later, headers=key), "idempotency_key_reused")
    server.log.owned = False
    refused(server.call("get_order", one, claims=later), "session_moved")
    server.log.owned = True
    refused(server.client.post(f"{server.url}{BASE}/nowhere"), "path_unknown")
    refused(server.client.post(f"{server.url}{BASE}/runs/a/b/c/d"), "path_unknown")
    wrong_method = server.client.get(f"{server.base()}/tools/get_order")
    refused(wrong_method, "method_not_allowed")
    assert wrong_method.headers["allow"] == "POST"
    # The first call was settled before the second one, and is in the log once.
    assert [event.step for event in server.recorded()] == ["t1", "t2"]


def test_what_nobody_expected_is_internal_error_and_says_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(event: TrajectoryEvent) -> None:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(server.log, "record", broken)
    response = server.call("get_order", {"order_id": "1"})
    refused(response, "internal_error")
    assert "secret" not in response.text


def test_bounds_on_what_is_under_way() -> None:
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    with serving(log, waiting_calls=1, traces=0) as server:
        server.start("s1")
        trace = {"type": "plan", "payload": {"steps": []}}
        response = server.client.post(
            f"{server.base()}/trace", json=trace, headers=server.headers()
        )
        refused(response, "trace_limit")
        for change, code in (({"type": "mood"}, "trace_invalid"),
                             ({"version": 2}, "trace_version_unknown")):  # fmt: skip
            body = {**trace, **change}
            url = f"{server.base()}/trace"
            refused(server.client.post(url, json=body, headers=server.headers()), code)

        async def burst() -> list[httpx.Response]:
            async with httpx.AsyncClient(timeout=20) as client:
                url = f"{server.base()}/tools/hang"
                posts = []
                for _ in range(4):
                    request = client.post(url, json={"seconds": 0.7}, headers=server.headers())
                    posts.append(asyncio.create_task(request))
                    await asyncio.sleep(0.1)
                return await asyncio.gather(*posts)

        answers = asyncio.run(burst())
    assert [answer.status_code for answer in answers[:2]] == [200, 200]
    for answer in answers[2:]:
        refused(answer, "session_busy")


def test_too_many_requests_at_once_are_turned_away() -> None:
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    with serving(log, max_requests=1) as server:
        server.start("s1")
        slow = threading.Thread(target=lambda: server.call("hang", {"seconds": 0.7}))
        slow.start()
        time.sleep(0.2)
        refused(server.call("get_order", {"order_id": "1"}), "overloaded")
        slow.join()
        assert server.call("get_order", {"order_id": "1"}).status_code == 200


@pytest.mark.req("V05")
def test_an_injected_delay_holds_up_neither_log_nor_parallel_calls(server: Server) -> None:
    server.start(
        "slow", failures=[{"id": "f", "kind": "slow", "delay_ms": 600, "tool": "get_order"}]
    )
    took: dict[str, float] = {}

    def timed(tool: str, arguments: dict[str, Any]) -> None:
        begun = time.monotonic()
        assert server.call(tool, arguments, session_id="slow").status_code == 200
        took[tool] = time.monotonic() - begun

    slow = threading.Thread(target=timed, args=("get_order", {"order_id": "1"}))
    slow.start()
    time.sleep(0.2)
    assert [event.step for event in server.recorded("slow")] == ["t1"]
    timed("add_note", {"text": "x"})
    slow.join()
    assert took["get_order"] >= 0.6
    assert took["add_note"] < took["get_order"]


@pytest.mark.req("R08")
def test_the_documentation_is_the_table() -> None:
    assert (ROOT / "docs" / "tool-proxy-errors.md").read_text() == documentation()
    assert len(BY_CODE) == len(TABLE)


@pytest.mark.req("R08")
def test_every_row_of_the_table_was_met_over_http() -> None:
    """Runs last in this module, on what the tests before it have seen."""
    if not SEEN:
        pytest.skip("counts what the other tests of this module meet; run them together")
    assert set(BY_CODE) - SEEN == set()
