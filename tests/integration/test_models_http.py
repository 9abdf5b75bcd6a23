"""The client of language models over real HTTP: waits, retries, wishes and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from services.runtime.metrics import Metrics
from services.runtime.models import Answer, Model, ModelSettings, ModelUnusable
from tests.support import scripted_model
from tests.support.scripted_model import KEY, Provider, fails, says

pytestmark = [pytest.mark.req("S03", "V10"), pytest.mark.timeout(120)]


@pytest.fixture
def provider() -> Iterator[Provider]:
    with scripted_model.provider() as listening:
        yield listening


class Asked:
    """One question to the provider, and how long was waited before each retry."""

    def __init__(self, provider: Provider, **settings: Any) -> None:
        self.slept: list[float] = []
        self.metrics = Metrics()

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        values = {"temperature": 0.3, "timeout_s": 10, "attempts": 3, "concurrency": 2, **settings}
        configured = ModelSettings(
            model="openai/judge-1", api_base=provider.url, api_key=SecretStr(KEY), **values
        )
        self.model = Model(configured, "judge", self.metrics, sleep=sleep)

    def ask(self, **wishes: Any) -> Answer:
        messages = [{"role": "user", "content": "?"}]
        return asyncio.run(self.model.ask(messages, {"type": "json_object"}, **wishes))


@pytest.mark.parametrize(
    ("header", "waits"),
    [("7", 7.0), ("0", 0.5), ("900", 30.0), ("-3", 0.5), ("nan", 0.5), ("soon", 0.5),
     ("Wed, 21 Oct 2026 07:28:00 GMT", 0.5)],
)  # fmt: skip
def test_a_rate_limit_says_how_long_to_wait_within_a_bound(
    provider: Provider, header: str, waits: float
) -> None:
    provider.replies = [fails(429, Retry_After=header), says("yes")]
    asked = Asked(provider)
    assert asked.ask().text == "yes"
    assert asked.slept == [waits]


def test_without_a_wish_of_the_provider_the_waits_grow(provider: Provider) -> None:
    provider.replies = [fails(503)]
    asked = Asked(provider, attempts=6)
    with pytest.raises(ModelUnusable, match=r"HTTP 503.*6 attempts") as caught:
        asked.ask()
    assert asked.slept == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    counted = asked.metrics.render().decode()
    assert 'windtunnel_model_calls_total{outcome="retry",role="judge"} 6.0' in counted


def test_temperature_and_seed_of_one_call_are_sent(provider: Provider) -> None:
    provider.replies = [says("yes")]
    asked = Asked(provider)
    asked.ask()
    asked.ask(seed=11, temperature=0.9)
    plain, wished = provider.requests
    assert (plain["temperature"], "seed" in plain) == (0.3, False)
    assert (wished["temperature"], wished["seed"]) == (0.9, 11)


def test_an_answer_that_was_cut_off_is_marked(provider: Provider) -> None:
    provider.replies = [says("ye", finish="length"), says("yes")]
    asked = Asked(provider)
    assert [asked.ask().truncated, asked.ask().truncated] == [True, False]
