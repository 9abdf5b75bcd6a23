"""Agents that are a model with a prompt, behind an OpenAI-compatible chat endpoint.

The tool loop, which such an agent has elsewhere, runs here: the model's calls go through the
session's tool proxy like anybody's, one after another in the order given, and what comes back,
refusals included, is for the model to see.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson

from schemas.agent_response import ParsedResponse, ResponseRefused, parse_response
from schemas.model import TOOL_NAME
from schemas.registry import AgentRegistration, ChatSettings
from services.dispatcher.agents import chat_wire
from services.dispatcher.agents.prices import Prices
from services.dispatcher.agents.proxy_calls import ProxyCalls
from services.runtime.agents.client import TurnRequest, turn_timeout_s
from services.runtime.agents.connection import check_connection
from services.runtime.agents.decoding import NotJson, decode
from services.runtime.agents.exchange import AgentFailed, Answer, Exchanger, below
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import auth_headers
from services.runtime.clock import Clock

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed."""
_BROKEN = frozenset({"unreachable", "connection_broken"})
_PAUSES_S = (0.5, 2.0)
_MAX_RETRY_AFTER_S = 30.0
_TOOL_NAME = re.compile(TOOL_NAME)


class ChatAgent:
    """The agent kind `openai`."""

    def __init__(
        self,
        exchanger: Exchanger,
        proxy: ProxyCalls,
        clock: Clock,
        *,
        prices: Prices | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        retried: Callable[[], None] = lambda: None,
    ) -> None:
        """`retried` hears of every question that is asked again."""
        self._exchanger = exchanger
        self._proxy = proxy
        self._clock = clock
        self._prices = prices or Prices()
        self._sleep = sleep
        self._retried = retried

    async def close(self) -> None:
        """Nothing is held."""

    async def check(self, agent: AgentRegistration, timeout_s: float) -> None:
        await check_connection(agent, timeout_s, self._exchanger)
        await self._prices.prepare()

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        timeout_s = turn_timeout_s(agent)
        try:
            async with asyncio.timeout(timeout_s):
                return await _Turn(self, agent, request).run()
        except TimeoutError:
            raise AgentFailed(
                "timeout", "timeout", f"no final answer within {timeout_s:g} s"
            ) from None

    async def _complete(
        self,
        agent: AgentRegistration,
        request: TurnRequest,
        messages: list[dict[str, Any]],
        round_number: int,
        redactor: Redactor,
    ) -> chat_wire.Completion:
        """One answer of the model, asked again after what may pass."""
        body = chat_wire.payload(agent, messages)
        headers = {
            "Content-Type": "application/json", **request.trace_headers, **auth_headers(agent)
        }  # fmt: skip
        url = below(agent.endpoint, "chat/completions")
        for pause_s in (*_PAUSES_S, None):
            answer: Answer | None = None
            try:
                answer = await self._exchanger.exchange(
                    "POST",
                    url,
                    headers=headers,
                    body=body,
                    timeout_s=turn_timeout_s(agent),
                    keep_alive=True,
                )
            except AgentFailed as error:
                if pause_s is None or error.code not in _BROKEN:
                    raise
            if answer is not None and (answer.status not in _PASSING or pause_s is None):
                return _completion(answer, round_number, redactor)
            self._retried()
            await self._sleep(_pause_s(answer, pause_s or 0.0))
        raise AssertionError("the last attempt returns or raises")


class _Turn:
    """One turn's conversation with the model."""

    def __init__(self, kind: ChatAgent, agent: AgentRegistration, request: TurnRequest) -> None:
        self._kind, self._agent, self._request = kind, agent, request
        self._settings = agent.chat or ChatSettings(model="")
        self._redactor = Redactor([request.run_token, *auth_headers(agent).values()])
        self._started = kind._clock.monotonic()
        self._tokens: dict[str, int] = {}
        self._calls = 0
        self._warnings: dict[str, None] = {}

    async def run(self) -> ParsedResponse:
        messages = chat_wire.opening(self._settings, self._request.body)
        first = len(messages) - 1  # the user's: what was before is in the log already
        for round_number in range(1, self._settings.max_rounds + 1):
            answer = await self._kind._complete(
                self._agent, self._request, messages, round_number, self._redactor
            )
            self._count(answer)
            messages.append(chat_wire.assistant_message(answer))
            if not answer.calls:
                return await self._answered(answer, messages[first:], round_number)
            if round_number < self._settings.max_rounds:
                for call in answer.calls:
                    content = await self._tool(call)
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        raise AgentFailed(
            "error",
            "tool_loop_limit",
            f"still calling tools in round {self._settings.max_rounds}, which is the last",
        )

    async def _tool(self, call: chat_wire.ToolCall) -> str:
        """What the model is told about its call."""
        if call.arguments is None:
            return _error("arguments_invalid", "The arguments are not a JSON object.")
        if not _TOOL_NAME.fullmatch(call.name):
            return _error("tool_unknown", "There is no tool of this name.")
        self._calls += 1
        answer = await self._kind._proxy.tool(self._request, call.name, call.arguments, self._calls)
        if answer.error is not None:
            return orjson.dumps({"error": answer.error}).decode()
        response = answer.response
        return response if isinstance(response, str) else orjson.dumps(response).decode()

    async def _answered(
        self, answer: chat_wire.Completion, messages: list[dict[str, Any]], rounds: int
    ) -> ParsedResponse:
        model = answer.model or self._settings.model
        metadata: dict[str, Any] = {"model": model, **self._tokens, "rounds": rounds}
        cost = await self._kind._prices.cost_usd(
            (model, self._settings.model),
            self._tokens.get("total_input_tokens", 0),
            self._tokens.get("total_output_tokens", 0),
        )
        if cost is not None:
            metadata["cost_usd"] = cost
        if answer.refused:
            metadata["refusal"] = True
            self._warnings["the model refused; its refusal is the answer"] = None
        if answer.cut_off:
            self._warnings["the answer was cut off at the model's token limit"] = None
        elapsed_s = self._kind._clock.monotonic() - self._started
        metadata["agent_runtime_ms"] = round(elapsed_s * 1000)
        try:
            parsed = parse_response(
                {"final_response": answer.text, "messages": messages, "metadata": metadata},
                require_rich_transcript=self._agent.require_rich_transcript,
            )
        except ResponseRefused as error:
            raise AgentFailed("error", error.code, str(error)) from None
        warnings = (*self._warnings, *parsed.soft_warnings)
        return replace(parsed, soft_warnings=warnings)

    def _count(self, answer: chat_wire.Completion) -> None:
        for name, count in (
            ("total_input_tokens", answer.input_tokens),
            ("total_output_tokens", answer.output_tokens),
        ):
            if count is None:
                self._warnings["the model's endpoint did not report all tokens"] = None
            else:
                self._tokens[name] = self._tokens.get(name, 0) + count


def _completion(answer: Answer, round_number: int, redactor: Redactor) -> chat_wire.Completion:
    quoted = redactor.quote(answer.body)
    if not answer.ok:
        raise AgentFailed("error", "http_status", f"answered {answer.status}: {quoted}")
    try:
        return chat_wire.completion(decode(answer.body).value, round_number)
    except NotJson as error:
        detail = f"{error}; the answer begins: {quoted}"
        raise AgentFailed("error", "response_not_json", detail) from None
    except AgentFailed as error:
        if error.code != "model_response_malformed":
            raise
        detail = f"{error.detail}; the answer begins: {quoted}"
        raise AgentFailed("error", error.code, detail) from None


def _pause_s(answer: Answer | None, pause_s: float) -> float:
    said = answer.headers.get("retry-after", "") if answer is not None else ""
    return max(pause_s, min(float(said), _MAX_RETRY_AFTER_S)) if said.isdecimal() else pause_s


def _error(code: str, message: str) -> str:
    return orjson.dumps({"error": {"code": code, "message": message}}).decode()
