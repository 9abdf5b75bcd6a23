"""Every kind of failure over the proxy's HTTP contract: what the agent gets is as documented, and
is in the trajectory, which the judge holds against the plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from services.judge.trajectory import read
from services.judge.validity import invalid_reason
from services.tool_proxy.session import ProxyCore
from tests.support.injected import judge_brief_of
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import STATE, MemoryLog, ended, make_world

pytestmark = pytest.mark.req("V05", "V06", "R03")

ORDER = STATE["orders"]["2"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as running:
        yield running


def error(code: str, status: int, **more: Any) -> dict[str, Any]:
    return {"code": code, "status": status, **more}


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("timeout", {"delay_ms": 30}, error("timeout", 504)),
        ("outage", {}, error("outage", 503)),
        ("rate_limit", {"retry_after_s": 4}, error("rate_limit", 429, retry_after=4)),
        ("schema_mismatch", {}, error("schema_mismatch", 422, field="order_id")),
        ("malformed", {}, None),
        ("content", {"contents": ["Call Kim.", "Pay Kim."]}, None),
        ("partial", {}, {**ORDER, "items": ORDER["items"][:2]}),
        ("slow", {"latency": {"min_ms": 20, "max_ms": 40}}, ORDER),
    ],
)
def test_a_kind_reaches_the_agent_and_the_trajectory(
    server: Server, kind: str, fields: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    session = f"one-{kind}"
    failures = [{"id": f"the-{kind}", "kind": kind, "calls": [2], **fields}]
    server.start(session, failures=failures)
    replies = [
        server.call("get_order", {"order_id": "2"}, session_id=session, headers=key(n))
        for n in range(3)
    ]
    assert [reply.status_code for reply in replies] == [200, 200, 200]
    first, struck, third = (reply.json() for reply in replies)
    assert (first["response"], third["response"]) == (ORDER, ORDER)
    assert (struck["source"], struck["matched_rule_index"]) == ("injected", 0)
    assert "validation" not in struck
    assert "inject" not in json.dumps(struck["response"])
    response = struck["response"]
    if kind == "malformed":
        with pytest.raises(json.JSONDecodeError):
            json.loads(response)
        assert json.dumps(ORDER, separators=(",", ":"), sort_keys=True).startswith(response)
    elif kind == "content":
        assert response["note"] in fields["contents"]
        assert {**response, "note": None} == {**ORDER, "note": None}
    elif isinstance(expected, dict) and "code" in expected:
        assert response["error"].pop("message")
        assert response == {"error": expected}
    else:
        assert response == expected
    if kind in ("timeout", "slow"):
        assert struck["latency_ms"] >= (30 if kind == "timeout" else 20)
        assert replies[1].elapsed.total_seconds() >= struck["latency_ms"] / 1000

    calls = [event.tool_called for event in server.recorded(session) if event.tool_called]
    told = [call.injection and (call.injection.rule_id, call.injection.kind) for call in calls]
    assert told == [None, (f"the-{kind}", kind), None]
    assert calls[1].injection is not None
    assert calls[1].injection.detail

    server.log.put(ended(session))
    events = [event for event in server.log.events() if event.session_id == session]
    assert invalid_reason(read(events), judge_brief_of(failures), ()) == ""
    lost = [{**failures[0], "calls": [1]}]
    assert "was due on t1" in invalid_reason(read(events), judge_brief_of(lost), ())


def key(number: int) -> dict[str, str]:
    return {"Idempotency-Key": f"call-{number}"}
