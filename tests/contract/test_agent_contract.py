"""R11-R17: what goes over the wire to an agent, and every way in which an agent can misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from schemas.agent_response import ParsedResponse, ResponseRefused, json_schema, parse_response
from schemas.registry import AgentRegistration
from services.runtime.agents.client import (
    MAX_RESPONSE_BYTES,
    AgentClient,
    AgentFailed,
    TurnRequest,
)
from services.runtime.agents.secrets import SecretMissing
from tests.support.http_server import raw_server, serve

REQUEST = TurnRequest(
    body={"task_id": 42, "input": {"user_instruction": "hi"}},
    run_token="opaque-token",
    proxy_url="http://127.0.0.1:1/api/odyssey-proxy/runs/abc",
    run_id=17,
    task_id=42,
    jti="2105977b",
    idempotency_key="s-1",
)
SECRET = "Bearer canary-5f2a"


def registration(url: str, **more: Any) -> AgentRegistration:
    fields = {"agent_id": "a", "name": "a", "endpoint": f"{url}/dispatch", "run_timeout_s": 2}
    return AgentRegistration(**(fields | more))


def ask(agent: AgentRegistration) -> ParsedResponse:
    async def main() -> ParsedResponse:
        client = AgentClient(10)
        try:
            return await client.turn(agent, REQUEST)
        finally:
            await client.close()

    return asyncio.run(main())


def app(handler: Callable[[Request], Awaitable[Response]]) -> Starlette:
    return Starlette(routes=[Route("/dispatch", handler, methods=["POST"])])


@pytest.mark.req("R11", "R12", "R26")
def test_headers_and_body_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AGENT_AUTH", SECRET)
    seen: dict[str, Any] = {}

    async def handler(request: Request) -> Response:
        seen.update(headers=dict(request.headers), body=await request.json())
        return JSONResponse({"final_response": "done"})

    with serve(app(handler)) as url:
        agent = registration(url, auth_header="Authorization", auth_value_ref="env:TEST_AGENT_AUTH")
        assert ask(agent).final_response == "done"
    headers = seen["headers"]
    assert headers["content-type"] == "application/json"
    assert headers["x-pipelines-run-token"] == "opaque-token"
    assert headers["x-pipelines-odyssey-proxy-url"] == REQUEST.proxy_url
    assert headers["x-pipelines-run-id"] == "17"
    assert headers["x-pipelines-task-id"] == "42"
    assert headers["x-pipelines-run-token-jti"] == "2105977b"
    assert headers["authorization"] == SECRET
    assert headers["idempotency-key"] == "s-1"
    assert seen["body"] == REQUEST.body


@pytest.mark.req("R17")
@pytest.mark.parametrize(
    ("status", "accepted"), [(200, True), (204, True), (401, False), (500, False)]
)
def test_the_ping_is_exact_and_wants_2xx(status: int, accepted: bool) -> None:
    bodies: list[bytes] = []

    async def handler(request: Request) -> Response:
        bodies.append(await request.body())
        return Response(status_code=status)

    async def main(url: str) -> None:
        client = AgentClient(1)
        try:
            await client.ping(registration(url), 5)
        finally:
            await client.close()

    with serve(app(handler)) as url:
        if accepted:
            asyncio.run(main(url))
        else:
            with pytest.raises(AgentFailed, match=f"answered {status}"):
                asyncio.run(main(url))
    assert [json.loads(body) for body in bodies] == [{"ping": True}]


async def _never(_: Request) -> Response:
    await asyncio.sleep(20)
    return Response()


async def _status_500(_: Request) -> Response:
    return Response("boom", status_code=500)


async def _redirect(_: Request) -> Response:
    return RedirectResponse("http://169.254.169.254/latest/meta-data", status_code=307)


async def _huge(_: Request) -> Response:
    return Response(b"x" * (MAX_RESPONSE_BYTES + 1))


async def _not_json(_: Request) -> Response:
    return Response("{nope")


async def _list(_: Request) -> Response:
    return JSONResponse([1])


async def _blank(_: Request) -> Response:
    return JSONResponse({"final_response": "  "})


@pytest.mark.req("R13", "R16")
@pytest.mark.parametrize(
    ("handler", "outcome", "code"),
    [
        (_never, "timeout", "timeout"),
        (_status_500, "error", "http_status"),
        (_redirect, "error", "redirect"),
        (_huge, "error", "response_too_large"),
        (_not_json, "error", "response_not_json"),
        (_list, "error", "response_not_object"),
        (_blank, "error", "final_response_missing"),
    ],
)
def test_misbehaviour_is_a_typed_outcome(
    handler: Callable[[Request], Awaitable[Response]], outcome: str, code: str
) -> None:
    with serve(app(handler)) as url, pytest.raises(AgentFailed) as caught:
        ask(registration(url))
    assert (caught.value.outcome, caught.value.code) == (outcome, code)


def _drip(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    for _ in range(40):
        connection.sendall(b"x")
        time.sleep(0.25)


def _cut(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"final')


@pytest.mark.req("R16")
@pytest.mark.parametrize(
    ("handle", "outcome", "code"),
    [(_drip, "timeout", "timeout"), (_cut, "error", "connection_broken")],
)
def test_bytes_that_never_make_an_answer(
    handle: Callable[[socket.socket], None], outcome: str, code: str
) -> None:
    started = time.monotonic()
    with raw_server(handle) as url, pytest.raises(AgentFailed) as caught:
        ask(registration(url))
    assert (caught.value.outcome, caught.value.code) == (outcome, code)
    assert time.monotonic() - started < 10


def test_nobody_listening_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(AgentFailed, match=f"127.0.0.1:{port}") as caught:
        ask(registration(f"http://127.0.0.1:{port}"))
    assert caught.value.code == "unreachable"


@pytest.mark.req("R18")
def test_a_missing_secret_is_named_by_reference_and_never_by_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TEST_AGENT_AUTH", raising=False)
    agent = registration(
        "http://127.0.0.1:1", auth_header="Authorization", auth_value_ref="env:TEST_AGENT_AUTH"
    )
    with pytest.raises(SecretMissing, match="env:TEST_AGENT_AUTH"):
        ask(agent)


RICH = {
    "final_response": "refunded",
    "messages": [
        {"role": "user", "content": "refund"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "get", "arguments": {"a": 1}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "{}"},
        {
            "role": "assistant", "content": [{"type": "text", "text": "ok"}],
            "thinking": [{"type": "text", "text": "hm"}],
            "tool_calls": [
                {"id": "c2", "type": "function", "function": {"name": "x", "arguments": "{}"}}
            ],
        },
    ],
    "metadata": {"model": "m", "total_input_tokens": 3, "total_output_tokens": 4, "own": [1]},
}  # fmt: skip


@pytest.mark.req("R14")
def test_rich_answers_are_kept_whole() -> None:
    parsed = parse_response(RICH, require_rich_transcript=True)
    assert parsed.messages == RICH["messages"]
    assert parsed.metadata == RICH["metadata"]
    assert parsed.soft_warnings == ()
    assert parsed.usage is not None
    assert (parsed.usage.model, parsed.usage.input_tokens, parsed.usage.output_tokens) == (
        "m",
        3,
        4,
    )


@pytest.mark.req("R13", "R14")
@pytest.mark.parametrize(
    "messages",
    [
        "text",
        [{"role": "robot"}],
        [{"role": "tool", "content": "no id"}],
        [{"role": "tool", "tool_call_id": "nowhere", "content": "x"}],
        [{"role": "assistant", "content": 5}],
        [{"role": "assistant", "tool_calls": [{"id": "c", "name": "x", "arguments": 5}]}],
        ["text"],
    ],
)
def test_malformed_messages_are_dropped_with_a_warning(messages: Any) -> None:
    parsed = parse_response({"final_response": "x", "messages": messages})
    assert parsed.messages is None
    assert parsed.soft_warnings[0].startswith("messages dropped: ")
    with pytest.raises(ResponseRefused, match="gradeable") as caught:
        parse_response({"final_response": "x", "messages": messages}, require_rich_transcript=True)
    assert caught.value.code == "no_gradeable_message"


@pytest.mark.req("R13")
@pytest.mark.parametrize("metadata", ["x", [1], {"total_input_tokens": -1}, {"model": 5}])
def test_malformed_metadata_is_dropped_with_a_warning(metadata: Any) -> None:
    parsed = parse_response({"final_response": "x", "metadata": metadata})
    assert parsed.metadata is None
    assert parsed.soft_warnings[0].startswith("metadata dropped: ")


@pytest.mark.req("R15")
def test_the_json_schema_accepts_what_the_model_accepts() -> None:
    validator = jsonschema_rs.validator_for(json_schema())
    assert validator.is_valid(RICH)
    assert validator.is_valid({"final_response": "x"})
    assert not validator.is_valid({"final_response": ""})
    assert not validator.is_valid({"messages": []})
