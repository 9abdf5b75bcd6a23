"""R17: test connection, and what its report says about an agent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.registry import AgentRegistration
from services.runtime.agents.connection import ConnectionReport
from services.runtime.agents.connection import test_connection as connect
from tests.support.http_server import serve

SECRET = "Bearer connection-canary-77"


def agent_at(url: str, **fields: Any) -> AgentRegistration:
    auth = {"auth_header": "X-Agent-Key", "auth_value_ref": "env:TEST_AGENT_AUTH"}
    return AgentRegistration(
        **({"agent_id": "a", "name": "a", "endpoint": f"{url}/dispatch"} | auth | fields)
    )


@pytest.fixture(autouse=True)
def _auth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_AGENT_AUTH", SECRET)


def report_on(agent: AgentRegistration, timeout_s: float = 5) -> ConnectionReport:
    report = asyncio.run(connect(agent, timeout_s))
    assert "canary" not in repr(report)
    return report


def agent(*, auth: str = "first", refuses_with: int = 401, pings: int = 200) -> tuple[Any, Any]:
    """An agent that checks auth first, after the ping, or never."""
    seen: list[tuple[str | None, bytes]] = []

    async def dispatch(request: Request) -> Response:
        raw, given = await request.body(), request.headers.get("x-agent-key")
        seen.append((given, raw))
        ping = JSONResponse({"ok": True, "you_sent": given}, pings)
        if auth == "after ping" and raw == b'{"ping": true}':
            return ping
        if auth != "never" and given != SECRET:
            return Response("no", refuses_with)
        return ping

    return Starlette(routes=[Route("/dispatch", dispatch, methods=["POST"])]), seen


@pytest.mark.req("R17")
def test_a_good_agent_is_pinged_exactly_and_refuses_strangers() -> None:
    app, seen = agent()
    with serve(app) as url:
        report = report_on(agent_at(url))
    assert [(p.name, p.status, p.verdict) for p in report.probes] == [
        ("ping", 200, "ok"), ("ping_wrong_auth", 401, "ok"), ("ping_no_auth", 401, "ok"),
    ]  # fmt: skip
    assert report.ok
    assert report.reachable
    assert [json.loads(raw) for _, raw in seen] == [{"ping": True}] * 3
    (right, wrong, none) = (given for given, _ in seen)
    assert right == SECRET
    assert wrong is not None
    assert wrong.startswith("Bearer ")
    assert wrong != SECRET
    assert none is None


@pytest.mark.req("R17")
@pytest.mark.parametrize("auth", ["after ping", "never"])
def test_ping_before_auth_is_reported_and_turns_can_still_be_put(auth: str) -> None:
    app, _ = agent(auth=auth)
    with serve(app) as url:
        report = report_on(agent_at(url))
    assert not report.ok
    assert report.reachable
    for probe in report.probes[1:]:
        assert probe.verdict == "failed"
        assert "before auth" in probe.detail
        assert "auth header first" in probe.hint


@pytest.mark.req("R17")
@pytest.mark.parametrize(("status", "verdict"), [(403, "ok"), (400, "failed"), (500, "failed")])
def test_strangers_must_be_refused_with_401_or_403(status: int, verdict: str) -> None:
    app, _ = agent(refuses_with=status)
    with serve(app) as url:
        report = report_on(agent_at(url))
    assert [p.verdict for p in report.probes] == ["ok", verdict, verdict]


@pytest.mark.req("R17")
def test_an_open_endpoint_is_a_warning() -> None:
    app, seen = agent(auth="never")
    with serve(app) as url:
        report = report_on(agent_at(url, auth_header=None, auth_value_ref=None))
    assert [(p.name, p.verdict) for p in report.probes] == [("ping", "ok"), ("open", "warning")]
    assert report.ok
    assert len(seen) == 1


@pytest.mark.req("R17")
@pytest.mark.parametrize(
    ("pings", "hint"), [(401, "auth header"), (404, "path"), (422, "right after auth")]
)
def test_a_ping_that_is_not_answered_2xx_has_a_hint(pings: int, hint: str) -> None:
    app, _ = agent(pings=pings)
    with serve(app) as url:
        report = report_on(agent_at(url))
    assert not report.reachable
    assert report.probes[0].status == pings
    assert hint in report.probes[0].hint


@pytest.mark.req("R17")
def test_what_cannot_be_asked_is_a_failed_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    (probe,) = report_on(agent_at("http://127.0.0.1:1")).probes
    assert (probe.status, probe.verdict) == (None, "failed")
    assert "start the agent" in probe.hint
    (probe,) = report_on(agent_at("http://no-such-host.invalid?key=canary")).probes
    assert "host" in probe.hint
    monkeypatch.delenv("TEST_AGENT_AUTH")
    (probe,) = report_on(agent_at("http://127.0.0.1:1")).probes
    assert "env:TEST_AGENT_AUTH" in probe.detail


@pytest.mark.req("R17")
def test_an_agent_that_never_answers_is_given_up() -> None:
    async def never(_: Request) -> Response:
        await asyncio.sleep(20)
        return Response()

    with serve(Starlette(routes=[Route("/dispatch", never, methods=["POST"])])) as url:
        (probe,) = report_on(agent_at(url), timeout_s=0.3).probes
    assert probe.verdict == "failed"
    assert 200 <= probe.latency_ms < 5000


def test_a_code_agent_is_not_reached_over_the_network() -> None:
    (probe,) = report_on(agent_at("", kind="code", endpoint="")).probes
    assert probe.verdict == "ok"
