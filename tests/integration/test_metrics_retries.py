"""D07: what is tried again is counted, by what it is."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import JSONResponse

from services.dispatcher.agents.table import AgentKinds
from services.runtime import metrics as m
from services.runtime.clock import SystemClock
from services.tool_proxy.mcp_tools import McpTools
from tests.contract.test_agent_chat import (
    ENVELOPE,
    SECRET,
    Model,
    agent_at,
    calls,
    proxy_that,
    raw,
    refusal,
    says,
)
from tests.contract.test_passthrough_mcp import LOOPBACK, client, mcp_server, real_call
from tests.integration.test_models_http import Asked
from tests.support import kinds, scripted_model
from tests.support.http_server import serve
from tests.support.scripted_model import fails

pytestmark = [pytest.mark.timeout(120), pytest.mark.req("D07")]


def test_an_agents_model_and_its_calls_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", SECRET)
    retried: list[str] = []
    answers = [refusal("session_not_ready", 503, True), JSONResponse(ENVELOPE)]
    app, _ = proxy_that(lambda n: answers[n - 1])
    model = Model([raw("busy", 503), calls(("get_order", {"order_id": "1"})), says("Done.")])

    async def turn(url: str, proxy_url: str) -> str:
        agents = AgentKinds(4, SystemClock(), retried=retried.append)
        try:
            request = kinds.request_of(None, proxy_url=proxy_url, token="the-token")
            return (await agents.turn(agent_at(url), request)).final_response
        finally:
            await agents.close()

    with serve(app) as proxy_url, serve(model.app) as url:
        assert asyncio.run(turn(url, proxy_url)) == "Done."
    assert retried == ["agent_model", "agent_tool_call"]
    known = m.RETRIES.by["dispatcher"]
    assert {(what,) for what in retried} <= set(known)


def test_a_call_of_a_model_of_ours() -> None:
    with scripted_model.provider() as provider:
        provider.replies = [fails(503), fails(429), scripted_model.says("yes")]
        asked = Asked(provider)
        assert asked.ask().text == "yes"
    count = asked.metrics.registry.get_sample_value
    assert count(m.RETRIES.name, {"what": "model_call"}) == 2
    # Its tokens and cost can be seen from the start, as it was configured.
    assert count(m.MODEL_COST.name, {"role": "judge", "model": "openai/judge-1"}) is not None


def test_a_call_of_an_mcp_server_that_forgot_the_session() -> None:
    retried: list[None] = []

    async def exchange(url: str) -> None:
        via = client(LOOPBACK)
        tools = McpTools(via, max_sessions=2, retried=lambda: retried.append(None))
        assert (await tools(real_call(url, "ping"), {})).body == "pong"
        era.forget = True
        assert (await tools(real_call(url, "ping"), {})).body == "pong"
        await tools.close()
        await via.close()

    with mcp_server(legacy=True) as (url, era):
        asyncio.run(exchange(url))
    assert len(retried) == 1
