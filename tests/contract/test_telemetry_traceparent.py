"""D07: the traceparent that agents of every kind are given, and what they may send back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from schemas.registry import AgentRegistration, ChatSettings
from services.dispatcher.agents.chat import ChatAgent
from services.dispatcher.agents.rasa import RasaAgent
from services.runtime.agents.client import AgentClient
from services.runtime.telemetry_context import span_id, trace_id, traceparent
from services.runtime.telemetry_span import Span
from services.tool_proxy.session import ProxyCore
from tests.support import kinds
from tests.support.code_agents import desk, make_request, require_bubblewrap
from tests.support.http_server import serve
from tests.support.proxy_server import Server, serving
from tests.support.rasa_server import Rasa
from tests.support.telemetry import Kept, telemetry
from tests.support.tool_proxy import MemoryLog, make_brief, make_world, started

pytestmark = pytest.mark.req("D07")
SESSION = kinds.SESSION
OURS = traceparent(SESSION, 1)
AGENTS = f"00-{trace_id(SESSION):032x}-00f067aa0ba902b7-01"
AGENTS_SPAN = 0x00F067AA0BA902B7


class Heard:
    """An agent's server, and the headers of each request to it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.headers: list[dict[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers.append({k.decode(): v.decode() for k, v in scope["headers"]})
        await self._app(scope, receive, send)


async def _answers(_: Request) -> Response:
    return JSONResponse({"final_response": "Shipped."})


async def _completes(_: Request) -> Response:
    message = {"role": "assistant", "content": "Shipped."}
    return JSONResponse({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})


def http_agent() -> tuple[ASGIApp, Callable[..., Any], dict[str, Any]]:
    app = Starlette(routes=[Route("/", _answers, methods=["POST"])])
    return app, lambda exchanger, proxy, clock: AgentClient(10, exchanger), {"kind": "http"}


def chat_agent() -> tuple[ASGIApp, Callable[..., Any], dict[str, Any]]:
    app = Starlette(routes=[Route("/chat/completions", _completes, methods=["POST"])])
    fields = {"kind": "openai", "chat": ChatSettings(model="m", system_prompt="A clerk.")}
    return app, ChatAgent, fields


def rasa_agent() -> tuple[ASGIApp, Callable[..., Any], dict[str, Any]]:
    rasa = Rasa(lambda text, tracker, metadata: [tracker.says(str(sorted(metadata)))])
    return rasa.app, lambda exchanger, proxy, clock: RasaAgent(exchanger, proxy), {"kind": "rasa"}


@pytest.mark.parametrize("kind", [http_agent, chat_agent, rasa_agent])
@pytest.mark.parametrize("traced", [True, False])
def test_every_request_of_a_turn_names_the_turns_span(
    kind: Callable[[], tuple[ASGIApp, Callable[..., Any], dict[str, Any]]], traced: bool
) -> None:
    app, make, fields = kind()
    heard = Heard(app)
    with serve(heard) as url, kinds.proxy() as proxy:
        agent = AgentRegistration(
            agent_id="a", name="a", endpoint=f"{url}/", run_timeout_s=20, **fields
        )
        request = replace(kinds.request_of(proxy), traceparent=OURS if traced else "")
        answer = kinds.turn(make, agent, request)
    assert heard.headers
    given = [headers.get("traceparent") for headers in heard.headers]
    assert given == [OURS if traced else None] * len(given)
    assert not any("tracestate" in headers for headers in heard.headers)
    if kind is rasa_agent:
        # Custom actions find it where they find the run token.
        assert ("traceparent" in answer.final_response) == traced


def test_code_finds_it_in_its_environment(tmp_path: Path) -> None:
    require_bubblewrap()
    source = (
        "import os\n"
        "def run(task, **_):\n"
        "    return {'final_response': os.environ.get('TRACEPARENT', 'none')}\n"
    )

    async def main() -> tuple[str, str]:
        async with desk(tmp_path) as one:
            agent = await one.register(source)
            plain = await one.agents.turn(agent, make_request())
            traced = await one.agents.turn(agent, replace(make_request(), traceparent=OURS))
            return plain.final_response, traced.final_response

    assert asyncio.run(main()) == ("none", OURS)


@contextmanager
def traced_proxy() -> Iterator[tuple[Server, Kept]]:
    log, sink = MemoryLog(ProxyCore({"desk": make_world()})), Kept()
    log.put(started(make_brief(), SESSION))
    with serving(log, telemetry=telemetry(sink)) as server:
        yield server, sink


def order(server: Server, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return server.call("get_order", {"order_id": "1"}, headers=dict(headers or {}))


def of_step(sink: Kept, step: str) -> Span:
    return next(span for span in sink.spans if span.span_id == span_id(f"{SESSION}:{step}"))


def test_calls_and_reports_hang_under_the_span_that_they_name() -> None:
    turn = span_id(f"{SESSION}:a1")
    with traced_proxy() as (server, sink):
        order(server)
        order(server, {"traceparent": AGENTS})
        for headers in ({}, {"traceparent": AGENTS}):
            posted = server.client.post(
                f"{server.base()}/trace", headers=server.headers() | headers,
                json={"type": "plan", "payload": {"steps": ["one"]}},
            )  # fmt: skip
            assert posted.status_code == 202
    assert {span.trace_id for span in sink.spans} == {trace_id(SESSION)}
    for step, parent in (("t1", turn), ("t2", AGENTS_SPAN), ("x1", turn), ("x2", AGENTS_SPAN)):
        span = of_step(sink, step)
        assert (span.parent_id, span.parent_is_remote) == (parent, parent == AGENTS_SPAN)


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "nonsense",
        "00-" + "0" * 32 + "-" + "0" * 16 + "-00",
        f"00-{1:032x}-{1:016x}-01",
        AGENTS[:-1] + "0",
        "00-" + "é" * 8,
        "x" * 6000,
    ],
)
def test_others_are_no_error_and_change_nothing(sent: str) -> None:
    with traced_proxy() as (server, sink):
        plain = order(server)
        answer = order(server, {"traceparent": sent.encode("latin-1")})  # type: ignore[dict-item]
    assert (answer.status_code, answer.json()["response"]) == (200, plain.json()["response"])
    assert of_step(sink, "t2").parent_id == span_id(f"{SESSION}:a1")


def test_two_headers_are_none() -> None:
    with traced_proxy() as (server, sink):
        pairs = [*server.headers().items(), ("traceparent", AGENTS), ("traceparent", AGENTS)]
        answer = server.client.post(
            f"{server.base()}/tools/get_order", headers=pairs, json={"order_id": "1"}
        )
    assert answer.status_code == 200
    assert of_step(sink, "t1").parent_id == span_id(f"{SESSION}:a1")


def test_a_repeated_call_is_one_span() -> None:
    with traced_proxy() as (server, sink):
        for _ in range(2):
            order(server, {"idempotency-key": "k", "traceparent": AGENTS})
    assert [span.parent_id for span in sink.spans] == [AGENTS_SPAN]


def test_without_a_collector_the_header_is_not_looked_at() -> None:
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    log.put(started(make_brief(), SESSION))
    with serving(log) as server:
        assert order(server, {"traceparent": AGENTS}).status_code == 200
