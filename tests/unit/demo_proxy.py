"""The demo agent in a test's hand: its application, and a proxy scripted around its world."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx

from deploy.demo.agent import create_app
from deploy.demo.builds import BUILDS
from deploy.demo.world import world
from services.tool_proxy.world import Context, ToolError

AUTH = {"Authorization": "Bearer secret"}

Fault = Callable[[httpx.Request], httpx.Response | None]


class ScriptedProxy:
    """Answers tool calls from the world, after whatever faults a test has queued for a tool."""

    def __init__(self) -> None:
        self.state = world.initial_state
        self.faults: dict[str, list[Fault]] = {}
        self.requests: list[httpx.Request] = []
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def fails(self, tool: str, *faults: Fault) -> None:
        self.faults[tool] = list(faults)

    def tools(self) -> list[str]:
        return [request.url.path.rpartition("/")[2] for request in self.requests]

    def keys(self, tool: str) -> list[str]:
        return [
            request.headers["Idempotency-Key"]
            for request in self.requests
            if request.url.path.endswith(f"/{tool}")
        ]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        name = request.url.path.rpartition("/")[2]
        if self.faults.get(name):
            answer = self.faults[name].pop(0)(request)
            if answer is not None:
                return answer
        return self.answer(name, request.content)

    def answer(self, name: str, arguments: bytes) -> httpx.Response:
        tool = world.find(name)
        assert tool is not None
        now = datetime(2026, 1, 15, 9, tzinfo=UTC)
        context = Context(self.state, now, random.Random(0), len(self.requests))
        try:
            return envelope(tool(context, arguments))
        except ToolError as error:
            return envelope({"error": {"code": error.code, "message": error.message}})


def envelope(response: Any) -> httpx.Response:
    return httpx.Response(
        200,
        json={
            "tool_name": "x", "response": response, "source": "odyssey", "latency_ms": 1,
            "matched_rule_index": None,
        },
    )  # fmt: skip


def says(response: Any) -> Fault:
    return lambda _: envelope(response)


def error(code: str, **more: Any) -> Fault:
    return says({"error": {"code": code, "message": "something", **more}})


def status(code: int, retry_after: str | None = None) -> Fault:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return lambda _: httpx.Response(code, json={"error": {"code": "x"}}, headers=headers)


def broken(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


class Agent:
    """The agent's application, asked over ASGI."""

    def __init__(self, proxy: ScriptedProxy, build: str = "good") -> None:
        to_proxy = httpx.AsyncClient(transport=httpx.MockTransport(proxy))
        app = create_app(BUILDS[build], "secret", clients=[to_proxy], sleep=proxy.sleep)
        self._transport = httpx.ASGITransport(app=app)

    def post(self, **request: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=self._transport) as client:
                return await client.post("http://agent/dispatch", **request)

        return asyncio.run(ask())

    def dispatch(self, content: Any, **headers: str) -> httpx.Response:
        """One turn, with the headers that the platform sends."""
        return self.post(json=content, headers={"X-Pipelines-Run-Token": "rt", **AUTH, **headers})


def body(text: str, *history: str, customer: str | None = "cus_1001") -> dict[str, Any]:
    """A dispatch with the conversation so far, user and agent in turns."""
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": said} for n, said in enumerate(history)
    ]
    return {
        "task_id": 42, "run_id": 17, "agent_id": 8,
        "input": {
            "task_id": 42,
            "user_instruction": text,
            "input": {"customer_id": customer} if customer else {},
        },
        "odyssey_proxy_url": "http://proxy/runs/abc/",
        "run_token_jti": "jti",
        "session": {
            "id": "s1", "conversation": 1, "turn": len(history) // 2 + 1, "history": messages,
        },
    }  # fmt: skip


def say(
    proxy: ScriptedProxy, text: str, *history: str, build: str = "good",
    customer: str | None = "cus_1001",
) -> str:  # fmt: skip
    """The agent's answer to `text` after the conversation so far."""
    reply = Agent(proxy, build).dispatch(body(text, *history, customer=customer))
    assert reply.status_code == 200
    return str(reply.json()["final_response"])
