"""Tool calls out of a sandbox: to the session's proxy alone, as HTTP agents make them."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from services.tool_proxy.session import ProxyCore
from tests.support.code_agents import desk, make_request, require_bubblewrap
from tests.support.http_server import raw_server
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import MemoryLog, make_world

KIT = Path(__file__).parents[2] / "services/agent_kit/kit.py"
PREFIX = "import http.client, json, socket, urllib.error, urllib.request\n"
CALLER = """
def call(url, token, body=b"{}", method="POST", **headers):
    request = urllib.request.Request(url, body, method=method, headers={
        "Authorization": "Bearer " + token, "Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return [answer.status, answer.read().decode(), dict(answer.headers)]
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode(), dict(error.headers)]

def run(t, *, proxy_url, run_token):
    return {"final_response": json.dumps(found(t, proxy_url, run_token))}
"""


@pytest.fixture(autouse=True)
def _lane() -> None:
    require_bubblewrap()


def found(
    folder: Path, body: str, *, proxy_url: str, run_token: str, text: str = "", more: Any = ()
) -> Any:
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = f"{PREFIX}\ndef found(t, proxy_url, run_token):\n{indented}{CALLER}"

    async def go() -> Any:
        async with desk(folder) as one:
            answer = await one.ask(
                {"main.py": source, **dict(more)}, text, proxy_url=proxy_url, run_token=run_token
            )
            return json.loads(answer.final_response)

    return asyncio.run(go())


def proxy_log() -> MemoryLog:
    return MemoryLog(ProxyCore({"desk": make_world()}))


def asked(folder: Path, body: str, server: Server, session: str = "s1", text: str = "") -> Any:
    return found(
        folder, body, proxy_url=server.base(session), run_token=server.token(session), text=text
    )


@pytest.mark.req("R02", "R03", "R20", "R26")
def test_a_tool_call_by_the_standard_library_alone(tmp_path: Path) -> None:
    log = proxy_log()
    with serving(log) as server:
        server.start("s1")
        body = """
order = call(proxy_url + "/tools/get_order", run_token, b'{"order_id": "1"}')
probe = call(proxy_url.partition("/runs/")[0] + "/tools/__reachability_probe__", "fake-token")
wrong = call(proxy_url + "/tools/get_order", run_token, b'{"order_id": 5}')
return [order, probe[0], wrong[0], json.loads(wrong[1])["error"]["code"]]
"""
        order, probe, wrong, code = asked(tmp_path, body, server)
        direct = server.call("get_order", {"order_id": "1"})
        events = server.recorded("s1")
    envelope = json.loads(order[1])
    assert order[0] == 200
    assert envelope["response"]["status"] == "shipped"
    assert {**envelope, "latency_ms": 0} == {**direct.json(), "latency_ms": 0}
    assert (probe, wrong, code) == (401, 422, "arguments_invalid")
    called = [event.tool_called for event in events if event.tool_called is not None]
    assert [call.tool for call in called] == ["get_order"] * 3


@pytest.mark.req("R08", "R10", "R20")
def test_the_kit_works_unchanged_inside(tmp_path: Path) -> None:
    log = proxy_log()
    with serving(log) as server:
        server.start("s1")
        body = """
import agent_kit
agent_kit.trace("reasoning", {"text": "look it up"})
with agent_kit.actor("supervisor"):
    return agent_kit.proxy_call("get_order", {"order_id": "1"})
"""
        order = found(
            tmp_path,
            body,
            proxy_url=server.base("s1"),
            run_token=server.token("s1"),
            more={"agent_kit.py": KIT.read_text()},
        )
        events = server.recorded("s1")
    assert order["status"] == "shipped"
    assert [event.kind for event in events] == ["trace", "tool_called"]


@pytest.mark.req("R20", "R22")
def test_a_token_is_worth_nothing_for_another_session(tmp_path: Path) -> None:
    log = proxy_log()
    with serving(log) as server:
        server.start("s1")
        server.start("s2")
        body = """
other = proxy_url.replace("jti-s1", "jti-s2")
return [call(other + "/tools/get_order", run_token, b'{"order_id": "1"}')[0],
        call(proxy_url + "/tools/get_order", t["user_instruction"])[0]]
"""
        asked(tmp_path, body, server, text="gAAAAAnot-a-token")
        assert not server.recorded("s2")


@pytest.mark.req("R20")
def test_only_what_is_for_agents_passes(tmp_path: Path) -> None:
    """The proxy's own health and metrics, other methods, and every way to spell a way around."""
    arrived: list[bytes] = []

    def note(connection: socket.socket) -> None:
        arrived.append(connection.recv(65536).partition(b"\r\n")[0])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")

    with raw_server(note) as url:
        body = """
host = proxy_url.split("/")[2]
tried = {}
for target in ("/metrics", "/healthz", "/api/odyssey-proxy", "/api/odyssey-proxyX/tools/a",
               "/api/odyssey-proxy/../../metrics", "/api/odyssey-proxy/%2e%2e/%2e%2e/metrics",
               "/api/odyssey-proxy/..%2f..%2fmetrics", "/api/odyssey-proxy//tools/a",
               "/api/odyssey-proxy/tools/..\\\\..\\\\metrics", "//evil/api/odyssey-proxy/tools/a",
               "http://127.0.0.1/api/odyssey-proxy/tools/a", "http://127.0.0.1/metrics",
               "/API/odyssey-proxy/tools/a", "/api/odyssey-proxy/tools/" + "a" * 5000):
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.putrequest("POST", target, skip_host=True)
    connection.putheader("Host", "anything")
    connection.putheader("Content-Length", "0")
    connection.endheaders()
    tried[target[:60]] = connection.getresponse().status
for method in ("GET", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "PATCH", "TRACE"):
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(method, "/api/odyssey-proxy/tools/a")
    tried[method] = connection.getresponse().status
tried["works"] = call(proxy_url + "/tools/a?b=c", run_token)[0]
return tried
"""
        proxy = f"{url}/api/odyssey-proxy/runs/j"
        tried = found(tmp_path, body, proxy_url=proxy, run_token="t")
    assert tried.pop("works") == 200
    assert arrived == [b"POST /api/odyssey-proxy/runs/j/tools/a?b=c HTTP/1.1"]
    assert set(tried.values()) <= {400, 404, 405}, tried


@pytest.mark.req("R20")
def test_bodies_status_and_headers_pass_as_they_are(tmp_path: Path) -> None:
    seen: list[bytes] = []
    answer = b'{"response": "\xc3\xa9", "odd" :  1}\n'

    def handle(connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received or not received.endswith(b"}"):
            received += connection.recv(65536)
        seen.append(received)
        connection.sendall(
            b"HTTP/1.1 429 Slow Down\r\nContent-Type: application/json\r\nRetry-After: 7\r\n"
            b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(answer) + answer
        )

    with raw_server(handle) as url:
        body = """
return call(proxy_url + "/tools/a", run_token, b'{ "a" :1.50, "b":"x" }',
            **{"X-Pipelines-Actor-Id": "a/b", "Idempotency-Key": "k1", "Accept": "text/odd"})
"""
        status, text, headers = found(
            tmp_path, body, proxy_url=f"{url}/api/odyssey-proxy/runs/j", run_token="secret"
        )
    assert (status, text) == (429, answer.decode())
    assert headers["Retry-After"] == "7"
    assert headers["Content-Type"] == "application/json"
    head, _, sent = seen[0].partition(b"\r\n\r\n")
    assert sent == b'{ "a" :1.50, "b":"x" }'
    lines = {
        line.partition(b":")[0].lower(): line.partition(b": ")[2] for line in head.split(b"\r\n")
    }
    assert lines[b"authorization"] == b"Bearer secret"
    assert lines[b"x-pipelines-actor-id"] == b"a/b"
    assert lines[b"idempotency-key"] == b"k1"
    assert lines[b"accept"] == b"text/odd"
    assert lines[b"host"].decode() in url


@pytest.mark.req("R07", "R20")
def test_a_body_that_is_too_large_is_the_proxys_to_refuse(tmp_path: Path) -> None:
    log = proxy_log()
    with serving(log) as server:
        server.start("s1")
        body = """
large = call(proxy_url + "/tools/get_order", run_token, b'{"order_id": "%s"}' % (b"x" * 2**21))
after = call(proxy_url + "/tools/get_order", run_token, b'{"order_id": "1"}')
return [large[0], json.loads(large[1])["error"]["code"], after[0]]
"""
        assert asked(tmp_path, body, server) == [413, "body_too_large", 200]


@pytest.mark.req("R08", "R20")
def test_a_proxy_that_is_gone_is_a_condition_that_may_pass(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    body = """
status, text, _ = call(proxy_url + "/tools/a", run_token)
return [status, json.loads(text)["error"]]
"""
    status, error = found(
        tmp_path, body, proxy_url=f"http://127.0.0.1:{port}/api/odyssey-proxy/runs/j", run_token="t"
    )
    assert (status, error["code"], error["retryable"]) == (502, "proxy_unreachable", True)


@pytest.mark.req("R20")
def test_half_an_answer_is_no_answer(tmp_path: Path) -> None:
    def handle(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    with raw_server(handle) as url:
        body = """
try:
    return call(proxy_url + "/tools/a", run_token)
except Exception as error:
    return type(error).__name__
"""
        proxy = f"{url}/api/odyssey-proxy/runs/j"
        assert found(tmp_path, body, proxy_url=proxy, run_token="t") in (
            "IncompleteRead", "ConnectionResetError",
        )  # fmt: skip


@pytest.mark.req("R20")
def test_connections_are_bounded_and_garbage_is_refused(tmp_path: Path) -> None:
    body = """
host, port = proxy_url.split("/")[2].split(":")
held = [socket.create_connection((host, int(port)), timeout=20) for _ in range(100)]
for one in held[:64]:
    one.sendall(b"POST /metrics HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 0\\r\\n\\r\\n")
answered = sum(1 for one in held if one.recv(20))
for one in held:
    one.close()
garbage = socket.create_connection((host, int(port)), timeout=20)
garbage.sendall(b"\\x00\\xff" * 100 + b" HTTP/9.9\\r\\n\\r\\n")
return [answered, garbage.recv(20).decode(errors="replace")[:12]]
"""
    proxy = "http://127.0.0.1:9/api/odyssey-proxy/runs/j"
    answered, garbage = found(tmp_path, body, proxy_url=proxy, run_token="t")
    assert answered == 64
    assert garbage == "HTTP/1.0 400"


@pytest.mark.req("R20", "R22")
def test_each_of_many_turns_at_once_calls_with_its_own_token(tmp_path: Path) -> None:
    log = proxy_log()
    source = f"""{PREFIX}
def found(t, proxy_url, run_token):
    return call(proxy_url + "/tools/add_note", run_token,
                json.dumps({{"text": t["user_instruction"]}}).encode())[0]
{CALLER}"""
    names = [f"s{number}" for number in range(6)]
    with serving(log) as server:
        for name in names:
            server.start(name)

        async def go() -> list[str]:
            async with desk(tmp_path, concurrency=3, pool=2) as one:
                agent = await one.register(source)
                answers = await asyncio.gather(
                    *(
                        one.agents.turn(
                            agent,
                            make_request(
                                name, proxy_url=server.base(name), run_token=server.token(name)
                            ),
                        )
                        for name in names
                    )
                )
                return [answer.final_response for answer in answers]

        assert asyncio.run(go()) == ["200"] * 6
        for name in names:
            calls = [event.tool_called for event in server.recorded(name)]
            assert [json.loads(call.arguments)["text"] for call in calls if call] == [name]
