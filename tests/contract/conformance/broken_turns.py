"""Mistakes in how turns are taken, answered and kept apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response

from tests.contract.conformance.conforming import AUTH, Failed, Good


class NoPing(Good):
    check = "ping_answered"

    def pong(self) -> Response:
        return JSONResponse({"error": "no input"}, 400)


class PingWithoutAuth(Good):
    check = "ping_needs_auth"

    def authorised(self, given: str, ping: bool) -> bool:
        return given == AUTH or (ping and not given)


class PingWithAnyAuth(Good):
    check = "ping_checks_auth"

    def authorised(self, given: str, ping: bool) -> bool:
        return given == AUTH or (ping and given.startswith("Bearer "))


class AuthOnlyOnPings(Good):
    check = "turn_needs_auth"

    def authorised(self, given: str, ping: bool) -> bool:
        return given == AUTH or not ping


class AuthOfTurnsByPrefix(Good):
    check = "turn_needs_auth"

    def authorised(self, given: str, ping: bool) -> bool:
        return given == AUTH or (not ping and given.startswith(AUTH[:12]))


class AnyPing(Good):
    check = "ping_exact"

    def is_ping(self, body: Any) -> bool:
        return "ping" in body


class AlwaysDown(Good):
    check = "turn_answered"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        raise Failed("down")


class Redirects(Good):
    check = "turn_answered"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        return Response(status_code=307, headers={"Location": "/elsewhere"})


class NeverAnswers(Good):
    check = "in_time"
    options = MappingProxyType({"timeout_s": 2.0})

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        await asyncio.sleep(20)
        return Response()


class OtherField(Good):
    check = "final_response"

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        return {"answer": told}


class BlankResponse(Good):
    check = "final_response"

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        return {"final_response": " "}


class MessagesMalformed(Good):
    check = "rich_answer"

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        messages = [{"role": "tool", "content": told}]
        return {"final_response": told, "messages": messages}


class HeadersOnly(Good):
    check = "body_is_enough"

    def proxy_url(self, headers: Mapping[str, str], body: dict[str, Any]) -> str:
        if "x-pipelines-odyssey-proxy-url" not in headers:
            raise Failed("no proxy URL")
        return headers["x-pipelines-odyssey-proxy-url"]


class HeadersOnlyQuietly(Good):
    check = "body_is_enough"

    def proxy_url(self, headers: Mapping[str, str], body: dict[str, Any]) -> str:
        return headers.get("x-pipelines-odyssey-proxy-url", "http://127.0.0.1:9")


class BodyOnly(Good):
    check = "header_fallback"

    def proxy_url(self, headers: Mapping[str, str], body: dict[str, Any]) -> str:
        if "odyssey_proxy_url" not in body:
            raise Failed("no proxy URL")
        return str(body["odyssey_proxy_url"])


class Strict(Good):
    check = "additive_fields"

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        known = {"task_id", "run_id", "agent_id", "input", "odyssey_proxy_url", "run_token_jti"}
        if set(body) - known - {"ping"}:
            raise Failed("unknown fields")
        return super().answer(body, told, token)


class NeedsState(Good):
    check = "empty_state"
    options = MappingProxyType({"task_input": {"order_id": "4521"}})

    def order_id(self, state: dict[str, Any]) -> str:
        if "order_id" not in state:
            raise Failed("KeyError: order_id")
        return str(state["order_id"])


class GlobalContext(Good):
    """Proxy and token of whoever came last, after the model has thought for a while."""

    check = "sessions_apart"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        self.url, self.token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        await asyncio.sleep(0.2)
        return await super().turn(headers, body)

    async def tool(self, url: str, token: str, arguments: Any) -> Any:
        return await super().tool(self.url, self.token, arguments)


class GlobalContextAtOnce(GlobalContext):
    """The first call is its own; only a call that is made again shows whose token is used."""

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        self.url, self.token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        return await Good.turn(self, headers, body)

    async def tool(self, url: str, token: str, arguments: Any) -> Any:
        reply = await self.client.post(
            self.call_url(self.url, self.token), json=arguments,
            headers=self.call_headers(self.token), timeout=60,
        )  # fmt: skip
        if reply.status_code == 200:
            return self.unwrap(reply.json())
        await asyncio.sleep(self.wait_s(reply.status_code, reply.headers) or 0)
        return await super().tool(url, token, arguments)


class GlobalToken(Good):
    check = "sessions_apart"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        self.token = headers["x-pipelines-run-token"]
        await asyncio.sleep(0.2)
        return await super().turn(headers, body)

    def call_headers(self, token: str) -> dict[str, str]:
        return {"X-Pipelines-Run-Token": self.token}


class SharedMemory(Good):
    """What one session's tool said is told in the next one's answer."""

    check = "sessions_apart"
    last = ""
    running = 0

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        self.running += 1
        try:
            return await super().turn(headers, body)
        finally:
            self.running -= 1

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        self.last = self.last if self.running > 1 and self.last else told
        return {"final_response": self.last}


class CallsLate(Good):
    check = "no_late_call"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        url, token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        response = await super().turn(headers, body)

        async def late() -> None:
            await asyncio.sleep(0.1)
            await self.tool(url, token, self.arguments("4521"))

        response.background = BackgroundTask(late)
        return response


class TokenInMetadata(Good):
    check = "token_kept"

    def answer(self, body: dict[str, Any], told: str, token: str) -> dict[str, Any]:
        return {"final_response": told, "metadata": {"context": {"token": token}}}


class TokenInUrl(Good):
    check = "token_kept"

    def call_url(self, url: str, token: str) -> str:
        return f"{super().call_url(url, token)}?run_token={token}"


class ForwardsHeaders(Good):
    check = "token_kept"

    def call_headers(self, token: str) -> dict[str, str]:
        return {"X-Pipelines-Run-Token": token, "X-Forwarded-Authorization": AUTH}
