"""D07: the judge's span of a session, and below it those of its model's calls for that session."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import SecretStr

from schemas.loader import parse_suite
from schemas.topics import SCORES
from services.judge.briefs import Briefs
from services.judge.llm import LlmJudge
from services.judge.service import Judge, JudgeSettings
from services.judge.sessions import SCORE, JudgedSession
from services.runtime import telemetry_names as n
from services.runtime.telemetry_context import span_id, trace_id
from services.runtime.telemetry_span import Span
from tests.support import scripted_model
from tests.support.scripted_model import KEY, NAME, fails, says, verdict
from tests.support.services import OfflineService
from tests.support.telemetry import Kept, telemetry
from tests.support.trajectories import Session

pytestmark = [pytest.mark.req("D07"), pytest.mark.timeout(120)]
SUITE = parse_suite(
    "name: suite\nversion: '1'\nowner: me\n",
    {
        "one.yaml": "scenario: {name: One, goals: {criteria: [It is honest.]}}",
        "three.yaml": "scenario: {name: T, goals: {criteria: [It is honest., It asks., It ends.]}}",
    },
)


def judged_with(
    url: str, *scenarios: str, timeout_s: float = 60
) -> tuple[list[Span], OfflineService]:
    """The spans of the judging of a session of each scenario, all at once."""
    sink = Kept()

    async def main() -> OfflineService:
        settings = JudgeSettings(judge_model="openai/judge-1", judge_quality=())
        service = OfflineService(settings)
        llm = LlmJudge(
            settings, service.metrics, api_base=url, api_key=SecretStr(KEY),
            timeout_s=timeout_s, concurrency=8,
        )  # fmt: skip
        await llm.prepare()
        briefs = Briefs({SUITE.suite_hash: SUITE}.get, wait_s=0)
        judge = Judge(service, briefs, llm, telemetry(sink))
        ended = [
            Session(session_id=name, scenario_id=name, suite_hash=SUITE.suite_hash)
            .user().agent("Refunded.").end()
            for name in scenarios
        ]  # fmt: skip
        await asyncio.gather(
            *(judge.act(JudgedSession(events[0].session_id, events), SCORE) for events in ended)
        )
        return service

    service = asyncio.run(main())
    assert KEY not in repr(sink.spans)
    return sink.spans, service


def test_tokens_are_those_of_the_session() -> None:
    with scripted_model.provider() as provider:
        provider.replies = [says(verdict())]
        found, service = judged_with(provider.url, "one", "three")
    spans = {
        str(span.attributes[n.SCENARIO.name]): span
        for span in found
        if span.attributes[n.KIND.name] == n.JUDGE
    }
    # Each answer is 11 tokens read and 7 written.
    used = {
        name: (span.attributes[n.INPUT_TOKENS.name], span.attributes[n.OUTPUT_TOKENS.name])
        for name, span in spans.items()
    }
    assert used == {"one": (11, 7), "three": (33, 21)}
    for name, span in spans.items():
        assert span.attributes[n.REQUEST_MODEL.name] == "openai/judge-1"
        assert (span.trace_id, span.span_id) == (trace_id(name), span_id(f"{name}:score"))
        assert span.parent_id == span_id(f"{name}:start")
        judged = [event.attributes[n.EVALUATION_NAME.name] for event in span.events]
        calls = [span for span in found if span.parent_id == span_id(f"{name}:score")]
        assert len({call.span_id for call in calls}) == used[name][0] // 11
        for call in calls:
            assert (call.name, call.trace_id) == ("chat openai/judge-1", trace_id(name))
            assert call.attributes[n.RESPONSE_MODEL.name] == NAME
            assert (call.attributes[n.INPUT_TOKENS.name], call.error) == (11, "")
            assert span.start_ms <= call.start_ms <= call.end_ms <= span.end_ms
        (scored,) = (
            one.record for one in service.published if one.topic is SCORES and one.key == name
        )
        assert judged == [score.dimension for score in scored.dimensions]


def calls_of(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.attributes[n.KIND.name] == n.JUDGE_CALL]


def test_each_call_has_a_span_and_the_same_one_when_judged_again() -> None:
    replies = [fails(429, retry_after="0"), says("no JSON"), says(verdict())]
    ids = []
    for _ in range(2):
        with scripted_model.provider() as provider:
            provider.replies = replies
            calls = calls_of(judged_with(provider.url, "one")[0])
        assert [call.error for call in calls] == ["RateLimitError", "", ""]
        told = [call.attributes.get(n.INPUT_TOKENS.name) for call in calls]
        assert told == [None, 11, 11]
        ids.append([call.span_id for call in calls])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 3


def test_a_call_that_is_given_up_has_a_span_too() -> None:
    with scripted_model.provider() as provider:
        provider.replies, provider.delay_s = [says(verdict())], 1.0
        spans, _ = judged_with(provider.url, "one", timeout_s=0.2)
    (call,) = calls_of(spans)
    assert call.error
    assert call.attributes[n.ERROR_TYPE.name] == call.error
    (evaluate,) = (span for span in spans if span is not call)
    assert n.INPUT_TOKENS.name not in evaluate.attributes
