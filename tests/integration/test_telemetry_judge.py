"""D07: the judge's span of a session has what its model consumed for that session, and no other."""

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
from tests.support import scripted_model
from tests.support.scripted_model import KEY, says, verdict
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


def test_tokens_are_those_of_the_session() -> None:
    sink = Kept()

    async def main() -> OfflineService:
        settings = JudgeSettings(judge_model="openai/judge-1", judge_quality=())
        service = OfflineService(settings)
        llm = LlmJudge(
            settings, service.metrics, api_base=provider.url, api_key=SecretStr(KEY),
            timeout_s=60, concurrency=8,
        )  # fmt: skip
        briefs = Briefs({SUITE.suite_hash: SUITE}.get, wait_s=0)
        judge = Judge(service, briefs, llm, telemetry(sink))
        ended = [
            Session(session_id=name, scenario_id=name, suite_hash=SUITE.suite_hash)
            .user().agent("Refunded.").end()
            for name in ("one", "three")
        ]  # fmt: skip
        await asyncio.gather(
            *(judge.act(JudgedSession(events[0].session_id, events), SCORE) for events in ended)
        )
        return service

    with scripted_model.provider() as provider:
        provider.replies = [says(verdict())]
        service = asyncio.run(main())
    spans = {str(span.attributes[n.SCENARIO.name]): span for span in sink.spans}
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
        (scored,) = (
            one.record for one in service.published if one.topic is SCORES and one.key == name
        )
        assert judged == [score.dimension for score in scored.dimensions]
    assert KEY not in repr(sink.spans)
