"""Calls to a session's tool proxy, for agents that are run here: the client's side of R02-R10."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import orjson

from services.dispatcher.agents.kind import Superseded
from services.runtime.agents.client import TurnRequest
from services.runtime.agents.decoding import NotJson, decode
from services.runtime.agents.exchange import AgentFailed, Answer, Exchanger
from services.runtime.ids import digest

ATTEMPTS = 4
MAX_PAUSE_S = 4.0
MAX_RETRY_AFTER_S = 60.0
_CALL_TIMEOUT_S = 300.0
_MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answered, or with which error the proxy refused the call."""

    response: Any
    error: Any = None


class ProxyCalls:
    """Calls tools and posts trace events with a turn's own token."""

    def __init__(
        self,
        exchanger: Exchanger,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        *,
        retried: Callable[[], None] = lambda: None,
    ) -> None:
        """`retried` hears of every request that is made again."""
        self._exchanger = exchanger
        self._sleep = sleep
        self._retried = retried

    async def tool(
        self, request: TurnRequest, name: str, arguments: dict[str, Any], call: int
    ) -> ToolAnswer:
        """Call a tool. `call` is the call's ordinal in this posting of the turn, from 1.

        Raises:
            LookupError: the proxy does not answer, or not as one.
            Superseded: the turn was posted again.
        """
        # Of this posting alone: another one may well make other calls.
        key = digest("call", request.run_token, call).hex()
        body = orjson.dumps(arguments)
        answer = await self._post(request, f"tools/{quote(name, safe='')}", body, key)
        value = _decoded(answer)
        if answer.ok and isinstance(value, dict) and "response" in value:
            return ToolAnswer(value["response"])
        if answer.ok or not isinstance(value, dict) or "error" not in value:
            raise LookupError(f"the tool proxy answered {answer.status} without an envelope")
        return ToolAnswer(None, value["error"])

    async def trace(self, request: TurnRequest, events: list[dict[str, Any]]) -> str | None:
        """Post a batch of trace events; the code of the refusal if there was one.

        Raises: as `tool` does.
        """
        body = orjson.dumps({"events": events})
        answer = await self._post(request, "trace", body, None)
        if answer.ok:
            return None
        return _code(_decoded(answer)) or f"http_{answer.status}"

    async def _post(self, request: TurnRequest, path: str, body: bytes, key: str | None) -> Answer:
        headers = {
            "Authorization": f"Bearer {request.run_token}",
            "Content-Type": "application/json",
            **({"Idempotency-Key": key} if key else {}),
        }
        pauses = random.Random(f"{request.idempotency_key}:{path}:{key}")
        problem = ""
        for attempt in range(1, ATTEMPTS + 1):
            pause_s: float | None = min(pauses.uniform(0.5, 1.25) * 2 ** (attempt - 1), MAX_PAUSE_S)
            answer = None
            try:
                answer = await self._exchanger.exchange(
                    "POST",
                    f"{request.proxy_url}/{path}",
                    headers=headers,
                    body=body,
                    timeout_s=_CALL_TIMEOUT_S,
                    max_bytes=_MAX_BYTES,
                    keep_alive=True,
                )
            except AgentFailed as error:
                problem = error.code
            else:
                value = _decoded(answer)
                problem = _code(value) or f"http_{answer.status}"
                if problem == "turn_superseded":
                    raise Superseded(problem)
                if answer.status == 401:
                    raise LookupError("the tool proxy does not accept the run token")
                if answer.ok or not _retryable(value):
                    return answer
                pause_s = _pause(answer, pause_s)
            if attempt == ATTEMPTS or pause_s is None:
                break
            self._retried()
            await self._sleep(pause_s)
        if answer is not None and problem == "rate_limited":
            return answer
        raise LookupError(f"the tool proxy could not be used: {problem}")


def _decoded(answer: Answer) -> Any:
    try:
        return decode(answer.body).value
    except NotJson:
        return None


def _code(value: Any) -> str:
    error = value.get("error") if isinstance(value, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else ""


def _retryable(value: Any) -> bool:
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and error.get("retryable") is True


def _pause(answer: Answer, pause_s: float | None) -> float | None:
    """How long to wait: at least what Retry-After says; None if that is too long."""
    said = answer.headers.get("retry-after", "")
    if not said.isdecimal():
        return pause_s
    after_s = float(said)
    if not math.isfinite(after_s) or after_s > MAX_RETRY_AFTER_S:
        return None
    return max(after_s, pause_s or 0.0)
