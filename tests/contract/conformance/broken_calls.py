"""Mistakes in how tools are called, and in what is made of their responses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import httpx
from starlette.responses import Response

from tests.contract.conformance.conforming import Failed, Good


class OtherPath(Good):
    check = "call_path"

    def call_url(self, url: str, token: str) -> str:
        return f"{url}/tool/{self.name}"


class PathWithoutRun(Good):
    check = "call_path"

    def call_url(self, url: str, token: str) -> str:
        return f"{url.partition('/runs/')[0]}/tools/{self.name}"


class NoScheme(Good):
    check = "call_auth"

    def call_headers(self, token: str) -> dict[str, str]:
        return {"Authorization": token}


class NoToken(Good):
    check = "call_auth"

    def call_headers(self, token: str) -> dict[str, str]:
        return {}


class Wrapped(Good):
    check = "call_body"

    def arguments(self, order_id: str) -> Any:
        return {"name": "get_order", "arguments": {"order_id": order_id}}


class WrappedUnknown(Wrapped):
    options = MappingProxyType({"tools": None})


class ArgumentsArray(Good):
    check = "call_body"

    def arguments(self, order_id: str) -> Any:
        return [order_id]


class Compressed(Good):
    check = "call_body"

    def call_headers(self, token: str) -> dict[str, str]:
        return super().call_headers(token) | {"Content-Encoding": "gzip"}


class OtherName(Good):
    check = "tool_known"
    name = "getOrder"


class NoToolName(Good):
    check = "tool_known"
    name = "get.order"
    options = MappingProxyType({"tools": None})


class WrongType(Good):
    check = "arguments_valid"

    def arguments(self, order_id: str) -> Any:
        return {"order_id": int(order_id)}


class Chatty(Good):
    check = "call_rate"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        url, token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        for _ in range(59):
            await self.tool(url, token, self.arguments("4521"))
        return await super().turn(headers, body)


class Verbose(Good):
    check = "call_size"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        url, token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        await self.tool(url, token, {"order_id": "4521", "notes": "x" * 1024 * 1024})
        return await super().turn(headers, body)


class ActorWithBlanks(Good):
    check = "actor"

    def call_headers(self, token: str) -> dict[str, str]:
        return super().call_headers(token) | {"X-Pipelines-Actor-Id": "supervisor / refunds"}


class Mood(Good):
    check = "trace"

    async def turn(self, headers: Mapping[str, str], body: dict[str, Any]) -> Response:
        url, token = self.proxy_url(headers, body), headers["x-pipelines-run-token"]
        await self.client.post(
            f"{url}/trace", json={"type": "mood", "payload": {}}, headers=self.call_headers(token)
        )
        return await super().turn(headers, body)


class WholeEnvelope(Good):
    check = "unwrapped"

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        return envelope


class DecodesTwice(Good):
    check = "decoded_once"

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        if not isinstance(envelope["response"], str):
            raise Failed("the JSON object must be str, bytes or bytearray")
        return json.loads(envelope["response"])


class DecodesTwiceQuietly(DecodesTwice):
    def unwrap(self, envelope: dict[str, Any]) -> Any:
        try:
            return super().unwrap(envelope)
        except (Failed, ValueError):
            return {"problem": "tool failed"}


class DecodesText(Good):
    check = "text_response"

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        response = envelope["response"]
        try:
            return json.loads(response) if isinstance(response, str) else response
        except ValueError as error:
            raise Failed(str(error)) from None


class ExpectsObject(Good):
    check = "array_response"

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        if isinstance(envelope["response"], list):
            raise Failed("list indices must be integers")
        return envelope["response"]


class FallsOverErrors(Good):
    check = "error_response"

    def unwrap(self, envelope: dict[str, Any]) -> Any:
        if envelope["source"] not in ("odyssey", "injected", "passthrough"):
            raise Failed("tool failed")
        return envelope["response"]


class RaisesForStatus(Good):
    check = "refusal_survived"

    def refused(self, reply: httpx.Response) -> Any:
        raise Failed(f"{reply.status_code}")


class NeverRetriesOutage(Good):
    check = "retries_unavailable"

    def wait_s(self, status: int, headers: Mapping[str, str]) -> float | None:
        return None if status == 503 else super().wait_s(status, headers)


class NeverRetriesRateLimit(Good):
    check = "retries_rate_limit"

    def wait_s(self, status: int, headers: Mapping[str, str]) -> float | None:
        return None if status == 429 else super().wait_s(status, headers)


class ImpatientRetry(Good):
    check = "retries_rate_limit"

    def wait_s(self, status: int, headers: Mapping[str, str]) -> float | None:
        return None if super().wait_s(status, headers) is None else 0.01


class ImpatientCall(Good):
    check = "slow_tool"
    timeout_s = 2.0
    options = MappingProxyType({"slow_tool_s": 6.0})
