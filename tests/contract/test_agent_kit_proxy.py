"""The kit against the real tool proxy, over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from schemas.trajectory import ToolCalled
from services.agent_kit import (
    Effects,
    Envelope,
    ProxyError,
    actor,
    aproxy_call,
    bound,
    proxy_call,
    run_async_in_thread,
    set_current,
    trace,
)
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import STATE, MemoryLog, make_world


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as running:
        for session_id in ("s1", "s2"):
            running.start(session_id, actors=["supervisor/refunds"])
        yield running


def envelope_of(server: Server, session_id: str = "s1", **claims: Any) -> Envelope:
    """As a dispatch brings it: the fields in the body, the token in a header."""
    body = {
        "task_id": 1, "run_id": 2, "agent_id": 3,
        "input": {"task_id": 1, "user_instruction": "hi", "input": {}},
        "odyssey_proxy_url": server.base(session_id), "run_token_jti": f"jti-{session_id}",
    }  # fmt: skip
    return Envelope.from_request(
        body, {"x-pipelines-run-token": server.token(session_id, **claims)}
    )


def calls(server: Server, session_id: str = "s1") -> list[ToolCalled]:
    events = server.recorded(session_id)
    return [event.tool_called for event in events if event.tool_called is not None]


@pytest.mark.req("R02", "R03", "R04", "R26")
def test_calls_are_answered_unwrapped(server: Server) -> None:
    with set_current(envelope_of(server)):
        assert proxy_call("get_order", {"order_id": "1"}) == STATE["orders"]["1"]
        assert asyncio.run(aproxy_call("answer", {"value": "pong"})) == "pong"
        assert proxy_call("get_order", {"order_id": "9"})["error"]["code"] == "not_found"
    assert [called.tool for called in calls(server)] == ["get_order", "answer", "get_order"]


@pytest.mark.req("R05", "R08")
def test_refusals_keep_their_code_and_details(server: Server) -> None:
    recorded: list[float] = []
    with set_current(envelope_of(server)):
        with pytest.raises(ProxyError) as refused:
            proxy_call("add_note", {"text": "x", "kind": "fax"}, effects=Effects(recorded.append))
        error = refused.value
        assert (error.code, error.status, error.retryable) == ("arguments_invalid", 422, False)
        assert error.details["errors"][0]["path"] == "/kind"
        assert "/kind" in str(error)
        with pytest.raises(ProxyError, match="tool_unknown"):
            proxy_call("no such tool", {}, effects=Effects(recorded.append))
        with pytest.raises(ProxyError, match="actor_id_invalid"):
            proxy_call("get_order", {"order_id": "1"}, actor="a//b")
    assert recorded == []
    assert [called.error_code for called in calls(server)] == ["arguments_invalid", "tool_unknown"]


@pytest.mark.req("R08")
def test_a_call_that_was_not_acknowledged_is_made_once(server: Server) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            server.log.failing = ""

    effects = Effects(sleep, uniform=lambda low, high: low)
    with set_current(envelope_of(server)):
        server.log.failing = "unacknowledged"  # it is in the log, and nobody knows
        first = proxy_call("add_note", {"text": "a"}, effects=effects)
        assert slept == [0.5]
        slept.clear()
        server.log.failing = "lost"
        second = proxy_call("add_note", {"text": "a"}, effects=effects)
        assert slept == [0.5, 1.0, 2.0]
        slept.clear()
        server.log.failing = "unacknowledged"
        trace("plan", {"steps": ["look"]}, effects=effects)
        assert slept == [0.5]
    assert first != second  # two calls: each has a key of its own
    kinds = [event.kind for event in server.recorded()]
    assert kinds == ["tool_called", "tool_called", "trace"]
    assert len({called.idempotency_key for called in calls(server)}) == 2


@pytest.mark.req("R06", "R08")
def test_the_rate_limits_wait_is_honoured(server: Server) -> None:
    server.start("rate", calls_per_minute=1)
    slept: list[float] = []
    with set_current(envelope_of(server, "rate")):
        proxy_call("get_order", {"order_id": "1"})
        with pytest.raises(ProxyError, match="rate_limited"):  # the clock of this proxy stands
            proxy_call("get_order", {"order_id": "1"}, effects=Effects(slept.append))
    assert slept == [60.0] * 3


@pytest.mark.req("R09", "R10")
def test_attribution_and_trace_events_in_their_order(server: Server) -> None:
    with set_current(envelope_of(server)):
        with actor("supervisor"):
            trace("plan", {"steps": ["look it up"]})
            trace("handoff", {"to": "supervisor/refunds"})
            with actor("refunds"):
                proxy_call("get_order", {"order_id": "1"})
                trace("reasoning", {"text": "It was shipped."})
        trace("state", {"event": "action_executed", "name": "action_refund"})
        proxy_call("get_order", {"order_id": "2"})
        trace("custom", {"name": "done"})
    told = []
    for event in server.recorded():
        body = event.tool_called or event.trace
        assert body is not None
        what = body.tool if isinstance(body, ToolCalled) else body.type
        told.append((what, body.actor))
    assert told == [
        ("plan", "supervisor"), ("handoff", "supervisor"), ("get_order", "supervisor/refunds"),
        ("reasoning", "supervisor/refunds"), ("state", None), ("get_order", None), ("custom", None),
    ]  # fmt: skip
    assert [called.actor_declared for called in calls(server)] == [True, None]


@pytest.mark.req("R09")
def test_without_an_actor_the_recorded_event_has_none(server: Server) -> None:
    for session_id in ("s1", "s2"):
        with set_current(envelope_of(server, session_id)):
            proxy_call("get_order", {"order_id": "1"}, effects=Effects(new_key=lambda: "k"))
    own = calls(server, "s1")[0]
    assert (own.actor, own.actor_declared) == (None, None)
    assert own == calls(server, "s2")[0]


@pytest.mark.req("R20", "R22")
def test_threads_call_for_their_own_dispatch(server: Server) -> None:
    def note(text: str) -> Any:
        return proxy_call("add_note", {"text": text})

    async def agent(text: str) -> None:
        await asyncio.gather(aproxy_call("add_note", {"text": text}), asyncio.to_thread(note, text))

    with ThreadPoolExecutor(4) as pool:
        for session_id in ("s1", "s2"):
            with set_current(envelope_of(server, session_id)):
                list(pool.map(bound(note), [session_id] * 6))
                run_async_in_thread(lambda: agent(session_id))  # noqa: B023  # called at once
    for session_id in ("s1", "s2"):
        recorded = calls(server, session_id)
        assert len(recorded) == 8
        assert all(session_id in called.arguments for called in recorded)


@pytest.mark.req("R21", "R22")
def test_tokens_that_are_not_accepted(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    good = envelope_of(server)
    other = envelope_of(server, "s2")
    for bad in (
        envelope_of(server, expires_at_ms=1),
        Envelope(1, 2, "", {}, good.proxy_url, other.run_token, "j"),
        Envelope(1, 2, "", {}, good.proxy_url, good.run_token[:-4], "j"),
    ):
        with pytest.raises(ProxyError) as refused:
            proxy_call("get_order", {"order_id": "1"}, envelope=bad)
        assert (refused.value.code, refused.value.status) == ("token_invalid", 401)
        for text in (str(refused.value), repr(refused.value), repr(bad), caplog.text):
            assert bad.run_token not in text
    assert server.recorded("s1") == server.recorded("s2") == []
