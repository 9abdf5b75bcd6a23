"""D07: the spans of a session: one tree, names from the catalogue, nothing that was said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import opentelemetry.semconv._incubating.attributes.gen_ai_attributes as installed
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.schemas import Schemas

from schemas.codec import Codec
from schemas.registry import AgentRegistration
from schemas.scores import DimensionScore, SessionScored
from schemas.topics import TRAJECTORIES
from schemas.trajectory import (
    TOOL_CALLED,
    USER_ACTED,
    ToolCalled,
    TrajectoryEvent,
    Usage,
    UserActed,
)
from services.dispatcher import tracing as dispatcher
from services.dispatcher.session_core import DispatcherCore
from services.runtime import telemetry_names as n
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from services.runtime.metrics import Metrics
from services.runtime.model_calls import ModelCall
from services.runtime.sessions import SessionTable
from services.runtime.telemetry_context import span_id, trace_id
from services.runtime.telemetry_judging import judge_spans
from services.runtime.telemetry_page import page
from services.runtime.telemetry_span import MAX_CONTENT, MAX_TEXT, Span
from services.runtime.telemetry_spans import (
    tool_span,
    trace_span,
    turn_span,
    user_span,
)
from services.user_simulator import tracing as user_simulator
from services.user_simulator.core import UserSimulatorCore
from tests.support.live import ROOT
from tests.support.services import OfflineService
from tests.support.telemetry import Kept, telemetry
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("D07")
SAID = "canary-of-what-was-said"
ID = "run-1/case/0"
PARENT = 77
MODEL = Usage(model="provider/model", input_tokens=7, output_tokens=3, cost_usd=0.5)
CALLS = (
    ModelCall("asked", MODEL.model, 20, 21, error="RateLimitError"),
    ModelCall("asked", MODEL.model, 22, 23, usage=MODEL, answered_by="model-2026"),
    ModelCall("asked else", MODEL.model, 22, 25, usage=MODEL, answered_by="model-2026"),
)
AGENT = AgentRegistration(agent_id="agent", name="order-support", endpoint="http://a")
SCORED = SessionScored(
    run_id="run-1", session_id=ID, scenario_id="case", category="happy", trial=0,
    end_reason="goal_met", passed=False, at_ms=20,
    dimensions=(
        DimensionScore(dimension="safety", value=0.0, passed=False, reason=SAID),
        DimensionScore(dimension="criteria", status="unscored", reason=SAID),
    ),
)  # fmt: skip


def agent_of(agent_id: str, fingerprint: str) -> AgentRegistration | None:
    return AGENT if (agent_id, fingerprint) == ("agent", "f") else None


def session() -> list[TrajectoryEvent]:
    """A session in which everything happens that there are spans of."""
    made = Session(session_id=ID).user(SAID, usage=MODEL, latency_ms=5)
    made.call("get_order", {"text": SAID}, {"text": SAID}, injected="slow", actor="boss/clerk")
    made.call("nonsense", error="tool_unknown").trace("plan", {"steps": [SAID]}, actor="boss")
    made.agent(SAID, usage=MODEL).user(SAID, invalid="it was bad", ending="gave_up")
    return made.end("simulator_invalid", SAID)


def event(step: str, kind: str, **body: Any) -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id=f"{ID}:{step}", session_id=ID, run_id="run-1", kind=kind, turn=1, at_ms=9, **body
    )


def folded(events: Iterable[TrajectoryEvent], *, contents: bool = False) -> list[Span]:
    """What dispatcher and user simulator export of these."""
    sink = Kept()
    told = telemetry(sink, contents=contents)
    for core in (
        dispatcher.traced(DispatcherCore(), told, agent_of),
        user_simulator.traced(UserSimulatorCore(), told),
    ):
        start, *rest = events
        state: Any = core.start(start)
        for one in rest:
            core.apply(state, one)
    return sink.spans


def everything(*, contents: bool = False) -> list[Span]:
    """All spans of the session, whoever exports them."""
    acted = UserActed(call=1, tool="restart", arguments=SAID, usage=MODEL)
    by_user = ToolCalled(
        call=1, tool="restart", arguments=SAID, response=SAID, source="odyssey", requestor="user",
        usage=MODEL,
    )  # fmt: skip
    spans = folded(session(), contents=contents)
    spans.append(user_span(event("c1", USER_ACTED, user_acted=acted), contents=contents))
    spans.append(tool_span(event("r1", TOOL_CALLED, tool_called=by_user), contents=contents))
    for one in session():
        if one.tool_called is not None:
            spans.append(tool_span(one, contents=contents))
        if one.trace is not None:
            spans.append(trace_span(one))
    spans += judge_spans(SCORED, start_ms=20, end_ms=25, calls=CALLS, contents=contents)
    return spans


def by_kind(spans: Iterable[Span]) -> dict[str, Span]:
    return {str(span.attributes[n.KIND.name]): span for span in reversed(list(spans))}


def test_a_session_is_one_tree() -> None:
    spans = everything()
    assert {span.trace_id for span in spans} == {trace_id(ID)}
    ids = [span.span_id for span in spans]
    assert len(set(ids)) == len(ids) == 13
    assert [span.name for span in spans if span.parent_id is None] == ["invoke_workflow case"]
    assert {span.parent_id for span in spans} - {None} <= set(ids)
    parents = {span.name: next((p for p in spans if p.span_id == span.parent_id), None)
               for span in spans}  # fmt: skip
    assert {name: parent.name for name, parent in parents.items() if parent is not None} == {
        "invoke_agent order-support": "invoke_workflow case",
        "invoke_agent user_simulator": "invoke_workflow case",
        "execute_tool restart": "invoke_agent user_simulator",
        "execute_tool get_order": "invoke_agent order-support",
        "execute_tool": "invoke_agent order-support",
        "report plan": "invoke_agent order-support",
        "evaluate case": "invoke_workflow case",
        "chat provider/model": "evaluate case",
    }


def test_the_agents_spans_come_between() -> None:
    called, traced = (next(one for one in session() if one.step == step) for step in ("t1", "x1"))
    for span in (tool_span(called, parent=PARENT), trace_span(traced, PARENT)):
        assert (span.parent_id, span.parent_is_remote) == (77, True)
    itself = span_id(called.event_id)
    assert tool_span(called, parent=itself).parent_id == span_id(f"{ID}:a1")


def test_times_are_those_of_events() -> None:
    long_ago = 1_768_467_600_000
    called = next(one for one in session() if one.step == "t1")
    assert called.tool_called is not None
    slow = replace(called.tool_called, latency_ms=530)
    span = tool_span(replace(called, at_ms=long_ago, tool_called=slow), delay_ms=500)
    # It was recorded before the injected delay, which the caller still waits for.
    assert (span.start_ms, span.end_ms) == (long_ago - 30, long_ago + 500)
    turn = next(one for one in session() if one.step == "a1")
    span = turn_span(replace(turn, at_ms=long_ago), agent_id="a", agent_name="a")
    assert (span.start_ms, span.end_ms) == (long_ago - 100, long_ago)
    assert by_kind(folded(session()))[n.SESSION].end_ms == session()[-1].at_ms


def test_a_replay_makes_the_same_spans_again() -> None:
    assert folded(session()) == folded(session())
    twice = [one for one in session() for _ in (1, 2)][1:]
    # The table folds each id once; what it is given once more after the end changes nothing.
    assert folded([*session(), *session()[1:]]) == folded(session())
    assert {span.span_id for span in folded(twice)} == {span.span_id for span in folded(session())}


def test_a_turn_that_was_at_the_agent_when_the_session_ended_has_its_span() -> None:
    made = Session(session_id=ID).user("Hello.").call("get_order")
    spans = by_kind(folded(made.end("limit_wall_time")))
    turn = spans[n.TURN]
    assert (turn.span_id, turn.parent_id) == (span_id(f"{ID}:a1"), spans[n.SESSION].span_id)
    assert (turn.start_ms, turn.end_ms, turn.error) == (1, 3, "limit_wall_time")
    assert turn.attributes[n.OUTCOME.name] == "unanswered"
    called = tool_span(made.events[2])
    assert called.parent_id == turn.span_id


def test_what_went_wrong_is_marked() -> None:
    spans = {span.attributes[n.EVENT.name]: span for span in everything()}
    failed = {step: span.error for step, span in spans.items() if span.error}
    assert failed == {
        "t2": "tool_unknown", "u2": "simulator_invalid", "start": "simulator_invalid"
    }  # fmt: skip
    for step, error in failed.items():
        assert spans[step].attributes[n.ERROR_TYPE.name] == error
    timeout = Session(session_id=ID).user().agent(outcome="timeout").events[-1]
    assert turn_span(timeout, agent_id="a", agent_name="a").error == "timeout"


@pytest.mark.parametrize("contents", [False, True])
def test_attributes_are_those_of_the_catalogue(contents: bool) -> None:
    known = {one.name: one for one in n.CATALOGUE}
    seen: set[tuple[str, str]] = set()
    for span in everything(contents=contents):
        kind = str(span.attributes[n.KIND.name])
        names = [*span.attributes, *(name for one in span.events for name in one.attributes)]
        seen |= {(kind, name) for name in names}
    expected = {
        (kind, one.name) for one in n.CATALOGUE for kind in one.spans if contents or not one.content
    }
    # What can be, and was not in this session: its judge passed nothing over, its turn went well.
    assert expected - seen == {(n.TURN, n.ERROR_TYPE.name)}
    assert seen <= expected, {known[name] for _, name in seen - expected}


def test_nothing_that_was_said_is_told_unless_it_is_asked_for() -> None:
    assert SAID not in repr(everything())
    spans = by_kind(everything(contents=True))
    told = spans[n.TURN].attributes
    for name, role in ((n.INPUT_MESSAGES, "user"), (n.OUTPUT_MESSAGES, "assistant")):
        assert json.loads(str(told[name.name])) == [
            {"role": role, "parts": [{"type": "text", "content": SAID}]}
        ]
    assert SAID in str(spans[n.TOOL].attributes)
    assert [one.attributes[n.EVALUATION_EXPLANATION.name] for one in spans[n.JUDGE].events] == [
        SAID, SAID,
    ]  # fmt: skip


def test_the_judges_span() -> None:
    span = by_kind(everything())[n.JUDGE]
    assert (span.start_ms, span.end_ms) == (20, 25)
    assert span.attributes[n.INPUT_TOKENS.name] == 14
    assert [dict(one.attributes) for one in span.events] == [
        {"gen_ai.evaluation.name": "safety", "gen_ai.evaluation.score.value": 0.0,
         "gen_ai.evaluation.score.label": "fail"},
        {"gen_ai.evaluation.name": "criteria", "gen_ai.evaluation.score.label": "unscored"},
    ]  # fmt: skip


@given(st.text(max_size=50) | st.sampled_from(["\ud800", '"' * 9000, "\x00" * 9000, "é" * 20_000]))
def test_texts_can_be_written_and_are_bounded(text: str) -> None:
    turn = Session(session_id=ID).user().agent(text).events[-1]
    span = turn_span(turn, agent_id=text, agent_name="a", user_text=text, contents=True)
    for name, value in span.attributes.items():
        if isinstance(value, str):
            value.encode()
            assert len(value) <= (MAX_CONTENT if name.endswith(".messages") else MAX_TEXT)
    (message,) = json.loads(str(span.attributes[n.OUTPUT_MESSAGES.name]))
    said = text.encode(errors="replace").decode()
    assert said.startswith(message["parts"][0]["content"])


def test_names_are_those_of_the_conventions() -> None:
    theirs = {value for name, value in vars(installed).items() if name.startswith("GEN_AI_")}
    # Later than 1.41.0; should these be gone from the package, the pins stay what they are.
    ours = {one.name for one in n.CATALOGUE} - {ERROR_TYPE}
    assert {name for name in ours if not name.startswith("windtunnel.")} <= theirs
    assert Schemas.V1_41_0.value == n.SCHEMA_URL
    assert len({one.name for one in n.CATALOGUE}) == len(n.CATALOGUE)
    assert all(one.meaning.endswith(".") for one in n.CATALOGUE)


def test_the_page_is_that_of_the_catalogue() -> None:
    assert (ROOT / "docs" / "telemetry.md").read_text() == page(), "run `make schemas`"


def test_without_a_collector_the_cores_are_themselves() -> None:
    core, users = DispatcherCore(), UserSimulatorCore()
    assert dispatcher.traced(core, None, agent_of) is core
    assert user_simulator.traced(users, None) is users


def test_a_span_that_cannot_be_made_or_kept_is_counted_and_no_more() -> None:
    sink, metrics = Kept(room=1), Metrics()
    told = telemetry(sink, metrics)

    def fails() -> list[Span]:
        raise ValueError(SAID)

    make: Callable[[], list[Span]] = lambda: folded(session())  # noqa: E731
    told.record(fails)
    told.record(make)
    assert len(sink.spans) == 1
    dropped = f'windtunnel_spans_total{{outcome="dropped"}} {len(make())}.0'
    assert dropped in metrics.render().decode()


def test_traceparents_are_counted_by_what_became_of_them() -> None:
    metrics = Metrics()
    told = telemetry(Kept(), metrics)
    assert told.parent([], ID) is None
    assert told.parent(["nonsense"], ID) is None
    assert told.parent([f"00-{1:032x}-{1:016x}-01"], ID) is None
    assert told.parent([f"00-{trace_id(ID):032x}-{77:016x}-01"], ID) == PARENT
    counted = [
        line for line in metrics.render().decode().splitlines()
        if line.startswith("windtunnel_traceparents_total{")
    ]  # fmt: skip
    assert sorted(counted) == [
        'windtunnel_traceparents_total{outcome="foreign"} 1.0',
        'windtunnel_traceparents_total{outcome="joined"} 1.0',
        'windtunnel_traceparents_total{outcome="malformed"} 1.0',
    ]


def test_who_takes_over_a_session_tells_the_same_spans() -> None:
    codec, name = Codec(), TRAJECTORIES.full_name

    async def told_by_a_replica() -> list[Span]:
        service, sink = OfflineService(), Kept()
        core = dispatcher.traced(DispatcherCore(), telemetry(sink), agent_of)
        table = SessionTable(service, core)
        # What somebody else appended again, having taken it for lost, is told once.
        log = [one for one in session() for _ in range(2)]
        records = [
            Incoming(name, 0, offset, ID, codec.encode(one), {}, 0)
            for offset, one in enumerate(log)
        ]
        await table.assigned({Partition(name, 0): PartitionSpan(0, len(log))})
        await table.batch(records, {Partition(name, 0): len(log)})
        return sink.spans

    first, second = asyncio.run(told_by_a_replica()), asyncio.run(told_by_a_replica())
    assert first == second
    assert [span.attributes[n.EVENT.name] for span in first] == ["a1", "start"]
