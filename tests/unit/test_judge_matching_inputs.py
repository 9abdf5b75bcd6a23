"""Calls from recorded events and from chat messages of every form."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, messages_to_dict

from services.judge.matching import (
    Call,
    PackageRaises,
    UnreadableMessages,
    calls_of_events,
    calls_of_messages,
    match,
    messages_of_events,
)
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("P07")


def session() -> Session:
    return (
        Session()
        .user("Refund order 7.")
        .call("find", {"id": 7}, {"status": "open"})
        .call("refund", {"id": 7}, error="tool_call_limit", status=403)
        .agent("Done.")
    )


def test_recorded_calls_come_in_the_order_of_the_log_and_refused_ones_count() -> None:
    calls = calls_of_events(session().end())
    assert [(call.tool, call.arguments, call.label) for call in calls] == [
        ("find", {"id": 7}, "t1"),
        ("refund", {"id": 7}, "t2"),
    ]
    assert all(call.group is None for call in calls)


def test_of_events_with_one_id_the_first_counts_and_none_after_the_end() -> None:
    events = list(session().end())
    body = events[2].tool_called
    assert body is not None
    again = dataclasses.replace(events[2], tool_called=dataclasses.replace(body, tool="other"))
    late = dataclasses.replace(events[2], event_id="run-1/case/0:t9")
    assert calls_of_events([*events[:3], again, *events[3:], late]) == calls_of_events(events)


@pytest.mark.parametrize("text", ["{", "", "[" * 5000 + "]" * 5000])
def test_arguments_that_cannot_be_read_stay_text(text: str) -> None:
    events = list(session().end())
    body = events[2].tool_called
    assert body is not None
    events[2] = dataclasses.replace(
        events[2], tool_called=dataclasses.replace(body, arguments=text)
    )
    calls = calls_of_events(events)
    assert calls[0].arguments == text
    assert not match(calls, [Call("find", {"id": 7})], mode="superset").matched
    assert match(calls, calls, mode="strict").matched


def test_a_session_as_messages_matches_itself_in_every_profile() -> None:
    messages = messages_of_events(session().end())
    assert [message["role"] for message in messages] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert json.loads(messages[2]["content"]) == {"status": "open"}
    assert messages[3]["tool_calls"][0]["id"] == messages[4]["tool_call_id"] == "t2"
    reference = [{**message, "content": "other words"} for message in messages]
    for profile in ("windtunnel", "openevals-0.2.2", "agentevals-0.0.9"):
        found = match(messages, reference, mode="strict", profile=profile)
        assert found.matched, found


def test_calls_are_given_to_the_packages_as_one_message_each() -> None:
    calls = calls_of_events(session().end())
    messages = [m for m in messages_of_events(session().end()) if m.get("tool_calls")]
    for profile in ("openevals-0.2.2", "agentevals-0.0.9"):
        assert match(calls, messages, mode="strict", profile=profile).matched
        assert not match(calls, messages[::-1], mode="strict", profile=profile).matched
        with pytest.raises(PackageRaises, match="no object"):
            match([Call("find", "{")], [], mode="subset", profile=profile)


FUNCTION = {"name": "get", "arguments": '{"x": 1}'}
LANGCHAIN = {"name": "get", "args": {"x": 1}, "id": "c"}
TOOL_USE = {"type": "tool_use", "id": "c", "name": "get", "input": {"x": 1}}
RESPONSES = {"type": "function_call", "call_id": "c", "name": "get", "arguments": '{"x": 1}'}
SERIALISED = {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"]}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "tool_calls": [{"id": "c", "function": FUNCTION}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "get", "arguments": {"x": 1}}}]},
        {"role": "ai", "tool_calls": [LANGCHAIN]},
        {"type": "ai", "content": "", "tool_calls": [LANGCHAIN]},
        {"role": "assistant", "additional_kwargs": {"tool_calls": [{"function": FUNCTION}]}},
        {"role": "assistant", "content": ["Hm.", TOOL_USE]},
        {"role": "assistant", "content": [RESPONSES]},
        {"role": "assistant", "content": [TOOL_USE], "tool_calls": [LANGCHAIN]},
        {"role": "assistant", "content": [RESPONSES], "tool_calls": [LANGCHAIN]},
        {**SERIALISED, "kwargs": {"content": "", "tool_calls": [LANGCHAIN]}},
        {**SERIALISED, "kwargs": {"type": "ai", "content": "", "tool_calls": [LANGCHAIN]}},
        messages_to_dict([AIMessage("", tool_calls=[LANGCHAIN])])[0],
        AIMessage("", tool_calls=[LANGCHAIN]),
        AIMessageChunk("", tool_calls=[LANGCHAIN]),
    ],
)
def test_one_call_in_every_form(message: Any) -> None:
    expected = (Call("get", {"x": 1}, label="message 2", group=1),)
    assert calls_of_messages([HumanMessage("Hello."), message]) == expected
    assert calls_of_messages({"messages": [{"role": "user"}, message]}) == expected


@pytest.mark.parametrize("arguments", [None, ""])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    function = {"name": "get", "arguments": arguments}
    message = {"role": "assistant", "tool_calls": [{"function": function}]}
    assert calls_of_messages(message)[0].arguments == {}


def test_only_the_assistants_calls_count() -> None:
    for role in ("user", "tool", "system"):
        assert calls_of_messages([{"role": role, "tool_calls": [LANGCHAIN]}]) == ()
    assert calls_of_messages(None) == ()


@pytest.mark.parametrize(
    "messages",
    [
        "Hello.", 7, {}, {"messages": ["Hello."]}, [{"content": "Hello."}], [None],
        [{"role": "assistant", "tool_calls": [{"args": {}}]}],
        [{"role": "assistant", "tool_calls": ["get"]}],
        [{"role": "assistant", "tool_calls": LANGCHAIN}],
        [{"role": "assistant", "content": [{"type": "tool_use"}]}],
        [Call("get", {}), {"role": "user"}],
    ],
)  # fmt: skip
def test_what_is_no_trajectory_is_refused(messages: Any) -> None:
    with pytest.raises(UnreadableMessages):
        match(messages, [], mode="strict")
    with pytest.raises(UnreadableMessages):
        match([], messages, mode="strict")
