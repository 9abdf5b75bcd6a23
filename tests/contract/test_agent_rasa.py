"""S02, S07: a Rasa assistant over its REST channel, its tracker's events in the trajectory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas import traces
from schemas.registry import AgentRegistration, RasaSettings
from services.dispatcher.agents.rasa import RasaAgent
from services.dispatcher.agents.rasa_tracker import MAX_EVENTS, rendered, trace_events
from services.runtime.agents.client import AgentFailed
from tests.support import kinds
from tests.support.http_server import serve
from tests.support.rasa_server import Rasa, Reply, Tracker

TOKEN = "rasa-token-canary+/="
SENDER = "5e5510-1"


def make(exchanger: Any, proxy: Any, _: Any) -> RasaAgent:
    return RasaAgent(exchanger, proxy)


def agent_at(url: str, **rasa: Any) -> AgentRegistration:
    return AgentRegistration(
        agent_id="a", name="a", kind="rasa", endpoint=f"{url}/", run_timeout_s=20,
        rasa=RasaSettings(**rasa),
    )  # fmt: skip


def clerk(text: str, tracker: Tracker, metadata: Mapping[str, Any]) -> Reply:
    """An assistant with a flow, a slot, and a custom action that calls a tool through the proxy."""
    tracker.add("flow_started", flow_id="check_order")
    tracker.add("slot", name="order_id", value="1")
    answer = httpx.post(
        f"{metadata['odyssey_proxy_url']}/tools/get_order", json={"order_id": "1"},
        headers={"Authorization": f"Bearer {metadata['run_token']}"},
    ).json()  # fmt: skip
    tracker.add("action", name="action_get_order", policy=None)
    replies = [
        tracker.says(f"It was {answer['response']['status']}.", "utter_status"),
        tracker.says("More?", buttons=[{"title": "Yes", "payload": "/y"}, {"title": "No"}]),
    ]
    tracker.add("flow_completed", flow_id="check_order", step_id="END")
    return replies


def echo(text: str, tracker: Tracker, _: Mapping[str, Any]) -> Reply:
    return [tracker.says(f"You said {text}.")]


@pytest.mark.req("S07", "R10")
def test_a_turn_says_answers_and_reports_what_the_assistant_did() -> None:
    rasa = Rasa(clerk, slots=("order_id",))
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        request = kinds.request_of(proxy)
        parsed = kinds.turn(make, agent_at(url), request)
        reported = kinds.traces(proxy)
        (called,) = kinds.calls(proxy)
    (message,) = rasa.messages
    assert (message["sender"], message["message"]) == (SENDER, "Where is order 1?")
    assert set(message["metadata"]) == {
        "task_id", "run_id", "odyssey_proxy_url", "run_token", "run_token_jti",
    }  # fmt: skip
    assert parsed.final_response == "It was shipped.\nMore?\n[options: Yes | No]"
    assert parsed.messages is not None
    assert [m["role"] for m in parsed.messages] == ["user", "assistant", "assistant"]
    assert called.tool == "get_order"
    payloads = [json.loads(one.payload) for one in reported]
    assert [p.get("event", p.get("name")) for p in payloads] == [
        "action_executed", "session_started", "action_executed", "flow_started", "slot_was_set",
        "action_executed", "bot_uttered", "bot_uttered", "flow_completed", "action_executed",
    ]  # fmt: skip
    assert {one.after_call for one in reported} == {1}
    assert payloads[4] == {"event": "slot_was_set", "name": "order_id", "value": "1"}
    assert payloads[6] == {
        "event": "bot_uttered", "text": "It was shipped.", "utter_name": "utter_status",
    }  # fmt: skip
    assert payloads[7]["buttons"][0]["title"] == "Yes"
    assert payloads[8]["flow_step_id"] == "END"
    # Rasa keeps the token in its tracker; the trajectory does not.
    assert request.run_token in json.dumps(rasa.trackers[SENDER].events)
    assert request.run_token not in repr((parsed, reported))


@pytest.mark.req("S07")
def test_later_turns_report_what_is_new_alone() -> None:
    rasa = Rasa(echo)
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        kinds.turn(make, agent_at(url), kinds.request_of(proxy, "one"))
        first = len(kinds.traces(proxy))
        again = kinds.request_of(proxy, "one", turn=2, history=("one", "You said one."))
        assert kinds.turn(make, agent_at(url), again).final_response == "You said one."
        new = kinds.traces(proxy)[first:]
    assert len(rasa.messages) == 2
    assert [json.loads(one.payload)["event"] for one in new] == ["bot_uttered", "action_executed"]


@pytest.mark.req("S07")
def test_a_turn_posted_again_does_not_say_it_twice() -> None:
    rasa = Rasa(clerk, slots=("order_id",))
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        first = kinds.turn(make, agent_at(url), kinds.request_of(proxy, dispatch="d1"))
        reported = len(kinds.traces(proxy))
        second = kinds.turn(make, agent_at(url), kinds.request_of(proxy, dispatch="d2"))
        assert len(kinds.traces(proxy)) == reported
        assert len(kinds.calls(proxy)) == 1
    assert len(rasa.messages) == 1
    assert second.final_response == first.final_response
    assert second.messages == first.messages


def test_conversations_and_sessions_do_not_share_a_sender() -> None:
    rasa = Rasa(echo)
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        for conversation in (1, 2):
            request = kinds.request_of(proxy, "hi", turn=conversation, conversation=conversation)
            kinds.turn(make, agent_at(url), request)
    assert list(rasa.trackers) == ["5e5510-1", "5e5510-2"]


@pytest.mark.req("S02")
def test_initial_slots_are_set_after_the_assistants_own_session_start() -> None:
    rasa = Rasa(echo, slots=("name", "tier"))
    state = {"name": "Ada", "tier": 3}
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        kinds.turn(make, agent_at(url), kinds.request_of(proxy, "hi", state=state))
        second = kinds.request_of(proxy, "bye", turn=2, history=("hi", "x"), state=state)
        kinds.turn(make, agent_at(url), second)
        payloads = [json.loads(one.payload) for one in kinds.traces(proxy)]
    assert [m["message"] for m in rasa.messages] == ["/session_start", "hi", "bye"]
    events = rasa.trackers[SENDER].events
    names = [(e["event"], e.get("name") or e.get("text")) for e in events]
    assert names.index(("action", "action_session_start")) < names.index(("slot", "name"))
    assert names.index(("slot", "tier")) < names.index(("user", "hi"))
    assert rasa.trackers[SENDER].slots["tier"] == 3
    assert {"event": "slot_was_set", "name": "name", "value": "Ada"} in payloads


@pytest.mark.req("S02")
def test_a_slot_that_the_assistant_does_not_have_makes_the_session_invalid() -> None:
    with serve(Rasa(echo, slots=("name",)).app) as url, pytest.raises(LookupError, match="tier"):
        kinds.turn(make, agent_at(url), kinds.request_of(None, state={"name": "Ada", "tier": 3}))


@pytest.mark.req("S07")
def test_the_channels_empty_answer_is_an_error_and_what_was_done_is_reported() -> None:
    def fails(text: str, tracker: Tracker, _: Mapping[str, Any]) -> Reply:
        tracker.add("action", name="action_that_fails")
        raise RuntimeError

    with serve(Rasa(fails).app) as url, kinds.proxy() as proxy:
        with pytest.raises(AgentFailed) as caught:
            kinds.turn(make, agent_at(url), kinds.request_of(proxy))
        assert (caught.value.outcome, caught.value.code) == ("error", "rasa_empty_reply")
        assert "action_that_fails" in repr(kinds.traces(proxy))


@pytest.mark.req("R18")
def test_the_trackers_token_is_sent_and_nowhere_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_RASA_TOKEN", TOKEN)
    rasa = Rasa(echo, token=TOKEN)
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        agent = agent_at(url, token_ref="env:TEST_RASA_TOKEN")
        kinds.turn(make, agent, kinds.request_of(proxy, "hi"))
        kinds.run(make, lambda kind: kind.check(agent, 5))
        monkeypatch.setenv("TEST_RASA_TOKEN", "wrong-token-canary")
        with pytest.raises(AgentFailed) as caught:
            kinds.turn(make, agent, kinds.request_of(proxy, "hi"))
        assert caught.value.code == "rasa_tracker_unreadable"
        assert "canary" not in str(caught.value)
        with pytest.raises(AgentFailed, match="401"):
            kinds.run(make, lambda kind: kind.check(agent, 5))


def test_without_a_tracker_nothing_is_read() -> None:
    rasa = Rasa(echo)
    with serve(rasa.app) as url, kinds.proxy() as proxy:
        kinds.turn(make, agent_at(url, tracker=False), kinds.request_of(proxy, "hi"))
        assert kinds.traces(proxy) == []
    assert rasa.requests == ["webhook"]


def answers(value: Any, status: int = 200) -> Starlette:
    async def handler(_: Request) -> Response:
        if isinstance(value, bytes):
            return Response(value, status)
        if value is asyncio.sleep:
            await asyncio.sleep(10)
        return JSONResponse(value, status)

    return Starlette(routes=[Route("/webhooks/rest/webhook", handler, methods=["POST"])])


@pytest.mark.parametrize(
    ("value", "status", "code"),
    [
        ([], 200, "rasa_empty_reply"),
        ([{"recipient_id": "x"}], 200, "rasa_empty_reply"),
        ([{"text": "  "}], 200, "rasa_empty_reply"),
        ({"text": "x"}, 200, "rasa_reply_malformed"),
        (["x"], 200, "rasa_reply_malformed"),
        ([{"text": "x"}] * 201, 200, "rasa_reply_malformed"),
        (b"nope", 200, "response_not_json"),
        (b"boom", 500, "http_status"),
        (asyncio.sleep, 200, "timeout"),
    ],
)
def test_what_the_channel_fails_with_is_typed(value: Any, status: int, code: str) -> None:
    with serve(answers(value, status)) as url:
        agent = replace(agent_at(url, tracker=False), run_timeout_s=1)
        with pytest.raises(AgentFailed) as caught:
            kinds.turn(make, agent, kinds.request_of(None))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "answer", [Response(b"x", 404), Response(b"{nope"), JSONResponse({"events": {}})]
)
def test_a_tracker_that_cannot_be_read_is_an_error(answer: Response) -> None:
    rasa = Rasa(echo)
    rasa.tracker_answer = answer
    with serve(rasa.app) as url, pytest.raises(AgentFailed):
        kinds.turn(make, agent_at(url), kinds.request_of(None))
    assert rasa.messages == []


@pytest.mark.req("S07")
def test_more_events_than_are_kept_are_counted() -> None:
    def busy(text: str, tracker: Tracker, _: Mapping[str, Any]) -> Reply:
        for n in range(MAX_EVENTS + 20):
            tracker.add("action", name=f"action_{n}")
        return [tracker.says("ok")]

    with serve(Rasa(busy).app) as url, kinds.proxy() as proxy:
        parsed = kinds.turn(make, agent_at(url), kinds.request_of(proxy))
        names = [json.loads(one.payload).get("name") for one in kinds.traces(proxy)]
    assert len(names) == MAX_EVENTS
    assert names[3:6] == ["action_0", "action_1", "action_2"]
    assert "too many" in parsed.soft_warnings[0]


EVENTS: list[Any] = [
    {"event": "flow_started", "flow_id": "f"},
    {"event": "flow_cancelled", "flow_id": "f", "step_id": "s"},
    {"event": "flow_interrupted", "flow_id": "f", "step_id": None},
    {"event": "flow_resumed", "flow_id": "f", "step_id": "s"},
    {"event": "slot", "name": "a", "value": {"b": [1, None]}},
    {"event": "slot", "name": "session_started_metadata", "value": {"run_token": "x"}},
    {"event": "bot", "text": None, "data": {"buttons": "odd"}, "metadata": None},
    {"event": "action", "name": None, "action_text": "free"},
    {"event": "active_loop", "name": "form", "timestamp": 1.0, "metadata": {"a": 1}},
    {"event": "stack", "update": json.dumps([{
        "op": "add", "path": "/0",
        "value": {"flow_id": "pattern_clarification", "names": ["f", "g"], "frame_id": "x"},
    }])},
    {"event": "stack", "update": "[{\"op\": \"remove\", \"path\": \"/0\"}]"},
    {"event": "agent_started", "agent_id": "refunds", "flow_id": "f"},
    {"event": "agent_started", "agent_id": "not a label!", "flow_id": "f"},
    {"event": "slot", "name": "n" * 300, "value": 1},
    {"event": "custom" * 100},
    {"event": "user", "text": "hi"},
    {"event": None}, {}, None, "x", 5, [],
]  # fmt: skip


@pytest.mark.req("S07", "R10")
def test_tracker_events_of_all_kinds_have_the_shapes_that_the_proxy_takes() -> None:
    found, left_out = trace_events(EVENTS)
    assert left_out == 0
    assert traces.parse({"events": found}) == found
    shapes = [one["payload"].get("event", one["payload"].get("name", one["type"])) for one in found]
    assert shapes[:11] == [
        "flow_started", "flow_cancelled", "flow_interrupted", "flow_resumed", "slot_was_set",
        "bot_uttered", "action", "active_loop", "pattern_clarification", "handoff",
        "agent_started",
    ]  # fmt: skip
    assert found[8]["payload"]["flow_ids"] == ["f", "g"]
    assert "run_token" not in repr(found)


def test_events_that_are_too_large_or_too_deep_are_left_out() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = [deep]
    found, left_out = trace_events(
        [
            {"event": "slot", "name": "a", "value": "x" * 100_000},
            {"event": "slot", "name": "b", "value": deep},
            {"event": "slot", "name": "c", "value": 1},
        ]
    )
    assert ([one["payload"]["name"] for one in found], left_out) == (["c"], 2)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"text": "Hi"}, "Hi"),
        ({"image": "http://x/y.png"}, "[image: http://x/y.png]"),
        ({"text": "Pick", "buttons": [{"title": "A"}, {"title": "B"}]}, "Pick\n[options: A | B]"),
        ({"custom": {"a": 1}}, '[custom: {"a":1}]'),
        ({"attachment": {"type": "file"}}, '[attachment: {"type":"file"}]'),
        ({"text": None, "buttons": [{"payload": "/x"}, None]}, ""),
        ({"recipient_id": "x"}, ""),
    ],
)
def test_replies_are_rendered_as_a_user_would_see_them(reply: dict[str, Any], text: str) -> None:
    assert rendered(reply) == text
    assert orjson.loads(orjson.dumps(text)) == text
