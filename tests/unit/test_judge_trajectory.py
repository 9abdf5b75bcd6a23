"""A session's events, read as a trajectory; and what its calls came to."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.moments import CallMatch
from services.judge.outcomes import (
    MalformedBrief,
    at,
    matches,
    refused_for_mistake,
    same,
    succeeded,
)
from services.judge.trajectory import Trajectory, UnreadableTrajectory, read
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("V09")


def after_call(**fields: object) -> Trajectory:
    return read(Session(world={}).user().call("refund", {"id": "7"}, **fields).end())


def test_steps_of_every_kind_are_read_in_order() -> None:
    session = Session(world={"n": 1}).user("Hi").trace().call("get", {"id": 7}, {"ok": 1})
    trajectory = read(session.agent("Hello").end("gave_up"))
    assert [event.step for event in trajectory.events] == ["start", "u1", "x1", "t1", "a1", "end"]
    assert trajectory.calls[0].arguments == {"id": 7}
    assert trajectory.calls[0].response == {"ok": 1}
    assert trajectory.agent_turns[0].said == ("Hello",)
    assert trajectory.end.reason == "gave_up"
    assert trajectory.steps == {"start", "u1", "x1", "t1", "a1", "end"}


def test_the_first_event_of_an_id_counts_and_nothing_after_the_end() -> None:
    events = Session(world={}).user("Hi").agent("first").end()
    turn = dataclasses.replace(events[2].agent_turn, final_response="second")
    second = dataclasses.replace(events[2], agent_turn=turn)
    late = dataclasses.replace(second, event_id="run-1/case/0:a2")
    trajectory = read([*events[:3], second, *events[3:], late])
    assert [step.body.final_response for step in trajectory.agent_turns] == ["first"]


@pytest.mark.parametrize(
    ("cut", "message"), [(slice(1, None), "start is missing"), (slice(0, -1), "end is missing")]
)
def test_half_a_session_is_no_trajectory(cut: slice, message: str) -> None:
    with pytest.raises(UnreadableTrajectory, match=message):
        read(Session().user().agent().end()[cut])


def test_events_of_two_sessions_are_no_trajectory() -> None:
    one, two = Session().user().end(), Session(session_id="run-1/case/1").user().end()
    with pytest.raises(UnreadableTrajectory, match="several sessions"):
        read([one[0], two[1], one[2]])


def test_the_world_at_both_ends_follows_from_the_patches() -> None:
    session = Session(world={"orders": {"7": {"paid": 20}}, "log": []}).user()
    session.call("get", changes=[])
    session.call("refund", changes=[{"op": "replace", "path": "/orders/7/paid", "value": 0}])
    session.call("note", changes=[{"op": "add", "path": "/log/-", "value": "refunded"}])
    trajectory = read(session.end())
    assert trajectory.world is not None
    assert trajectory.world.start == {"orders": {"7": {"paid": 20}}, "log": []}
    assert trajectory.world.end == {"orders": {"7": {"paid": 0}}, "log": ["refunded"]}
    assert [set(call.touched) for call in trajectory.calls] == [
        set(), {"/orders/7/paid"}, {"/log/-"}
    ]  # fmt: skip


def test_reading_the_world_leaves_the_start_state_and_the_record_alone() -> None:
    session = Session(world={"list": []}).user().call("get")
    session.call("add", changes=[{"op": "add", "path": "/list/-", "value": {"n": []}}])
    session.call("fill", changes=[{"op": "add", "path": "/list/0/n/-", "value": 1}])
    session.call("reset", changes=[{"op": "replace", "path": "", "value": {"list": [2]}}])
    session.call("more", changes=[{"op": "add", "path": "/list/-", "value": 3}])
    trajectory = read(session.end())
    assert trajectory.world is not None
    assert (trajectory.world.start, trajectory.world.end) == ({"list": []}, {"list": [2, 3]})
    assert trajectory.calls[3].touched == {""}


def test_a_session_without_calls_has_no_known_world() -> None:
    assert read(Session(world={"n": 1}).user().agent().end()).world is None


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ("{", "not an RFC 6902 patch"),
        ('[{"op": "add", "path": "/a", "value": 1}]', "does not set the start state"),
        ('[{"op": "replace", "path": "", "value": {}}, {"op": "remove", "path": "/a"}]', "apply"),
        ('[{"op": "replace", "path": "", "value": {}}, {"op": "fly", "path": "/a"}]', "apply"),
        ('[{"op": "replace", "path": "", "value": 1}, {"op": "add", "path": "/a"}]', "apply"),
    ],
)
def test_a_damaged_patch_is_said_to_be_one(patch: str, message: str) -> None:
    events = Session(world={}).user().call("get").end()
    called = dataclasses.replace(events[2].tool_called, state_patch=patch)
    events[2] = dataclasses.replace(events[2], tool_called=called)
    with pytest.raises(UnreadableTrajectory, match=message):
        _ = read(events).world


def test_what_the_agent_said_includes_new_assistant_messages_and_no_others() -> None:
    first = [{"role": "system", "content": "secret"}, {"role": "assistant", "content": "thinking"}]
    parts = [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]
    second = [*first, {"role": "user", "content": "u"}, {"role": "assistant", "content": parts}]
    session = Session().user().agent("one", messages=first).user().agent("one", messages=second)
    said = [turn.said for turn in read(session.end()).agent_turns]
    assert said == [("one", "thinking"), ("one", "in parts")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response": {"ok": 1}}, True),
        ({"response": "plain text"}, True),
        ({"source": "passthrough"}, True),
        ({"response": {"error": None}}, True),
        ({"source": "injected"}, True),  # a canned response
        ({"injected": "content"}, True),
        ({"injected": "slow"}, True),
        ({"injected": "partial"}, True),
        ({"response": {"error": {"code": "not_found"}}}, False),
        ({"injected": "timeout"}, False),
        ({"injected": "malformed", "response": '{"or'}, False),
        ({"injected": "outage", "source": "odyssey"}, False),
        ({"source": "transport_error"}, False),
        ({"error": "arguments_invalid", "status": 422}, False),
        ({"status": 502}, False),
    ],
)
def test_which_calls_succeeded(fields: dict[str, object], expected: bool) -> None:
    assert succeeded(after_call(**fields).calls[0]) is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"error": "arguments_invalid", "status": 422}, True),
        ({"error": "tool_unknown", "status": 404}, True),
        ({"error": "tool_call_limit", "status": 403}, False),
        ({"error": "rate_limited", "status": 429}, False),
        ({"error": "world_failed", "status": 500}, False),
        ({"injected": "schema_mismatch"}, False),
        ({"response": {"error": {"code": "not_found"}}}, False),
    ],
)
def test_which_refusals_are_the_agents_mistake(fields: dict[str, object], expected: bool) -> None:
    assert refused_for_mistake(after_call(**fields).calls[0]) is expected


def test_a_pattern_asks_for_tool_arguments_success_and_response() -> None:
    call = after_call(response={"order": {"total": 5}}).calls[0]
    assert matches(call, CallMatch(tool="refund"))
    assert matches(call, CallMatch(tool="refund", arguments={"id": "7"}, ok=True))
    assert matches(call, CallMatch(tool="refund", response={"/order/total": 5.0}))
    assert not matches(call, CallMatch(tool="cancel"))
    assert not matches(call, CallMatch(tool="refund", arguments={"id": 7}))
    assert not matches(call, CallMatch(tool="refund", arguments={"id": "7", "why": None}))
    assert not matches(call, CallMatch(tool="refund", ok=False))
    assert not matches(call, CallMatch(tool="refund", response={"/order/tax": 5}))


def test_values_are_compared_as_json() -> None:
    assert same(1, 1.0)
    assert same({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]})
    assert not same(True, 1)
    assert not same({"a": True}, {"a": 1})
    assert not same([1], [1, 1])
    assert not same("1", 1)


def test_a_broken_pointer_is_a_mistake_of_the_scenario_not_an_absent_value() -> None:
    assert repr(at({"a": [1]}, "/a/-")) == repr(at({"a": [1]}, "/a/1")) == "nothing"
    with pytest.raises(MalformedBrief, match="not a JSON pointer"):
        at({"a": 1}, "a")
