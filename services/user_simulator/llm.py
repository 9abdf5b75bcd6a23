"""A user played by a language model, through litellm.

litellm takes seconds to import and looks for the network while at it, so it is loaded only where
a model is configured, with its cost map taken from the package.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_exponential

from schemas.briefs import UserBrief
from schemas.pins import model_pin
from schemas.trajectory import Usage
from services.runtime import metrics as m
from services.runtime.ids import digest
from services.runtime.metrics import Metrics
from services.user_simulator.phrasing import UnknownFact
from services.user_simulator.prompt import RESPONSE_FORMAT, Message, Reply, messages, repair
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    History,
    UserMove,
    current_conversation,
    next_number,
)

MAX_REPAIRS = 2
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed."""
_GRACE_S = 5.0


class ModelSettings(BaseModel):
    """Which model plays the user, and how it is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1, description="As litellm names it, such as openai/gpt-x.")
    api_base: str = Field(default="", description="Base URL; empty for the provider's own.")
    api_key: SecretStr = SecretStr("")
    temperature: float = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=1000, ge=16)
    timeout_s: float = Field(default=60, gt=0, description="Of one call.")
    attempts: int = Field(default=4, ge=1, le=10, description="Calls, at most, for one answer.")
    concurrency: int = Field(default=32, ge=1, description="Calls at once in this process.")


class ModelUnusable(Exception):
    """The model gave no answer. The message never carries what the provider said."""


class LlmSimulator:
    """Plays any user, also one that is described in words only."""

    def __init__(
        self,
        settings: ModelSettings,
        litellm: Any,
        metrics: Metrics | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`litellm` is the module, from `load_litellm`."""
        self._settings = settings
        self._litellm = litellm
        self._metrics = metrics
        self._sleep = sleep
        self._slots = asyncio.Semaphore(settings.concurrency)

    def pin(self) -> str:
        return model_pin(self._settings.model, self._settings.temperature)

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        try:
            context = messages(brief, history)
        except UnknownFact as error:
            return UserMove("", invalid=f"the scenario's text cannot be said: {error}")
        number = next_number(history)
        seed = int.from_bytes(digest("user model", brief.seed, number, size=4), "big") >> 1
        usage = Usage(model=self._settings.model)
        problem = ""
        for _ in range(1 + MAX_REPAIRS):
            try:
                response = await self._answer(context, seed)
            except ModelUnusable as error:
                return UserMove("", invalid=str(error), usage=usage)
            usage = _added(usage, self._usage(response))
            content, refusal = _content(response)
            if refusal:
                return UserMove("", invalid="the user's model declined to play", usage=usage)
            reply = _parsed(content)
            if isinstance(reply, Reply):
                ending = None
                if reply.status == "give_up":
                    ending = GAVE_UP
                elif reply.status == "goal_met":
                    more = current_conversation(history) < len(brief.conversations)
                    ending = CONVERSATION_OVER if more else GOAL_MET
                return UserMove(reply.message.strip(), ending=ending, usage=usage)
            problem = reply
            self._count("malformed")
            context = [*context, *repair(content, problem)]
        return UserMove(
            "", usage=usage,
            invalid=f"the user's model keeps breaking its output contract: {problem}",
        )  # fmt: skip

    async def _answer(self, context: list[Message], seed: int) -> Any:
        """One answer of the model, tried as often as allowed.

        Raises:
            ModelUnusable: it cannot be had.
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(self._settings.attempts),
            wait=wait_exponential(multiplier=0.5, max=8),
            sleep=self._sleep,
            reraise=True,
        )
        attempts = 0
        failure = ""
        try:
            async for attempt in retrying:
                with attempt:
                    attempts += 1
                    async with self._slots:
                        response = await self._call(context, seed)
                    self._count("ok")
                    return response
        # What a provider raises is as varied as providers are.
        except Exception as error:
            failure = f"{type(error).__name__}{_status_text(error)}"
        # Outside of the handler: a provider's message may quote the key, and must not be chained.
        raise ModelUnusable(
            f"the user's model gave no answer: {failure} after {attempts} "
            f"attempt{'s' if attempts != 1 else ''}"
        )

    async def _call(self, context: list[Message], seed: int) -> Any:
        settings = self._settings
        try:
            # The provider's own timeout is per read; this one holds for the whole call.
            async with asyncio.timeout(settings.timeout_s + _GRACE_S):
                return await self._litellm.acompletion(
                    model=settings.model,
                    messages=context,
                    response_format=RESPONSE_FORMAT,
                    temperature=settings.temperature,
                    max_tokens=settings.max_tokens,
                    seed=seed,
                    timeout=settings.timeout_s,
                    api_base=settings.api_base or None,
                    api_key=settings.api_key.get_secret_value() or None,
                    drop_params=True,
                    max_retries=0,  # tenacity does it
                )
        except Exception as error:
            self._count("retry" if _may_pass(error) else "error")
            raise

    def _usage(self, response: Any) -> Usage:
        """Tokens as reported; the cost is 0 where the model's price is not known."""
        reported = getattr(response, "usage", None)
        try:
            cost = float(self._litellm.completion_cost(completion_response=response))
        # litellm raises plain Exceptions for models it has no price of.
        except Exception:
            cost = 0.0
        usage = Usage(
            model=self._settings.model,
            input_tokens=int(getattr(reported, "prompt_tokens", 0) or 0),
            output_tokens=int(getattr(reported, "completion_tokens", 0) or 0),
            cost_usd=cost,
        )
        if self._metrics is not None:
            tokens = {"input": usage.input_tokens, "output": usage.output_tokens}
            for direction, amount in tokens.items():
                self._metrics.add(m.MODEL_TOKENS, amount, role="user", direction=direction)
        return usage

    def _count(self, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.add(m.MODEL_CALLS, role="user", outcome=outcome)


def load_litellm() -> Any:
    """The litellm module, quietened. Blocks for seconds: call it in a thread, once."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    status = getattr(error, "status_code", None)
    return status in _PASSING or type(error).__name__ in ("Timeout", "APIConnectionError")


def _status_text(error: BaseException) -> str:
    status = getattr(error, "status_code", None)
    return f" (HTTP {status})" if isinstance(status, int) else ""


def _content(response: Any) -> tuple[str, bool]:
    """The answer's text, and whether the model refused to give one."""
    choices = getattr(response, "choices", None) or []
    if not choices:
        return "", False
    message = choices[0].message
    # litellm keeps what its own message type has no field for, and this is such a field.
    extra = getattr(message, "provider_specific_fields", None) or {}
    refused = bool(extra.get("refusal"))
    filtered = getattr(choices[0], "finish_reason", None) == "content_filter"
    return message.content or "", refused or filtered


def _parsed(content: str) -> Reply | str:
    """The reply, or what is wrong with it."""
    try:
        reply = Reply.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    if not reply.message.strip() and reply.status == "continue":
        return "message: empty, although status is continue"
    return reply


def _added(one: Usage, other: Usage) -> Usage:
    return replace(
        one,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_usd=one.cost_usd + other.cost_usd,
    )
