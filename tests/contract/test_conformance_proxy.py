"""The tool proxy's side of the contract, line by line, through clients that are not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from services.tool_proxy.errors import BY_CODE
from services.tool_proxy.session import ProxyCore
from tests.support.http_clients import CLIENTS, HttpClient, Reply
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import NOW_MS, STATE, MemoryLog, ended, make_world

pytestmark = pytest.mark.timeout(300)  # the first use of Go compiles its standard library
MIB = 1024 * 1024
JSON = {"Content-Type": "application/json"}
ORDER = {"order_id": "1"}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HttpClient:
    return HttpClient(request.param, tmp_path_factory.mktemp(request.param))


class Caller:
    """Calls a proxy as an agent does."""

    def __init__(self, client: HttpClient, server: Server) -> None:
        self.client, self.server = client, server

    def post(
        self,
        path: str,
        value: Any = None,
        *,
        session_id: str = "s1",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        method: str = "POST",
    ) -> Reply:
        """`headers`: instead of the session's own Authorization."""
        auth = self.server.headers(session_id) if headers is None else headers
        data = json.dumps(value).encode() if body is None else body
        url = f"{self.server.base(session_id)}{path}"
        return self.client.send(method, url, JSON | auth, data)

    def ok(self, path: str, value: Any, **options: Any) -> Any:
        reply = self.post(path, value, **options)
        assert reply.status == 200, reply.body
        assert reply.headers["content-type"] == "application/json"
        return reply.json()

    def refused(self, code: str, path: str, value: Any = None, **options: Any) -> Reply:
        reply = self.post(path, value, **options)
        row = BY_CODE[code]
        error = reply.json()["error"]
        assert (reply.status, error["code"]) == (row.status, code), reply.body
        assert (error["message"], error["retryable"]) == (row.message, row.retryable)
        return reply


@pytest.fixture
def caller(client: HttpClient) -> Iterator[Caller]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as server:
        server.start("s1")
        server.start("s2")
        yield Caller(client, server)


@pytest.mark.req("R02", "R26")
def test_a_call_is_a_post_of_the_bare_arguments_with_either_header(caller: Caller) -> None:
    token = caller.server.token()
    for headers in ({"Authorization": f"Bearer {token}"}, {"X-Pipelines-Run-Token": token}):
        body = caller.ok("/tools/get_order", ORDER, headers=headers)
        assert body["response"] == STATE["orders"]["1"]
    caller.refused("arguments_invalid", "/tools/get_order", {"arguments": ORDER})
    caller.refused("body_invalid", "/tools/get_order", [ORDER])
    caller.refused("method_not_allowed", "/tools/get_order", ORDER, method="PUT")
    caller.refused("path_unknown", "/tool/get_order", ORDER)
    caller.refused("token_invalid", "/tools/get_order", ORDER, headers={})


@pytest.mark.req("R03", "R26")
def test_the_reply_is_the_envelope_and_validation_comes_with_odyssey_alone(caller: Caller) -> None:
    caller.server.start("inj", failures=[{"id": "f", "kind": "outage"}])
    simulated = caller.ok("/tools/get_order", ORDER)
    injected = caller.ok("/tools/get_order", ORDER, session_id="inj")
    fields = {"tool_name", "response", "source", "latency_ms", "matched_rule_index"}
    assert set(simulated) == fields | {"validation"}
    assert set(injected) == fields
    assert (simulated["source"], injected["source"]) == ("odyssey", "injected")
    assert (simulated["matched_rule_index"], injected["matched_rule_index"]) == (None, 0)
    assert simulated["tool_name"] == injected["tool_name"] == "get_order"
    assert isinstance(simulated["latency_ms"], int)


@pytest.mark.req("R04", "R26")
def test_objects_and_arrays_arrive_decoded_and_all_else_as_its_text(caller: Caller) -> None:
    for value, response in [
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ([1, "two", {}], [1, "two", {}]),
        ("pong", "pong"),
        ("<p>caf\u00e9 & \u2028 \U0001f600</p>\r\n", "<p>caf\u00e9 & \u2028 \U0001f600</p>\r\n"),
        ("a,b\n1,2\n", "a,b\n1,2\n"),
        ("[1, 2", "[1, 2"),
        ('{"a": 1}', {"a": 1}),  # a tool's body which is JSON is decoded, whatever it is called
        (7.5, "7.5"),
        (True, "true"),
        (None, "null"),
        ("", ""),
    ]:
        body = caller.ok("/tools/answer", {"value": value})
        assert body["response"] == response
        assert type(body["response"]) is type(response)


@pytest.mark.req("R05", "R26")
def test_arguments_that_do_not_fit_are_refused_and_the_place_named(caller: Caller) -> None:
    reply = caller.refused(
        "arguments_invalid", "/tools/add_note", {"text": "x" * 51, "kind": "fax"}
    )
    errors = reply.json()["error"]["details"]["errors"]
    places = {(error["path"], error["rule"].rsplit("/", 1)[-1]) for error in errors}
    assert places == {("/text", "maxLength"), ("/kind", "enum")}
    called = caller.server.recorded()[-1].tool_called
    assert called is not None
    assert (called.status, called.error_code) == (422, "arguments_invalid")


@pytest.mark.req("R06", "R26")
def test_over_the_rate_a_client_is_told_when_to_come_back(caller: Caller) -> None:
    caller.server.start("rate", calls_per_minute=2)
    for _ in range(2):
        caller.ok("/tools/get_order", ORDER, session_id="rate")
    reply = caller.refused("rate_limited", "/tools/get_order", ORDER, session_id="rate")
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert reply.json()["error"]["retryable"] is True
    caller.ok("/tools/get_order", ORDER)  # another token has its own


@pytest.mark.req("R07", "R26")
def test_bodies_are_capped_both_ways_and_the_client_reads_why(caller: Caller) -> None:
    padded = b'{"order_id": "1"' + b" " * (MIB - 17) + b"}"
    assert len(padded) == MIB
    reply = caller.post("/tools/get_order", body=padded)
    assert reply.status == 200, reply.body
    caller.refused("body_too_large", "/tools/get_order", body=padded + b" ")
    caller.refused("body_too_large", "/tools/get_order", body=padded * 3)
    rules = [{"tool": "answer", "respond": "x" * n} for n in (MIB - 4096,)]
    caller.server.start("big", rules=rules)
    assert len(caller.ok("/tools/answer", {"value": 0}, session_id="big")["response"]) > MIB - 5000
    caller.server.start("over", rules=[{"tool": "answer", "respond": "x" * MIB}])
    caller.refused("response_too_large", "/tools/answer", {"value": 0}, session_id="over")


@pytest.mark.req("R08", "R26")
def test_what_may_be_repeated_says_so_and_repeating_it_works(caller: Caller) -> None:
    caller.refused("session_not_ready", "/tools/get_order", ORDER, session_id="later")
    caller.server.start("later")
    caller.ok("/tools/get_order", ORDER, session_id="later")
    caller.server.log.failing = "lost"
    reply = caller.refused("log_unavailable", "/tools/get_order", ORDER)
    assert reply.json()["error"]["retryable"] is True
    caller.server.log.failing = ""
    caller.ok("/tools/get_order", ORDER)
    assert len(caller.server.recorded()) == 1
    for code in ("session_not_ready", "log_unavailable", "rate_limited"):
        assert BY_CODE[code].retryable


@pytest.mark.req("R09", "R26")
def test_the_actor_is_read_from_the_header_alone(caller: Caller) -> None:
    caller.server.start("team", actors=["supervisor/refunds"])
    token = caller.server.headers("team")
    plain = caller.post("/tools/answer", {"value": {"actor_id": "x"}}, session_id="team")
    for actor, declared in (("supervisor/refunds", True), ("stranger", False)):
        headers = token | {"X-Pipelines-Actor-Id": actor}
        value = {"value": {"actor_id": "x"}}
        reply = caller.post("/tools/answer", value, session_id="team", headers=headers)
        assert reply.json()["response"] == plain.json()["response"] == {"actor_id": "x"}
        called = caller.server.recorded("team")[-1].tool_called
        assert called is not None
        assert (called.actor, called.actor_declared) == (actor, declared)
    first = caller.server.recorded("team")[0].tool_called
    assert first is not None
    assert (first.actor, first.actor_declared) == (None, None)
    for bad in ("a b", "/a", "a//b", "a/"):
        headers = token | {"X-Pipelines-Actor-Id": bad}
        caller.refused("actor_id_invalid", "/tools/answer", {}, session_id="team", headers=headers)


@pytest.mark.req("R10", "R26")
def test_trace_events_land_among_the_calls_in_their_order(caller: Caller) -> None:
    plan = {"type": "plan", "payload": {"steps": ["look it up"]}}
    assert caller.post("/trace", plan).status == 202
    caller.ok("/tools/get_order", ORDER)
    handoff = {"type": "handoff", "payload": {"to": "supervisor/refunds"}}
    assert caller.post("/trace", handoff).status == 202
    assert [event.step for event in caller.server.recorded()] == ["x1", "t1", "x2"]
    caller.refused("trace_invalid", "/trace", {"type": "mood", "payload": {}})
    caller.refused("token_invalid", "/trace", plan, headers={"Authorization": "Bearer no"})


@pytest.mark.req("R21", "R26")
def test_the_reachability_probe_is_answered_401(caller: Caller) -> None:
    fake = {"Authorization": "Bearer fake-token"}
    caller.refused("token_invalid", "/tools/__reachability_probe__", {}, headers=fake)
    url = f"{caller.server.base().partition('/runs/')[0]}/tools/__reachability_probe__"
    reply = caller.client.send("POST", url, JSON | fake, b"{}")
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.req("R22", "R26")
def test_a_token_opens_its_own_session_while_that_lasts(caller: Caller) -> None:
    server = caller.server
    for headers in (
        server.headers("s2"),
        server.headers("s1", expires_at_ms=NOW_MS),
        {"Authorization": server.headers("s1")["Authorization"][:-4]},
        {**server.headers("s1"), "X-Pipelines-Run-Token": server.token("s2")},
    ):
        caller.refused("token_invalid", "/tools/get_order", ORDER, headers=headers)
    assert server.recorded("s1") == server.recorded("s2") == []
    caller.ok("/tools/get_order", ORDER)
    server.log.put(ended("s1"))
    caller.refused("token_invalid", "/tools/get_order", ORDER)
    caller.ok("/tools/get_order", ORDER, session_id="s2")
