"""R11-R17: what goes over the wire to an agent, and what of its answer is taken."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.agent_response import ParsedResponse, ResponseRefused, json_schema, parse_response
from schemas.registry import AgentRegistration
from services.runtime.agents.client import AgentClient, AgentFailed, TurnRequest
from services.runtime.agents.secrets import SecretMissing
from tests.support.http_server import serve

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
            await client.check(registration(url), 5)
        finally:
            await client.close()

    with serve(app(handler)) as url:
        if accepted:
            asyncio.run(main(url))
        else:
            with pytest.raises(AgentFailed, match=f"answered {status}"):
                asyncio.run(main(url))
    assert [json.loads(body) for body in bodies] == [{"ping": True}]


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
