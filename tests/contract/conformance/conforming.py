"""Agents that conform, each in its own way; those that do not are made from the first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from services.cli.conformance import AgentTarget

AUTH = "Bearer agent-secret-5f2a9c"


class Failed(Exception):
    """The agent's own code fell over."""


class Good:
    """Does everything right, and calls its tool twice a turn."""

    check = ""
    """The check that must catch it."""
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """What its examination needs otherwise than the others', as fields of `AgentTarget`."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def dispatch(self, request: Request) -> Response:
        raw = await request.body()
        body = json.loads(raw)
        ping = self.is_ping(body)
        if not self.authorised(request.headers.get("authorization", ""), ping):
            return JSONResponse({"error": "unauthorised"}, 401)
        if ping:
            return self.pong()
        try:
            return await self.turn(request.headers, body)
        except Failed as error:
            return JSONResponse({"error": str(error)}, 500)

    def is_ping(self, body: Any) -> bool:
        return bool(body == {"ping": True})

    def authorised(self, given: str, ping: bool) -> bool:
        return given == AUTH

    def pong(self) -> Response:
        return JSONResponse({"ok": True})

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        url = self.proxy_url(headers, body)
        token = headers["x-pipelines-run-token"]
        order_id = self.order_id(body["input"]["input"])
        told = ""
        for _ in range(2):
            found = await self.tool(url, token, self.arguments(order_id))
            told = found if isinstance(found, str) else json.dumps(found)
        return JSONResponse(self.answer(body, told, token))

    def proxy_url(self, headers: Mapping[str, str], body: dict[str, Any]) -> str:
        return str(body.get("odyssey_proxy_url") or headers["x-pipelines-odyssey-proxy-url"])

    def order_id(self, state: dict[str, Any]) -> str:
        return str(state.get("order_id", "4521"))

    def arguments(self, order_id: str) -> Any:
        return {"order_id": order_id}

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        return {"final_response": f"I found {told}"}

    # A tool call, in its parts.

    name = "get_order"
    timeout_s = 60.0

    def call_url(self, url: str, token: str) -> str:
        return f"{url}/tools/{self.name}"

    def call_headers(self, token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    async def tool(self, url: str, token: str, arguments: Any) -> Any:
        for attempt in range(4):
            try:
                reply = await self.client.post(
                    self.call_url(url, token), json=arguments, headers=self.call_headers(token),
                    timeout=self.timeout_s,
                )  # fmt: skip
            except httpx.HTTPError as error:
                return {"problem": type(error).__name__}
            if reply.status_code == 200:
                return self.unwrap(reply.json())
            wait_s = self.wait_s(reply.status_code, reply.headers)
            if wait_s is None or attempt == 3:
                return self.refused(reply)
            await asyncio.sleep(wait_s)
        raise AssertionError

    def wait_s(self, status: int, headers: Mapping[str, str]) -> float | None:
        """How long to wait before calling again; None: not at all."""
        return float(headers.get("retry-after", 0.01)) if status in (408, 429, 503) else None

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        return envelope["response"]

    def refused(self, reply: httpx.Response) -> Any:
        return {"problem": reply.status_code}


class NoTools(Good):
    """Conforms, though there is not much to see."""

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        return JSONResponse({"final_response": "Good morning."})


class Serial(Good):
    """Conforms, one turn after the other."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        super().__init__(client)
        self.lock = asyncio.Lock()

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        async with self.lock:
            return await super().turn(headers, body)


class Open(Good):
    """Conforms, without auth."""

    options = MappingProxyType({"auth_header": None, "auth_value": None})

    def authorised(self, given: str, ping: bool) -> bool:
        return True


class Rich(Good):
    """Conforms, as a multi-agent system with all the trimmings."""

    def call_headers(self, token: str) -> dict[str, str]:
        return super().call_headers(token) | {"X-Pipelines-Actor-Id": "supervisor/refunds"}

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        url, token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        event = {"type": "handoff", "payload": {"to": "supervisor/refunds"}}
        await self.client.post(f"{url}/trace", json=event, headers=self.call_headers(token))
        return await super().turn(headers, body)

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        call = {"id": "c1", "name": "get_order", "arguments": {"order_id": "4521"}}
        messages = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": told},
            {"role": "assistant", "content": "It is on its way."},
        ]
        answer = {"final_response": "It is on its way.", "messages": messages}
        return answer | {"metadata": {"model": "m", "total_input_tokens": 3}}


class Typed(Good):
    """Conforms, and can use nothing but an order, of which it has to be given one."""

    options = MappingProxyType({"responses": {"get_order": {"order": {"status": "in transit"}}}})

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        response = envelope["response"]
        if isinstance(response, dict) and "order" in response:
            return response["order"]["status"]
        if isinstance(response, dict) and "error" not in response:
            raise Failed("KeyError: order")
        return "nothing that makes sense"


CONFORMING: tuple[type[Good], ...] = (Good, NoTools, Serial, Open, Rich, Typed)


def target_of(agent: type[Good], url: str, **fields: Any) -> AgentTarget:
    """How an agent is examined; quickly, where nothing depends on time."""
    defaults: dict[str, Any] = {
        "auth_header": "Authorization", "auth_value": AUTH, "timeout_s": 60.0, "settle_s": 1.0,
        "slow_tool_s": 0.05,
    }  # fmt: skip
    return AgentTarget(url=url, **{**defaults, **fields, **agent.options})
