"""The wire contract with an HTTP agent: one POST a turn, an exact ping, bounded in every way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from httpx_aiohttp import AiohttpTransport

from schemas.agent_response import ParsedResponse, ResponseRefused, parse_response
from schemas.registry import AgentRegistration
from services.runtime.agents.secrets import auth_headers

MAX_RESPONSE_BYTES = 4 * 1024 * 1024
DEFAULT_TIMEOUT_S = 300
MAX_TIMEOUT_S = 1800
_CONNECT_PAUSES_S = (0.2, 0.5)
# The aiohttp transport reports a refused connection as a connect timeout.
_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout)


class AgentFailed(Exception):
    """The agent did not give a usable answer; `outcome` is timeout or error."""

    def __init__(self, outcome: str, code: str, detail: str) -> None:
        self.outcome, self.code, self.detail = outcome, code, detail
        super().__init__(f"{code}: {detail}")


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn, as it goes over the wire."""

    body: Mapping[str, Any]
    run_token: str
    proxy_url: str
    run_id: int
    task_id: int
    jti: str
    idempotency_key: str


class AgentClient:
    """Posts turns to agents. One per process; safe for any number of concurrent turns."""

    def __init__(self, max_connections: int) -> None:
        limits = httpx.Limits(max_connections=max_connections, max_keepalive_connections=100)
        self._client = httpx.AsyncClient(
            transport=AiohttpTransport(limits=limits), follow_redirects=False, trust_env=False
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def ping(self, agent: AgentRegistration, timeout_s: float) -> None:
        """Post exactly `{"ping": true}` with the configured auth; returns when it is answered 2xx.

        Raises:
            AgentFailed, SecretMissing
        """
        headers = {"Content-Type": "application/json", **auth_headers(agent)}
        status, _ = await self._post(agent.endpoint, b'{"ping": true}', headers, timeout_s)
        if not 200 <= status < 300:
            hint = "; check the auth header of its registration" if status in (401, 403) else ""
            raise AgentFailed("error", "ping_refused", f"the ping was answered {status}{hint}")

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        """Post one turn and parse the answer.

        Raises:
            AgentFailed: no usable answer within the agent's timeout.
            SecretMissing: the auth value cannot be resolved.
        """
        headers = {
            "Content-Type": "application/json",
            "X-Pipelines-Run-Token": request.run_token,
            "X-Pipelines-Odyssey-Proxy-Url": request.proxy_url,
            "X-Pipelines-Run-Id": str(request.run_id),
            "X-Pipelines-Task-Id": str(request.task_id),
            "X-Pipelines-Run-Token-Jti": request.jti,
            "Idempotency-Key": request.idempotency_key,
            **auth_headers(agent),
        }
        timeout_s = min(agent.run_timeout_s or DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)
        body = orjson.dumps(request.body)
        status, answer = await self._post(agent.endpoint, body, headers, timeout_s)
        if not 200 <= status < 300:
            raise AgentFailed(
                "error",
                "http_status",
                f"answered {status}: {answer[:300].decode(errors='replace')}",
            )
        try:
            decoded = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise AgentFailed("error", "response_not_json", str(error)) from None
        try:
            return parse_response(decoded, require_rich_transcript=agent.require_rich_transcript)
        except ResponseRefused as error:
            raise AgentFailed("error", error.code, str(error)) from None

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(timeout_s):
                for pause_s in _CONNECT_PAUSES_S:
                    # Only a connection that was never made is tried again: nothing was sent.
                    with contextlib.suppress(*_NOT_CONNECTED):
                        return await self._exchange(url, body, headers, timeout_s)
                    await asyncio.sleep(pause_s)
                return await self._exchange(url, body, headers, timeout_s)
        except _NOT_CONNECTED as error:
            raise AgentFailed("error", "unreachable", f"cannot connect to {url}: {error}") from None
        except (TimeoutError, httpx.TimeoutException):
            raise AgentFailed("timeout", "timeout", f"no answer within {timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise AgentFailed(
                "error", "connection_broken", f"{type(error).__name__} while talking to {url}"
            ) from None

    async def _exchange(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        async with self._client.stream(
            "POST", url, content=body, headers=dict(headers), timeout=timeout_s
        ) as response:
            if response.is_redirect:
                raise AgentFailed(
                    "error",
                    "redirect",
                    f"answered {response.status_code}; redirects are not followed",
                )
            received = bytearray()
            async for chunk in response.aiter_bytes():
                received += chunk
                if len(received) > MAX_RESPONSE_BYTES:
                    raise AgentFailed(
                        "error", "response_too_large", f"more than {MAX_RESPONSE_BYTES} bytes"
                    )
            return response.status_code, bytes(received)
