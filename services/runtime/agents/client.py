"""The wire contract with an HTTP agent: one POST a turn, bounded in every way (R11-R16)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schemas.agent_response import ParsedResponse, ResponseRefused, parse_response
from schemas.registry import AgentRegistration
from services.runtime.agents.connection import check_connection
from services.runtime.agents.decoding import NotJson, decode
from services.runtime.agents.exchange import MAX_RESPONSE_BYTES, AgentFailed, Exchanger
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import auth_headers
from services.runtime.telemetry_context import HEADER

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "MAX_RESPONSE_BYTES",
    "MAX_TIMEOUT_S",
    "AgentClient",
    "AgentFailed",
    "TurnRequest",
    "read_answer",
    "turn_timeout_s",
]

DEFAULT_TIMEOUT_S = 300
MAX_TIMEOUT_S = 1800
_READ_AT_ONCE_BYTES = 64 * 1024
"""Larger answers are read in a thread: the loop has other turns to serve meanwhile."""
_MAX_SHOWN = 40
_IDENTIFYING = ("task_id", "run_id", "run_token_jti")


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """One turn, as it goes over the wire. `traceparent`: the W3C header's value; empty for none."""

    body: Mapping[str, Any]
    run_token: str
    proxy_url: str
    run_id: int
    task_id: int
    jti: str
    idempotency_key: str
    traceparent: str = ""

    @property
    def trace_headers(self) -> Mapping[str, str]:
        """What tells whoever works on the turn which trace it belongs to, if there is one."""
        return {HEADER: self.traceparent} if self.traceparent else {}


def turn_timeout_s(agent: AgentRegistration) -> int:
    """How long a turn of the agent may take, slow bytes included (R16)."""
    return min(agent.run_timeout_s or DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S)


class AgentClient:
    """Posts turns to agents that speak the runtime contract. The agent kind `http`."""

    def __init__(self, max_connections: int, exchanger: Exchanger | None = None) -> None:
        """An `exchanger` that is given is closed by whoever gave it."""
        self._own = exchanger is None
        self._exchanger = exchanger or Exchanger(max_connections)

    async def close(self) -> None:
        if self._own:
            await self._exchanger.close()

    async def check(self, agent: AgentRegistration, timeout_s: float) -> None:
        """Post exactly `{"ping": true}` with the configured auth; returns when it is answered 2xx.

        Raises:
            AgentFailed, SecretMissing
        """
        await check_connection(agent, timeout_s, self._exchanger)

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        """Post one turn and parse the answer.

        Raises:
            AgentFailed: no usable answer within the agent's timeout.
            SecretMissing: the auth value cannot be resolved.
        """
        auth = auth_headers(agent)
        redactor = Redactor([request.run_token, *auth.values()])
        headers = {
            "Content-Type": "application/json",
            "X-Pipelines-Run-Token": request.run_token,
            "X-Pipelines-Odyssey-Proxy-Url": request.proxy_url,
            "X-Pipelines-Run-Id": str(request.run_id),
            "X-Pipelines-Task-Id": str(request.task_id),
            "X-Pipelines-Run-Token-Jti": request.jti,
            "Idempotency-Key": request.idempotency_key,
            **request.trace_headers,
            **auth,
        }
        answer = await self._exchanger.exchange(
            "POST",
            agent.endpoint,
            body=orjson.dumps(request.body),
            headers=headers,
            timeout_s=turn_timeout_s(agent),
        )
        if not answer.ok:
            raise AgentFailed(
                "error", "http_status", f"answered {answer.status}: {redactor.quote(answer.body)}"
            )
        try:
            if len(answer.body) > _READ_AT_ONCE_BYTES:
                return await asyncio.to_thread(read_answer, agent, request, answer.body)
            return read_answer(agent, request, answer.body)
        except NotJson as error:
            detail = f"{error}; the answer begins: {redactor.quote(answer.body)}"
            raise AgentFailed("error", "response_not_json", detail) from None
        except ResponseRefused as error:
            raise AgentFailed("error", error.code, redactor.text(str(error))) from None


def read_answer(agent: AgentRegistration, request: TurnRequest, body: bytes) -> ParsedResponse:
    """What an agent's answer says, with a soft warning of everything that was mended in it.

    Raises:
        NotJson, ResponseRefused
    """
    decoded = decode(body)
    parsed = parse_response(decoded.value, require_rich_transcript=agent.require_rich_transcript)
    notes = (*decoded.notes, *_strangers(decoded.value, request))
    return replace(parsed, soft_warnings=(*notes, *parsed.soft_warnings)) if notes else parsed


def _strangers(answer: Mapping[str, Any], request: TurnRequest) -> list[str]:
    """Signs that the agent has answered another task.

    The contract has no such echo, so a key of that name may be the agent's own; but where it has
    mixed up its sessions, this is the trace that it leaves.
    """
    found = []
    for name in _IDENTIFYING:
        said, asked = answer.get(name), request.body.get(name)
        if isinstance(said, str | int) and asked is not None and str(said) != str(asked):
            # Nothing is cut: half a secret could no longer be told to be one.
            shown = repr(str(said)) if len(str(said)) <= _MAX_SHOWN else "something else"
            found.append(f"the answer names {name} {shown}; this turn's is {asked!r}")
    return found
