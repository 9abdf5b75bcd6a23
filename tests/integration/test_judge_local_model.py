"""Judge, user and tools played by a real language model over real HTTP: forms, not wisdom.

A model this small writes nonsense. What has to hold is that it was asked and answered, that what
it said was used or refused by the rules, and that nothing else came of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import SecretStr

from schemas.briefs import ToolSpec, UserBrief
from schemas.user import Persona
from schemas.world_setup import WorldSetup
from services.judge.core import judge_session
from services.judge.llm import LlmJudge
from services.runtime.judging import JudgeModelSettings
from services.runtime.metrics import Metrics
from services.runtime.models import Model, ModelSettings
from services.tool_proxy.answer import Call, Question
from services.tool_proxy.model_world import ModelWorld
from services.tool_proxy.session import Posting, ProxyCore
from services.user_simulator.llm import LlmSimulator
from tests.lanes import require_lane
from tests.support import local_model
from tests.support.tool_proxy import make_brief, started
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.timeout(400)

MODEL = "openai/gemma-3-270m"
KEY = SecretStr("none-is-needed")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    require_lane("model", local_model.available(), "run `make model`")
    with local_model.served() as address:
        yield address


def settings(url: str) -> ModelSettings:
    return ModelSettings(
        model=MODEL, api_base=url, api_key=KEY, temperature=0, timeout_s=150, attempts=1,
        concurrency=1,
    )  # fmt: skip


def tokens(metrics: Metrics, role: str) -> float:
    """How many tokens the model has answered with."""
    name = f'windtunnel_model_tokens_total{{direction="output",model="{MODEL}",role="{role}"}} '
    lines = metrics.render().decode().splitlines()
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@pytest.mark.req("S03", "V09", "V10")
def test_it_judges(url: str) -> None:
    metrics = Metrics()
    configured = JudgeModelSettings(judge_model=MODEL, judge_quality="")
    judge = LlmJudge(configured, metrics, api_base=url, api_key=KEY, timeout_s=150, concurrency=1)
    events = Session().user("Refund 7").call("refund", {"id": "7"}).agent("Refunded.").end()
    scored = asyncio.run(
        judge_session(events, brief(goals={"criteria": ["The agent is polite."]}), 1, judge)
    )
    score = next(one for one in scored.dimensions if one.dimension == "criteria.1")
    assert score.evaluator.startswith(f"criteria/2 {MODEL}")
    assert scored.judge == configured.judge_pin()
    assert tokens(metrics, "judge") > 0
    if score.status == "scored":
        assert score.passed in (True, False)
        assert score.citations
        assert set(score.citations) <= {event.step for event in events}
    else:
        assert (score.status, score.passed, score.citations) == ("unscored", None, ())
        assert "no usable verdict" in score.reason


@pytest.mark.req("V02", "V03")
def test_it_plays_the_user(url: str) -> None:
    metrics = Metrics()
    simulator = LlmSimulator(Model(settings(url), "user", metrics))
    told = UserBrief(
        narrative="You bought a lamp that flickers. You want your money back.",
        persona=Persona(name="plain"),
        seed=7,
    )
    move = asyncio.run(simulator.next_turn(told, ()))
    if move.invalid:
        assert move.invalid.startswith("the user's model keeps breaking its output contract")
        assert move.text == ""
    else:
        assert move.text.strip()
        assert move.ending in (None, "goal_met", "gave_up")
    assert move.usage is not None
    assert move.usage.output_tokens == tokens(metrics, "user") > 0


@pytest.mark.req("V04")
def test_it_answers_for_a_tool(url: str) -> None:
    schema: dict[str, Any] = {
        "type": "object", "properties": {"celsius": {"type": "number"}}, "required": ["celsius"],
    }  # fmt: skip
    tool = ToolSpec(name="get_weather", input_schema={"type": "object"}, output_schema=schema)
    metrics = Metrics()
    state = ProxyCore({}).start(started(make_brief(world=None, tools=[tool]).model_copy(
        update={"world": WorldSetup(answers="model", briefing="A weather service.")}
    )))  # fmt: skip
    call = Call(
        tool="get_weather", raw='{"city":"Oslo"}', arguments={"city": "Oslo"},
        posting=Posting(0, "d1"), turn=1, conversation=1,
    )  # fmt: skip
    question = Question(state.tools["get_weather"], state.starts_at)
    made = asyncio.run(ModelWorld(Model(settings(url), "world", metrics)).answer(
        state, call, question
    ))  # fmt: skip
    if made.fault:
        assert made.fault.startswith("the tools' model keeps answering what does not fit: ")
        assert made.value is None
    else:
        assert isinstance(made.value, dict)
        assert "error" in made.value or isinstance(made.value["celsius"], int | float)
    assert made.usage is not None
    assert made.usage.output_tokens == tokens(metrics, "world") > 0
