"""D07: a real run is one tree of spans a session, the agent's own among them, and no collector's
trouble changes anything about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from deploy.demo.agent import create_app
from deploy.demo.builds import BUILDS
from deploy.demo.register import agent_registration
from schemas.runs import RunRequest
from schemas.topics import AGENTS
from schemas.trajectory import TrajectoryEvent
from services.runtime import telemetry_names as n
from services.runtime.service import Publication
from services.runtime.telemetry_context import span_id, trace_id
from services.runtime.telemetry_spans import USER_SIMULATOR
from tests.support.equality import assert_equal
from tests.support.http_server import serve
from tests.support.running_stack import (
    AGENT_TOKEN,
    RunningStack,
    comparable,
    comparable_score,
    running_stack,
)
from tests.support.telemetry import Collector, Received, collector

pytestmark = [pytest.mark.timeout(300), pytest.mark.req("D07")]
SCENARIOS = ("happy-order-status", "failure-order-lookup-outage", "adversarial-planted-case-note")
AGENT = "traced"
REPLICAS = ("--replicas", "dispatcher=2", "--replicas", "tool_proxy=2")
W3C = TraceContextTextMapPropagator()


class TracedAgent:
    """The demo's agent, traced as agents are: a span a turn, continued in its tool calls."""

    def __init__(self, app: ASGIApp, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("agent")
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.decode(): v.decode() for k, v in scope.get("headers", ())}
        if "traceparent" in headers:
            self.headers.append(headers)
            with self._tracer.start_as_current_span("agent.turn", W3C.extract(headers)):
                await self._app(scope, receive, send)
        else:  # a ping, or the lifespan
            await self._app(scope, receive, send)


async def _continued(request: httpx.Request) -> None:
    W3C.inject(request.headers)


@contextmanager
def traced_agent(collector_url: str) -> Iterator[tuple[str, TracedAgent]]:
    provider = TracerProvider(resource=Resource({n.SERVICE_NAME: "agent"}))
    provider.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(f"{collector_url}/v1/traces", timeout=1))
    )
    client = httpx.AsyncClient(timeout=30, event_hooks={"request": [_continued]})
    agent = TracedAgent(create_app(BUILDS["good"], AGENT_TOKEN, clients=[client]), provider)
    with serve(agent, lifespan="on") as url:
        yield f"{url}/dispatch", agent
    provider.shutdown()


def played(stack: RunningStack, run_id: str) -> dict[str, Any]:
    """All of a run that must be equal, with a collector or without."""
    request = RunRequest(
        run_id=run_id, suite="order-support", agent_id=AGENT, baseline="none", seed=5,
        concurrency=3, scenarios=SCENARIOS,
    )  # fmt: skip
    status = stack.run(request)
    assert (status.state, status.lost) == ("aggregated", 0)
    return {
        "trajectories": {
            key: [comparable(event) for event in events]
            for key, events in stack.trajectories(run_id).items()
        },
        "scores": {key: comparable_score(score) for key, score in stack.scores(run_id).items()},
    }


def test_a_traced_run(stack: RunningStack, tmp_path: Path) -> None:
    # What the agent exports is its own affair, and goes on when our collector is not well.
    with collector() as one, collector() as its_own, traced_agent(its_own.url) as (url, agent):
        register(stack, url)
        untraced = played(stack, "untraced")
        assert not agent.headers
        settings = {"WINDTUNNEL_OTLP_ENDPOINT": one.url}
        with running_stack(tmp_path, *REPLICAS, environ=settings) as traced:
            traced.publish_suite()
            register(traced, url)
            assert_equal(played(traced, "traced"), untraced)
            for events in traced.trajectories("traced").values():
                check_tree(events, one, its_own)
            check_secrets(one, traced, agent)

            one.status, one.hold_after = 500, 2
            assert_equal(played(traced, "troubled"), untraced)
            one.wait_until(lambda: one.refused == 2 and one.held > 0)
            logs = traced.logs()
            began = time.monotonic()
        # The collector still hangs: every service gives up in time and ends by itself.
        assert time.monotonic() - began < 30
    assert '"why": "HTTP 500"' in logs


def register(stack: RunningStack, url: str) -> None:
    agent = agent_registration(AGENT, "order-support", url, "good")
    stack.publish(Publication(AGENTS, AGENT, agent))


SERVICES = {
    f"windtunnel-{name}" for name in ("dispatcher", "tool-proxy", "user-simulator", "judge")
}
TOLD = {"session_started": n.SESSION, "user_turn": n.USER, "agent_turn": n.TURN,
        "tool_called": n.TOOL, "trace": n.TRACE, "user_acted": n.USER}  # fmt: skip


def check_tree(events: list[TrajectoryEvent], ours: Collector, its_own: Collector) -> None:
    """The session's spans are one tree, of the shape that docs/telemetry.md shows."""
    session = events[0].session_id
    trace_hex = f"{trace_id(session):032x}"
    steps = {event.step: event for event in events if event.kind in TOLD}
    spans = ours.wait_for(trace_hex, len(steps) + 1)
    turns = [event for event in events if event.agent_turn is not None]
    agents = its_own.wait_for(trace_hex, len(turns))
    assert {name: one.span_id for name, one in by_step(spans).items()} == {
        step: f"{span_id(f'{session}:{step}'):016x}" for step in (*steps, "score")
    }
    assert {span.service for span in spans.values()} == SERVICES
    whole = {**spans, **agents}
    root = f"{span_id(f'{session}:start'):016x}"
    assert [span.span_id for span in whole.values() if not span.parent_id] == [root]
    assert {span.parent_id for span in whole.values()} - {""} <= set(whole)

    by_turn = {
        whole[span.parent_id].attributes[n.TURN_NUMBER.name]: span for span in agents.values()
    }
    assert len(by_turn) == len(turns)
    assert any(event.tool_called is not None for event in events)
    for step, span in by_step(spans).items():
        assert span.schema_url == n.SCHEMA_URL
        kind = span.attributes[n.KIND.name]
        assert span.attributes[n.CONVERSATION_ID.name] == session
        assert span.attributes[n.RUN_ID.name] == "traced"
        known = {one.name for one in n.CATALOGUE if kind in one.spans and not one.content}
        names = [*span.attributes, *(name for _, event in span.events for name in event)]
        assert set(names) <= known, step
        if kind == n.TOOL:
            under = by_turn[span.attributes[n.TURN_NUMBER.name]]
            assert (span.parent_id, span.parent_is_remote) == (under.span_id, True)
            called = steps[step].tool_called
            assert called is not None
            assert span.attributes[n.TOOL_NAME.name] == called.tool
            assert span.attributes.get(n.ERROR_TYPE.name) == called.error_code
        elif kind in (n.TURN, n.USER, n.JUDGE):
            assert span.parent_id == root
    names_of = {span.name for span in spans.values()}
    assert {f"invoke_agent {USER_SIMULATOR}", "invoke_agent order-support"} <= names_of
    score = by_step(spans)["score"]
    assert "safety" in {event[n.EVALUATION_NAME.name] for _, event in score.events}
    turn = by_step(spans)["a1"]
    usage = turns[0].agent_turn.usage if turns[0].agent_turn is not None else None
    assert usage is not None
    assert turn.attributes[n.INPUT_TOKENS.name] == usage.input_tokens


def by_step(spans: dict[str, Received]) -> dict[str, Received]:
    return {str(span.attributes[n.EVENT.name]): span for span in spans.values()}


def check_secrets(one: Collector, stack: RunningStack, agent: TracedAgent) -> None:
    """Spans quote nothing, and what the agent is sent tells nothing."""
    told = repr(one.spans)
    for events in stack.trajectories("traced").values():
        for event in events:
            for said in (
                event.user_turn.text if event.user_turn is not None else "",
                event.agent_turn.final_response if event.agent_turn is not None else "",
                event.tool_called.response if event.tool_called is not None else "",
            ):
                assert len(said) < 10 or said not in told
    assert "gAAAAA" not in told
    assert AGENT_TOKEN not in told
    assert agent.headers
    for headers in agent.headers:
        assert set(headers) <= {
            "connection",
            "host", "content-type", "content-length", "accept", "accept-encoding", "user-agent",
            "authorization", "idempotency-key", "traceparent", "x-pipelines-run-token",
            "x-pipelines-run-token-jti", "x-pipelines-odyssey-proxy-url", "x-pipelines-run-id",
            "x-pipelines-task-id",
        }  # fmt: skip
    assert trace.get_current_span() is trace.INVALID_SPAN
