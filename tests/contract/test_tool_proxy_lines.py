"""The wire contract of the tool proxy, line by line: which test proves which, and the details of
HTTP that the lines leave to the server."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from services.tool_proxy.app import BASE
from services.tool_proxy.errors import BY_CODE
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, check_refused, raw, serving
from tests.support.tool_proxy import MemoryLog, make_world

HTTP = "tests.contract.test_tool_proxy_http"
TRACE = "tests.contract.test_tool_proxy_trace"
TOKENS = "tests.contract.test_tool_proxy_tokens"
OPENAPI = "tests.contract.test_tool_proxy_openapi"
FUZZ = "tests.fuzz.test_proxy"
LINES: tuple[tuple[str, str, str, str], ...] = (
    ("R02", "POST {proxy_url}/tools/{name}, the body is the bare arguments object",
     HTTP, "test_a_call_is_answered_with_the_envelope"),
    ("R02", "Authorization: Bearer, or X-Pipelines-Run-Token",
     HTTP, "test_both_headers_and_both_urls_carry_a_token"),
    ("R02", "both headers, twice the same, or two that differ", __name__,
     "test_a_token_may_be_given_twice_but_not_two_tokens"),
    ("R02", "the URL is spelt one way; its tool's name may be percent-encoded", __name__,
     "test_spellings_of_the_path"),
    ("R02", "POST alone", __name__, "test_other_methods_are_refused"),
    ("R02", "HTTP/1.0, Expect, chunks, pipelining", __name__, "test_forms_of_a_request"),
    ("R02", "what a JSON body may and may not hold", HTTP, "test_a_body_that_is_no_json_object"),
    ("R02", "what it may hold at its limits", HTTP, "test_what_a_body_may_hold"),
    ("R02", "content types, charsets, content codings", HTTP, "test_how_a_body_may_be_encoded"),
    ("R03", "the envelope's keys", HTTP, "test_a_call_is_answered_with_the_envelope"),
    ("R03", "the five sources; validation with odyssey alone", OPENAPI,
     "test_only_simulated_answers_have_a_validation"),
    ("R03", "an injected answer", HTTP, "test_an_injected_answer_has_no_validation"),
    ("R04", "objects and arrays arrive decoded, everything else as its text", __name__,
     "test_what_response_holds"),
    ("R04", "text arrives byte for byte", HTTP, "test_text_arrives_byte_for_byte"),
    ("R05", "arguments are validated; path and rule are named; it is recorded",
     HTTP, "test_arguments_are_validated_and_the_mistake_is_named_and_recorded"),
    ("R06", "the limit of a minute, and 429 over it", HTTP, "test_over_the_rate_limit"),
    ("R06", "after Retry-After, and not before, there is room", __name__,
     "test_retry_after_is_when_there_is_room_again"),
    ("R07", "1 MiB of request, while it arrives", HTTP, "test_a_body_is_capped_while_it_arrives"),
    ("R07", "who sends too much gets to read so", __name__,
     "test_a_client_that_sends_too_much_reads_the_refusal"),
    ("R07", "1 MiB of response", HTTP, "test_a_response_is_capped"),
    ("R07", "request line and headers have a bound as well", __name__,
     "test_the_head_has_a_bound"),
    ("R08", "one table, documented", HTTP, "test_the_documentation_is_the_table"),
    ("R08", "every row of it occurs", HTTP, "test_every_row_of_the_table_was_met_over_http"),
    ("R08", "no status that is not documented", OPENAPI, "test_the_proxy_keeps_to_its_document"),
    ("R08", "nor with anything that is not HTTP", FUZZ, "test_nothing_raw_upsets_the_proxy"),
    ("R08", "the same codes in the trajectory", HTTP, "test_refusals_that_are_recorded"),
    ("R09", "the header attributes; malformed is 400, undeclared is flagged",
     HTTP, "test_the_actor_header"),
    ("R09", "without the header, byte-identical; actor_id in the body is an argument",
     HTTP, "test_without_the_header_nothing_shows_that_it_exists"),
    ("R10", "trace events of every kind", TRACE, "test_every_kind_is_recorded_as_it_was_posted"),
    ("R10", "in order with calls", TRACE, "test_events_keep_their_place_among_calls"),
    ("R21", "the reachability probe is 401", HTTP, "test_the_reachability_probe"),
    ("R22", "no other session's, expired, changed, replayed or foreign token", TOKENS,
     "test_a_bad_token_is_401_and_nothing_is_recorded"),
    ("R22", "no byte of it can be changed", TOKENS, "test_no_byte_of_a_token_can_be_changed"),
    ("R22", "it is in no record, even if the agent puts it there", TOKENS,
     "test_a_run_token_is_never_recorded"),
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as running:
        running.start("s1")
        yield running


@pytest.mark.parametrize(("requirement", "line", "module", "test"), LINES)
def test_every_line_has_its_test(requirement: str, line: str, module: str, test: str) -> None:
    function = getattr(importlib.import_module(module), test)
    marks = [*getattr(function, "pytestmark", ())]
    whole = getattr(importlib.import_module(module), "pytestmark", None)
    marks += [] if whole is None else [whole]
    assert any(mark.name == "req" and requirement in mark.args for mark in marks), line


def request(server: Server, *headers: str, path: str = "", body: bytes = b"", **how: str) -> bytes:
    first = f"{how.get('method', 'POST')} {BASE}{path or '/tools/get_order'} HTTP/1.1"
    lines = [how.get("first", first), "Host: x", f"Authorization: Bearer {server.token()}"]
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + body


BODY = b'{"order_id": "1"}'
LENGTH = f"Content-Length: {len(BODY)}"


@pytest.mark.req("R02")
def test_a_token_may_be_given_twice_but_not_two_tokens(server: Server) -> None:
    good, other = server.token(), server.token(turn=2)
    for names, status in [
        ([("Authorization", f"Bearer {good}")] * 2, 200),
        ([("Authorization", f"bEaReR   {good}")], 200),
        ([("X-Pipelines-Run-Token", good)] * 2 + [("Authorization", f"Bearer {good}")], 200),
        ([("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {other}")], 401),
        ([("Authorization", f"Bearer {good}"), ("X-Pipelines-Run-Token", other)], 401),
        ([("Authorization", f"Basic {good}"), ("X-Pipelines-Run-Token", good)], 401),
        ([("X-Pipelines-Run-Token", good), ("Authorization", "")], 401),
        ([("X-Pipelines-Run-Token", f"Bearer {good}")], 401),
        ([("X-Pipelines-Run-Token", f"{good},{good}")], 401),
        ([("Authorization", f"Bearer,{good}")], 401),
        ([("Cookie", f"run_token={good}")], 401),
        ([("Proxy-Authorization", f"Bearer {good}")], 401),
    ]:
        url = f"{server.url}{BASE}/tools/get_order"
        response = server.client.post(url, content=BODY, headers=names)
        assert response.status_code == status, names
    in_url = server.client.post(f"{server.url}{BASE}/tools/get_order?token={good}", content=BODY)
    check_refused(in_url, "token_invalid")
    assert len(server.recorded()) == 3


@pytest.mark.req("R02")
@pytest.mark.parametrize(
    ("path", "outcome"),
    [
        ("/tools/get_order", 200), ("/tools/get%5Forder", 200), ("/tools/%67et_order?x=1", 200),
        ("/tools/get_order/", "path_unknown"), ("//tools/get_order", "path_unknown"),
        ("/tools//get_order", "path_unknown"), ("/tools/", "path_unknown"),
        ("/tools", "path_unknown"), ("", "path_unknown"), ("/", "path_unknown"),
        ("/tools/a%2Fb", "path_unknown"), ("/trace/", "path_unknown"),
        ("/runs/jti-s1/tools/get_order", 200), ("/runs/jti%2Ds1/tools/get_order", 200),
        ("/runs/jti-s1//tools/get_order", "path_unknown"),
        ("/runs/../tools/get_order", "token_invalid"),
        ("/tools/GET_ORDER", "tool_unknown"), ("/tools/get_order%20", "tool_unknown"),
        ("/tools/%00", "tool_unknown"), ("/tools/%ff", "tool_unknown"),
        ("/tools/get_order;v=1", "tool_unknown"), ("/tools/%C3%A9", "tool_unknown"),
        ("/tools/get%0Aorder", "tool_unknown"), ("/tools/%0A/x", "path_unknown"),
        ("/runs/jti%0D%0As1/tools/get_order", "token_invalid"),
    ],
)  # fmt: skip
def test_spellings_of_the_path(server: Server, path: str, outcome: Any) -> None:
    """`proxy_url` has no slash at its end, so no call has two; nothing is ever redirected."""
    sent = request(server, LENGTH, first=f"POST {BASE}{path} HTTP/1.1", body=BODY)
    (answer,) = raw(server, sent)
    if outcome == 200:
        assert answer.status == 200
        assert json.loads(answer.body)["tool_name"] == "get_order"
    else:
        assert (answer.status, answer.code) == (BY_CODE[outcome].status, outcome)
    assert "location" not in answer.headers


@pytest.mark.req("R02")
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE"])
def test_other_methods_are_refused(server: Server, method: str) -> None:
    for path in ("/tools/get_order", "/runs/jti-s1/tools/get_order", "/trace"):
        (answer,) = raw(server, request(server, method=method, path=path), head=method == "HEAD")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert answer.body == b"" if method == "HEAD" else answer.code == "method_not_allowed"
    assert server.recorded() == []


@pytest.mark.req("R02", "R07")
def test_forms_of_a_request(server: Server) -> None:
    old = request(server, LENGTH, first=f"POST {BASE}/tools/get_order HTTP/1.0", body=BODY)
    (answer,) = raw(server, old, answers=2)  # closed after one
    assert (answer.status, answer.headers["connection"]) == (200, "close")

    chunks = b"4\r\n%b\r\n%x;note=1\r\n%b\r\n0\r\nX-T: 1\r\n\r\n" % (BODY[:4], 13, BODY[4:])
    chunked = request(server, "Transfer-Encoding: chunked", body=chunks)
    (answer,) = raw(server, chunked)
    assert answer.status == 200

    pipelined = raw(server, request(server, LENGTH, body=BODY) * 3, answers=3)
    assert [answer.status for answer in pipelined] == [200] * 3
    assert [event.step for event in server.recorded()] == [f"t{n}" for n in range(1, 6)]

    # A client that asks first is told to go on, or is refused without having sent its body; then
    # the connection ends, because what it sends next may be that body or not.
    asks = request(server, LENGTH, "Expect: 100-continue")
    (answer,) = raw(server, asks, BODY)
    assert answer.status == 200
    too_large = request(server, "Content-Length: 2000000", "Expect: 100-continue")
    (answer,) = raw(server, too_large, answers=2)
    assert (answer.code, answer.headers["connection"]) == ("body_too_large", "close")

    # A trailer is no header: this request has no token.
    head = b"POST %b/tools/get_order HTTP/1.1\r\nHost: x\r\n" % BASE.encode()
    trailer = b"Authorization: Bearer %b\r\n\r\n" % server.token().encode()
    body = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    (answer,) = raw(server, head + body + trailer)
    assert answer.code == "token_invalid"


@pytest.mark.parametrize(
    "framing",
    [
        [LENGTH, "Transfer-Encoding: chunked"],
        [LENGTH, "Content-Length: 1"],
        [LENGTH, LENGTH],
        ["Content-Length: +17"],
        ["Content-Length: 17, 17"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: gzip"],
    ],
)
def test_framing_that_two_servers_could_read_differently(
    server: Server, framing: list[str]
) -> None:
    sent = request(server, *framing, body=BODY)
    for answer in raw(server, sent, answers=2):
        assert answer.status == 400
    assert server.recorded() == []


@pytest.mark.req("R04")
@pytest.mark.parametrize(
    ("value", "response"),
    [
        ({"a": 1, "b": [None, "é"]}, {"a": 1, "b": [None, "é"]}),
        ([1, "a"], [1, "a"]),
        ({}, {}),
        ("pong", "pong"),
        ('"pong"', '"pong"'),
        ("5", "5"),
        (5, "5"),
        (5.0, "5.0"),
        (True, "true"),
        (None, "null"),
        ("", ""),
        ('{"a": 1}', {"a": 1}),
        (" [1]\n", [1]),
        ('{"a": 1', '{"a": 1'),
        ('{"a": NaN}', '{"a": NaN}'),
        ("\ufeff{}", "\ufeff{}"),
        ("<p>\r\n</p>", "<p>\r\n</p>"),
    ],
)
def test_what_response_holds(server: Server, value: Any, response: Any) -> None:
    """A body that is a JSON object or array is decoded once; any other is its text."""
    server.start("r", rules=[{"tool": "answer", "respond": value}])
    answer = server.call("answer", {"value": 0}, session_id="r")
    assert answer.json()["response"] == response
    assert type(answer.json()["response"]) is type(response)


@pytest.mark.req("R06")
def test_retry_after_is_when_there_is_room_again(server: Server) -> None:
    server.start("rate", calls_per_minute=3)
    clock = server.clock

    def call(**claims: Any) -> httpx.Response:
        return server.call("get_order", {"order_id": "1"}, session_id="rate", claims=claims)

    for _ in range(3):
        assert call(expires_at_ms=clock.now_ms() + 600_000).status_code == 200
        clock.ms += 7_500
    late = {"expires_at_ms": clock.now_ms() + 600_000}
    response = call(**late)
    check_refused(response, "rate_limited")
    wait = int(response.headers["retry-after"])
    assert wait == 38  # the first call leaves the window after 60 s, of which 22.5 are over
    clock.ms += (wait - 1) * 1000
    check_refused(call(**late), "rate_limited")
    clock.ms += 1000
    assert call(**late).status_code == 200
    check_refused(call(**late), "rate_limited")
    # A new token of the session has no room of its own.
    check_refused(call(**late, dispatch_id="d2", turn=2), "rate_limited")


@pytest.mark.req("R07")
@pytest.mark.parametrize("size", [1024 * 1024 + 1, 6 * 1024 * 1024])
def test_a_client_that_sends_too_much_reads_the_refusal(server: Server, size: int) -> None:
    """And can go on with the connection, instead of finding it reset while it sends."""
    for headers in ({}, {"Authorization": "Bearer no"}):
        response = server.call("get_order", content=b" " * size, headers=headers)
        check_refused(response, "token_invalid" if headers else "body_too_large")
    chunks = (b" " * 65536 for _ in range(size // 65536 + 1))
    check_refused(server.call("get_order", content=chunks), "body_too_large")
    assert server.call("get_order", {"order_id": "1"}).status_code == 200


@pytest.mark.req("R07")
def test_the_head_has_a_bound(server: Server) -> None:
    fits = request(server, LENGTH, "X-A: " + "a" * 60_000, body=BODY)
    assert raw(server, fits)[0].status == 200
    for headers in (["X-A: " + "a" * 70_000], [f"X-{n}: {n}" for n in range(10_000)]):
        (answer,) = raw(server, request(server, LENGTH, *headers, body=BODY))
        assert (answer.status, answer.headers["connection"]) == (431, "close")
    endless = request(server, "X-A: ")[:-4] + b"a" * 400_000
    assert raw(server, endless)[0].status == 431
    path = raw(server, request(server, LENGTH, path="/tools/" + "a" * 70_000, body=BODY))
    assert path[0].status == 431
    assert len(server.recorded()) == 1
