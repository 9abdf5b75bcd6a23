"""Language models, asked through litellm: the one client of every part that a model plays.

What it promises whoever asks: a bound on each call and on calls at once, retries of what may pass,
tokens and cost of every answer, and errors that name type and status alone. A provider's own text
can quote keys and prompts, so it goes into no message and is chained to no exception.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
)

from schemas.trajectory import Usage
from services.runtime import metrics as m
from services.runtime.metrics import Metrics
from services.runtime.model_calls import noting
from services.runtime.slots import Slots

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed."""
_GRACE_S = 5.0
_RETRY_AFTER_MAX_S = 30.0
"""The longest that a provider's Retry-After is heeded; whoever asks has a bound of its own."""
_backoff = wait_exponential(multiplier=0.5, max=8)


class ModelUnusable(Exception):
    """The model gave no answer. Carries what went wrong, and nothing that the provider said."""

    def __init__(self, error: str, status: int | None, attempts: int) -> None:
        """`error` is the name of the last call's exception, `status` its HTTP status if any."""
        http = f" (HTTP {status})" if status is not None else ""
        super().__init__(f"{error}{http} after {attempts} attempt{'s' if attempts != 1 else ''}")
        self.error = error
        self.status = status


class ModelSettings(BaseModel):
    """Which model it is, and how it is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(min_length=1, description="As litellm names it, such as openai/gpt-x.")
    api_base: str = Field(default="", description="Base URL; empty for the provider's own.")
    api_key: SecretStr = SecretStr("")
    temperature: float = Field(ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=16, description="None: the model's own bound.")
    timeout_s: float = Field(gt=0, description="Of one call.")
    attempts: int = Field(ge=1, le=10, description="Calls, at most, for one answer.")
    concurrency: int = Field(ge=1, description="Calls at once in this process.")
    drop_unsupported: bool = Field(
        default=False, description="Leave out parameters that the model does not take, or fail."
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered. `text` is empty where it said nothing."""

    text: str
    refused: bool
    usage: Usage
    model: str
    """As the provider names it; empty if it does not."""
    truncated: bool = False
    """Whether it was cut off at a bound on its length."""


class Model:
    """A model in one role. Safe for any number of tasks of one event loop."""

    def __init__(
        self,
        settings: ModelSettings,
        role: str,
        metrics: Metrics,
        *,
        count_calls: bool = True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`role` is a metrics label. With `count_calls` every call's outcome is counted: ok, retry
        or error; without, the caller counts what it makes of the answers, with `count`.
        """
        self.settings = settings
        self._role = role
        self._metrics = metrics
        self._count_calls = count_calls
        self._sleep = sleep
        self._slots = Slots(settings.concurrency)
        self._slots.measured(metrics, "model_calls")
        self._litellm: Any = None
        asked = {"role": role, "model": settings.model}
        metrics.zero(m.MODEL_COST, **asked)
        for direction in ("input", "output"):
            metrics.zero(m.MODEL_TOKENS, direction=direction, **asked)

    async def prepare(self) -> None:
        """Load the library now, so that no answer's time goes into it."""
        self._litellm = await asyncio.to_thread(load_litellm)

    async def ask(
        self,
        messages: list[dict[str, str]],
        response_format: dict[str, Any],
        seed: int | None = None,
        temperature: float | None = None,
    ) -> Answer:
        """The model's answer, tried as often as the settings allow.

        `seed` is a wish: models that take none are asked without. `temperature`: for this call,
        instead of that of the settings.

        Raises:
            ModelUnusable: it cannot be had.
        """
        if self._litellm is None:
            await self.prepare()
        retrying = AsyncRetrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_after_attempt(self.settings.attempts),
            wait=_wait_s,
            sleep=self._sleep,
            reraise=True,
        )
        attempts = 0
        try:
            async for attempt in retrying:
                with attempt:
                    attempts += 1
                    if attempts > 1:
                        self._metrics.add(m.RETRIES, what="model_call")
                    async with self._slots:
                        answer = await self._call(messages, response_format, seed, temperature)
        # What a provider raises is as varied as providers are.
        except Exception as error:
            unusable = ModelUnusable(type(error).__name__, _status(error), attempts)
        else:
            return answer
        # Outside of the handler, so that the provider's exception is not chained.
        raise unusable

    def count(self, outcome: str) -> None:
        """Count something that became of this role's calls."""
        self._metrics.add(m.MODEL_CALLS, role=self._role, outcome=outcome)

    async def _call(
        self,
        messages: list[dict[str, str]],
        response_format: dict[str, Any],
        seed: int | None,
        temperature: float | None,
    ) -> Answer:
        settings = self.settings
        with noting(settings.model, messages, seed, temperature) as answered:
            try:
                # The provider's own timeout is per read; this one holds for the whole call.
                async with asyncio.timeout(settings.timeout_s + _GRACE_S):
                    response = await self._litellm.acompletion(
                        model=settings.model,
                        messages=messages,
                        response_format=response_format,
                        temperature=settings.temperature if temperature is None else temperature,
                        max_tokens=settings.max_tokens,
                        seed=seed if self._takes_seeds else None,
                        timeout=settings.timeout_s,
                        api_base=settings.api_base or None,
                        api_key=settings.api_key.get_secret_value() or None,
                        drop_params=settings.drop_unsupported,
                        max_retries=0,  # tenacity does it
                    )
            except Exception as error:
                self._called("retry" if _may_pass(error) else "error")
                raise
            self._called("ok")
            answer = self._answer(response)
            answered(answer.usage, answer.model)
        return answer

    @cached_property
    def _takes_seeds(self) -> bool:
        return "seed" in (self._litellm.get_supported_openai_params(self.settings.model) or ())

    def _called(self, outcome: str) -> None:
        if self._count_calls:
            self.count(outcome)

    def _answer(self, response: Any) -> Answer:
        usage = self._usage(response)
        named = str(getattr(response, "model", None) or "")
        choices = getattr(response, "choices", None) or []
        if not choices:
            return Answer("", refused=False, usage=usage, model=named)
        message = choices[0].message
        # litellm keeps what its own message type has no field for, and this is such a field.
        extra = getattr(message, "provider_specific_fields", None) or {}
        refused = bool(getattr(message, "refusal", None) or extra.get("refusal"))
        finish = getattr(choices[0], "finish_reason", None)
        return Answer(
            message.content or "",
            refused=refused or finish == "content_filter",
            usage=usage,
            model=named,
            truncated=finish == "length",
        )

    def _usage(self, response: Any) -> Usage:
        """Tokens as reported; the cost is 0 where the model's price is not known."""
        reported = getattr(response, "usage", None)
        try:
            cost = float(self._litellm.completion_cost(completion_response=response))
        # litellm raises plain Exceptions for models it has no price of.
        except Exception:
            cost = 0.0
        usage = Usage(
            model=self.settings.model,
            input_tokens=int(getattr(reported, "prompt_tokens", 0) or 0),
            output_tokens=int(getattr(reported, "completion_tokens", 0) or 0),
            cost_usd=cost,
        )
        tokens = {"input": usage.input_tokens, "output": usage.output_tokens}
        asked = {"role": self._role, "model": self.settings.model}
        for direction, amount in tokens.items():
            self._metrics.add(m.MODEL_TOKENS, amount, direction=direction, **asked)
        self._metrics.add(m.MODEL_COST, cost, **asked)
        return usage


@cache
def load_litellm() -> Any:
    """The litellm module, quietened. Blocks for seconds the first time: call it in a thread."""
    # Otherwise importing it fetches a price list from the network.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    litellm: Any = importlib.import_module("litellm")
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return litellm


# litellm's exceptions go by name and status: it may not be imported for their types.
def _may_pass(error: BaseException) -> bool:
    if _timed_out(error) or isinstance(error, ConnectionError):
        return True
    return _status(error) in _PASSING or type(error).__name__ == "APIConnectionError"


def _wait_s(state: RetryCallState) -> float:
    """Our own back-off, or what the provider asks for if that is longer."""
    error = state.outcome.exception() if state.outcome else None
    return max(_backoff(state), min(_retry_after_s(error), _RETRY_AFTER_MAX_S))


def _retry_after_s(error: BaseException | None) -> float:
    """Retry-After in seconds; 0 where there is none, or a date."""
    # litellm makes a response of its own for some errors, and keeps the provider's headers apart.
    of_response = getattr(getattr(error, "response", None), "headers", None)
    headers = getattr(error, "litellm_response_headers", None) or of_response or {}
    try:
        seconds = float(headers.get("retry-after") or 0)
    except ValueError:
        return 0.0
    return seconds if seconds >= 0 else 0.0  # a NaN is no wish either


def _timed_out(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or type(error).__name__ == "Timeout"


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
