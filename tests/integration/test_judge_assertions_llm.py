"""Generative responses scored over real HTTP, against a scripted OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from schemas.scores import DimensionScore
from services.judge.core import judge_session
from services.judge.llm import LlmJudge
from services.runtime.judging import JudgeModelSettings
from services.runtime.metrics import Metrics
from tests.support import scripted_model
from tests.support.assertions import states, uttered
from tests.support.scripted_model import KEY, Provider, fails, says
from tests.support.trajectories import brief

pytestmark = [pytest.mark.req("S05"), pytest.mark.timeout(120)]

SAID = uttered(utter_source="rag", text="It is a day late.")
RELEVANT = {"generative_response_is_relevant": {"utter_source": "rag", "threshold": 0.8}}
GROUNDED = {
    "generative_response_is_grounded": {
        "utter_source": "rag", "threshold": 0.5, "ground_truth": "It is a day late.",
    }
}  # fmt: skip


@pytest.fixture
def provider() -> Iterator[Provider]:
    with scripted_model.provider() as listening:
        yield listening


def judged(provider: Provider, entry: Any, timeout_s: float = 60) -> tuple[DimensionScore, str]:
    metrics = Metrics()
    settings = JudgeModelSettings(judge_model="openai/judge-1", judge_quality=())
    model = LlmJudge(
        settings, metrics, api_base=provider.url, api_key=SecretStr(KEY), timeout_s=timeout_s
    )
    goals = {"assertions": [entry]}
    result = asyncio.run(judge_session(states(SAID).end(), brief(goals=goals), 1, model))
    assert KEY not in repr(result)
    gate = next(one for one in result.dimensions if one.dimension == "assertions")
    return gate, metrics.render().decode()


def rating(number: int) -> str:
    return json.dumps({"rationale": "It is.", "rating": number})


def statements(*supported: bool) -> str:
    return json.dumps({"statements": [{"statement": "s", "supported": s} for s in supported]})


@pytest.mark.parametrize(
    ("entry", "answer", "expected"),
    [
        (RELEVANT, rating(4), True),
        (RELEVANT, rating(3), False),
        (GROUNDED, statements(True, False), True),
        (GROUNDED, statements(True, False, False), False),
    ],
)
def test_a_score_from_a_pinned_model(
    provider: Provider, entry: Any, answer: str, expected: bool
) -> None:
    provider.replies = [says(answer)]
    gate, metrics = judged(provider, entry)
    assert (gate.status, gate.passed, gate.citations) == ("scored", expected, ("x1",))
    assert gate.evaluator == "assertions/1 openai/judge-1 (judge-1-2026-01-01)"
    assert 'windtunnel_model_calls_total{outcome="ok",role="judge"} 1.0' in metrics
    request = provider.requests[0]
    assert request["temperature"] == 0
    assert request["response_format"]["json_schema"]["strict"] is True


def test_an_unusable_answer_gets_one_chance_of_repair(provider: Provider) -> None:
    provider.replies = [says("five"), says(rating(5))]
    gate, _ = judged(provider, RELEVANT)
    assert (gate.passed, len(provider.requests)) == (True, 2)
    assert "cannot be used" in provider.requests[1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (says("five"), "no usable verdict"),
        (says(None, refusal="No."), "refused"),
        (says(statements()), "no usable verdict"),
        (fails(401), "could not be asked (AuthenticationError, status 401)"),
    ],
)
def test_without_a_usable_answer_it_is_unscored(provider: Provider, reply: Any, words: str) -> None:
    provider.replies = [reply]
    gate, _ = judged(provider, RELEVANT)
    assert (gate.status, gate.passed) == ("unscored", None)
    assert words in gate.reason


def test_a_slow_model_is_given_up(provider: Provider) -> None:
    provider.replies, provider.delay_s = [says(rating(5))], 1.0
    gate, metrics = judged(provider, RELEVANT, timeout_s=0.3)
    assert (gate.status, gate.passed) == ("unscored", None)
    assert "over 0.3 s" in gate.reason
    assert 'outcome="timeout",role="judge"} 1.0' in metrics
