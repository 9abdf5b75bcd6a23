"""R10: trace events over HTTP - their shapes, their order, batches, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest

from schemas.traces import MAX_EVENTS, TraceInvalid, VersionUnknown, json_schema, parse
from schemas.trajectory import TraceEvent
from services.tool_proxy.session import ProxyCore
from services.tool_proxy.trace_docs import EXAMPLES, documentation
from tests.support.proxy_server import Server, check_refused, serving
from tests.support.tool_proxy import MemoryLog, make_world

pytestmark = pytest.mark.req("R10")
ROOT = Path(__file__).parents[2]
REASONING = {"type": "reasoning", "payload": {"text": "so"}}
INVALID: list[tuple[Any, str]] = [
    ({}, ""),
    ({"type": "plan"}, "/payload"),
    ({"payload": {}}, ""),
    ({"type": "mood", "payload": {}}, ""),
    ({"type": 1, "payload": {}}, ""),
    ({"type": "plan", "payload": []}, "/payload"),
    ({"type": "plan", "payload": {}}, "/payload/steps"),
    ({"type": "plan", "payload": {"steps": [""]}}, "/payload/steps/0"),
    ({"type": "plan", "payload": {"steps": [{"text": "a", "status": "?"}]}}, "/payload/steps/0"),
    ({**REASONING, "x": 1}, "/x"),
    ({**REASONING, "version": "1"}, "/version"),
    ({**REASONING, "version": None}, "/version"),
    ({"type": "reasoning", "payload": {}}, "/payload"),
    ({"type": "reasoning", "payload": {"text": None}}, "/payload"),
    ({"type": "reasoning", "payload": {"text": 1}}, "/payload/text"),
    ({"type": "reasoning", "payload": {"blocks": ["a"]}}, "/payload/blocks/0"),
    ({"type": "handoff", "payload": {"from": "a"}}, "/payload/to"),
    ({"type": "handoff", "payload": {"to": "a//b"}}, "/payload/to"),
    ({"type": "state", "payload": {}}, "/payload"),
    ({"type": "state", "payload": {"event": "flow_started"}}, "/payload/flow_id"),
    ({"type": "state", "payload": {"event": "slot_was_set", "name": "a"}}, "/payload/value"),
    ({"type": "state", "payload": {"event": "flow_ended", "flow_id": "a"}}, "/payload"),
    ({"type": "custom", "payload": {"data": 1}}, "/payload/name"),
    ({"events": []}, "/events"),
    ({"events": {}}, "/events"),
    ({"events": [REASONING], "version": 1}, "/version"),
    ({"events": [REASONING, 1]}, "/events/1"),
    ({"events": [REASONING] * (MAX_EVENTS + 1)}, "/events"),
    ({"events": [{"events": [REASONING]}]}, "/events/0"),
]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()})), traces=200) as running:
        running.start("s1")
        yield running


def post(server: Server, body: Any, **headers: str) -> httpx.Response:
    return server.client.post(
        f"{server.base()}/trace", json=body, headers=server.headers() | headers
    )


def recorded(server: Server) -> list[TraceEvent]:
    return [event.trace for event in server.recorded() if event.trace is not None]


def test_every_kind_is_recorded_as_it_was_posted(server: Server) -> None:
    for example in EXAMPLES:
        response = post(server, example)
        assert (response.status_code, response.json()) == (202, {"accepted": True})
    got = [(trace.type, json.loads(trace.payload)) for trace in recorded(server)]
    assert got == [(example["type"], example["payload"]) for example in EXAMPLES]
    extra = {"type": "plan", "payload": {"steps": [{"text": "a", "id": [1]}], "model": {"n": None}}}
    assert post(server, extra).status_code == 202
    assert json.loads(recorded(server)[-1].payload) == extra["payload"]


def test_events_keep_their_place_among_calls(server: Server) -> None:
    assert post(server, REASONING).status_code == 202
    server.call("get_order", {"order_id": "1"})
    handoff = {"type": "handoff", "payload": {"to": "refunds"}}
    assert post(server, handoff, **{"X-Pipelines-Actor-Id": "supervisor"}).status_code == 202
    server.call("get_order", {"order_id": "2"})
    assert post(server, {"events": [REASONING, handoff]}).status_code == 202
    assert [event.step for event in server.recorded()] == ["x1", "t1", "x2", "t2", "x3", "x4"]
    assert [trace.after_call for trace in recorded(server)] == [0, 1, 2, 2]
    assert [trace.actor for trace in recorded(server)] == [None, "supervisor", None, None]


def test_a_batch_is_taken_whole_or_not_at_all(server: Server) -> None:
    events = [{"type": "custom", "payload": {"name": "n", "data": n}} for n in range(MAX_EVENTS)]
    assert post(server, {"events": events}).status_code == 202
    assert [json.loads(trace.payload)["data"] for trace in recorded(server)] == list(range(100))
    broken = [*events[:5], {"type": "custom", "payload": {}}]
    details = check_refused(post(server, {"events": broken}), "trace_invalid")
    assert [error["path"] for error in details["errors"]] == ["/events/5/payload/name"]
    assert len(recorded(server)) == 100
    # 200 events are the limit here.
    assert post(server, {"events": events[:99]}).status_code == 202
    check_refused(post(server, {"events": events[:2]}), "trace_limit")
    assert len(recorded(server)) == 199
    assert post(server, REASONING).status_code == 202


@pytest.mark.parametrize("failing", ["lost", "landed"])
def test_a_batch_that_failed_half_way_is_completed_by_its_repetition(
    server: Server, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    same = {"type": "custom", "payload": {"name": "n"}}
    other = {"type": "custom", "payload": {"name": "other"}}
    batch = {"events": [same, same, other, same]}
    record, left = server.log.record, 2

    async def sometimes(event: Any) -> None:
        nonlocal left
        left -= 1
        server.log.failing = failing if left < 0 else ""
        await record(event)

    monkeypatch.setattr(server.log, "record", sometimes)
    check_refused(post(server, batch), "log_unavailable")
    left = 1_000
    assert post(server, batch).status_code == 202
    names = [json.loads(trace.payload)["name"] for trace in recorded(server)]
    assert names == ["n", "n", "other", "n"]
    assert post(server, batch).status_code == 202  # a new report, not a repetition
    assert len(recorded(server)) == 8


@pytest.mark.parametrize(("body", "path"), INVALID)
def test_what_is_no_trace_event_is_refused_by_server_and_schema_alike(
    server: Server, body: Any, path: str
) -> None:
    details = check_refused(post(server, body), "trace_invalid")
    assert details["errors"][0]["path"].startswith(path)
    assert details["errors"][0]["message"]
    assert recorded(server) == []
    assert not jsonschema_rs.is_valid(json_schema(), body)


def test_an_unknown_version_is_refused_as_such(server: Server) -> None:
    for body in ({**REASONING, "version": 2}, {"type": "?", "version": 0},
                 {"events": [REASONING, {**REASONING, "version": 3}]}):  # fmt: skip
        details = check_refused(post(server, body), "trace_version_unknown")
        assert details == {"versions": [1]}
    assert recorded(server) == []
    assert post(server, {**REASONING, "version": 1}).status_code == 202


def test_the_schema_is_served_and_takes_what_the_models_take(server: Server) -> None:
    response = server.client.get(f"{server.url}/schemas/trace-event.json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == json_schema()
    for body in (*EXAMPLES, {"events": list(EXAMPLES)}):
        assert parse(body) == body.get("events", [body])
        assert jsonschema_rs.is_valid(response.json(), body)


def test_the_page_is_made_from_the_models() -> None:
    assert (ROOT / "docs" / "trace-events.md").read_text() == documentation()


def test_true_is_no_version() -> None:
    with pytest.raises(TraceInvalid):
        parse({**REASONING, "version": True})
    with pytest.raises(VersionUnknown):
        parse({**REASONING, "version": -1})
