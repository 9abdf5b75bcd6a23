"""D07: what a run's judge asks its model is in the session's trace and in the judge's metrics."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from schemas.runs import RunRequest
from services.runtime import metrics as m
from services.runtime import telemetry_names as n
from services.runtime.telemetry_context import span_id, trace_id
from tests.support import scripted_model
from tests.support.running_stack import RunningStack, running_stack
from tests.support.scripted_model import KEY, NAME, says
from tests.support.telemetry import collector

SCENARIO = "happy-order-status"
MODEL = "openai/judge-1"
RATED = {"overall_quality": {"rationale": "So.", "rating": 4, "citations": ["a1"]}}


@pytest.mark.req("D07")
@pytest.mark.timeout(240)
def test_a_call_of_the_judges_model_has_a_span_and_is_counted(
    stack: RunningStack, tmp_path: Path
) -> None:
    with scripted_model.provider() as provider, collector() as ours:
        # The first answer cannot be used, so that there is a second call.
        provider.replies = [says("no JSON"), says(json.dumps(RATED))]
        environ = {
            "WINDTUNNEL_OTLP_ENDPOINT": ours.url,
            "WINDTUNNEL_JUDGE_MODEL": MODEL,
            "WINDTUNNEL_JUDGE_MODEL_API_BASE": provider.url,
            "WINDTUNNEL_JUDGE_MODEL_API_KEY": KEY,
            "WINDTUNNEL_JUDGE_QUALITY": "overall_quality",
        }
        with running_stack(tmp_path, environ=environ) as judged:
            judged.publish_suite()
            judged.register_agent("good", stack.agent_urls["good"])
            request = RunRequest(
                run_id="rated", suite="order-support", agent_id="good", baseline="none",
                trials=1, scenarios=(SCENARIO,),
            )  # fmt: skip
            assert judged.run(request).state == "aggregated"
            score = judged.scores("rated")[SCENARIO, 0]
            steps = {event.step for event in judged.trajectories("rated")[SCENARIO, 0]}
            metrics = httpx.get(f"{judged.endpoints['judge-0']}/metrics").text
            logs = judged.logs()
        spans = ours.of(f"{trace_id(score.session_id):032x}")
    (quality,) = (one for one in score.dimensions if one.dimension == "overall_quality")
    assert (quality.status, quality.value) == ("scored", 0.75)

    judging = f"{span_id(f'{score.session_id}:score'):016x}"
    calls = [span for span in spans.values() if span.parent_id == judging]
    assert len(calls) == len(provider.requests) == 2
    for call in calls:
        assert call.name == f"chat {MODEL}"
        assert call.attributes[n.OPERATION.name] == "chat"
        assert call.attributes[n.RESPONSE_MODEL.name] == NAME
        assert call.attributes[n.INPUT_TOKENS.name] == 11
        known = {one.name for one in n.CATALOGUE if n.JUDGE_CALL in one.spans and not one.content}
        assert set(call.attributes) <= known
    assert spans[judging].attributes[n.INPUT_TOKENS.name] == 22
    assert len(spans) > len(steps)

    series = f'{{direction="input",model="{MODEL}",role="judge"}}'
    assert f"{m.MODEL_TOKENS.name}{series} 22.0" in metrics
    assert f"{m.MODEL_COST.name}{{" in metrics
    assert KEY not in metrics + logs + repr(ours.spans)
