"""Each type of assertion both ways, and where a session cannot tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.assertions import (
    TRACKER,
    action,
    clarified,
    flow,
    judged,
    slot,
    states,
    uttered,
)
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("S05")

HOLDS, FAILS, OPEN = (True, "scored"), (False, "scored"), (None, "unscored")
BUTTONS = [{"title": "Yes", "payload": "/yes"}, {"title": "No", "payload": "/no"}]

A, B, OTHER = flow("started", "a"), flow("started", "b"), action("other")
STARTED: list[tuple[Any, list[Any], Any]] = [
    ({"flow_ids": ["a"], "operator": "all"}, [A], HOLDS),
    ({"flow_ids": ["a", "b"], "operator": "all"}, [A, B], HOLDS),
    ({"flow_ids": ["a", "b"], "operator": "all"}, [A], FAILS),
    ({"flow_ids": ["a", "b"]}, [B], FAILS),
    ({"flow_ids": ["a", "b"], "operator": "any"}, [B], HOLDS),
    ({"flow_ids": ["a", "b"], "operator": "any"}, [flow("started", "c")], FAILS),
    ({"flow_ids": ["a"]}, [flow("completed", "a")], FAILS),
    ({"flow_ids": ["a"]}, [TRACKER], FAILS),
    ({"flow_ids": ["a"]}, [OTHER], OPEN),
    ({"flow_ids": ["a"]}, [], OPEN),
    ("a", [A], HOLDS),
]
END: list[tuple[Any, list[Any], Any]] = [
    ({"flow_id": "a"}, [("a", None)], HOLDS),
    ({"flow_id": "a"}, [("a", "end")], HOLDS),
    ({"flow_id": "a", "flow_step_id": "end"}, [("a", "pay"), ("a", "end")], HOLDS),
    ({"flow_id": "a", "flow_step_id": "end"}, [("a", "pay")], FAILS),
    ({"flow_id": "a", "flow_step_id": "end"}, [("a", None)], OPEN),
    ({"flow_id": "a"}, [("b", None)], FAILS),
    ({"flow_id": "a", "flow_step_id": "end"}, [("b", "end")], FAILS),
    ({"flow_id": "a"}, [], OPEN),
]
SET: list[tuple[Any, list[Any], Any]] = [
    ([{"name": "id"}], [slot("id", "7")], HOLDS),
    ([{"name": "id"}], [slot("id", False)], HOLDS),
    ([{"name": "id"}], [slot("id", None)], FAILS),
    ([{"name": "id", "value": None}], [slot("id", None)], HOLDS),
    ([{"name": "id", "value": None}], [slot("id", 1)], FAILS),
    ([{"name": "id", "value": "7"}], [slot("id", "7"), slot("id", None)], HOLDS),
    ([{"name": "id", "value": "7"}], [slot("id", 7)], FAILS),
    ([{"name": "id", "value": True}], [slot("id", 1)], FAILS),
    ([{"name": "id", "value": 1}], [slot("id", 1.0)], HOLDS),
    ([{"name": "id", "value": {"a": [1]}}], [slot("id", {"a": [1]})], HOLDS),
    ([{"name": "id"}, {"name": "to"}], [slot("id", 1), slot("to", 2)], HOLDS),
    ([{"name": "id"}, {"name": "to"}], [slot("id", 1)], FAILS),
    ([{"name": "id"}], [TRACKER], FAILS),
    ([{"name": "id"}], [A], OPEN),
    ([{"name": "id"}], [], OPEN),
]
NOT_SET: list[tuple[Any, list[Any], Any]] = [
    ([{"name": "id"}], [slot("to", 1)], HOLDS),
    ([{"name": "id"}], [slot("id", None)], HOLDS),
    ([{"name": "id"}], [slot("id", "7"), slot("id", None)], FAILS),
    ([{"name": "id", "value": "7"}], [slot("id", "8")], HOLDS),
    ([{"name": "id", "value": "7"}], [slot("id", "8"), slot("id", "7")], FAILS),
    ([{"name": "id", "value": None}], [slot("id", None)], FAILS),
    ([{"name": "id"}, {"name": "to"}], [slot("to", 1)], FAILS),
    ([{"name": "id"}], [TRACKER], HOLDS),
    ([{"name": "id"}], [A], OPEN),
    ([{"name": "id"}], [], OPEN),
]
CLARIFIED: list[tuple[Any, list[Any], Any]] = [
    ({"flow_ids": ["a", "b"], "operator": "all"}, [clarified("b", "c", "a")], HOLDS),
    ({"flow_ids": ["a", "b"], "operator": "all"}, [clarified("a"), clarified("b")], FAILS),
    ({"flow_ids": ["a", "b"], "operator": "any"}, [clarified("b")], HOLDS),
    ({"flow_ids": ["a", "b"], "operator": "any"}, [clarified("c")], FAILS),
    (["a"], [clarified("a")], HOLDS),
    ({"flow_ids": ["a"]}, [TRACKER], FAILS),
    ({"flow_ids": ["a"]}, [A], OPEN),
]
UTTERED: list[tuple[Any, list[Any], Any]] = [
    ({"utter_name": "utter_a"}, [uttered(utter_name="utter_a")], HOLDS),
    ({"utter_name": "utter_a"}, [uttered(utter_name="utter_b")], FAILS),
    ({"utter_name": "utter_a"}, [TRACKER], FAILS),
    ({"utter_name": "utter_a"}, [uttered(text="Hi")], OPEN),
    ({"utter_name": "utter_a"}, [], OPEN),
    ({"text_matches": "is late"}, [], HOLDS),
    ({"text_matches": "^It .* late\\.$"}, [], HOLDS),
    ({"text_matches": "IS LATE"}, [], FAILS),
    ({"text_matches": "(?i)IS LATE"}, [], HOLDS),
    ({"text_matches": "^(?!.*sorry)It"}, [], HOLDS),
    ({"text_matches": "lost"}, [], FAILS),
    ({"text_matches": "Costs (EUR)?"}, [uttered(text="Costs (EUR)?")], HOLDS),
    ({"buttons": BUTTONS}, [uttered(buttons=BUTTONS)], HOLDS),
    ({"buttons": ["Yes", "No"]}, [uttered(buttons=BUTTONS)], HOLDS),
    ({"buttons": BUTTONS}, [uttered(buttons=BUTTONS[::-1])], FAILS),
    ({"buttons": BUTTONS[:1]}, [uttered(buttons=BUTTONS)], FAILS),
    ({"buttons": [{"title": "Yes", "payload": "/y"}]}, [uttered(buttons=BUTTONS[:1])], FAILS),
    ({"buttons": BUTTONS}, [uttered(text="Hi")], OPEN),
    ({"utter_name": "u", "text_matches": "Hi"}, [uttered(utter_name="u", text="Hi!")], HOLDS),
    ({"utter_name": "u", "text_matches": "late"}, [uttered(utter_name="u")], HOLDS),
    ({"utter_name": "u", "text_matches": "late"}, [uttered(utter_name="u", text="Hi")], FAILS),
    ({"utter_name": "u", "text_matches": "lost"}, [], FAILS),
    ({"utter_name": "u", "text_matches": "late"}, [], OPEN),
]
NOT_UTTERED: list[tuple[Any, list[Any], Any]] = [
    ({"utter_name": "utter_a"}, [uttered(utter_name="utter_b")], HOLDS),
    ({"utter_name": "utter_a"}, [uttered(utter_name="utter_a")], FAILS),
    ({"utter_name": "utter_a"}, [TRACKER], HOLDS),
    ({"utter_name": "utter_a"}, [], OPEN),
    ({"text_matches": "lost"}, [], HOLDS),
    ({"text_matches": "l.te"}, [], FAILS),
    ({"text_matches": "secret"}, [uttered(text="A secret.")], FAILS),
    ({"buttons": BUTTONS}, [uttered(buttons=BUTTONS)], FAILS),
    ({"buttons": BUTTONS}, [uttered(buttons=BUTTONS[:1])], HOLDS),
    ({"buttons": BUTTONS}, [], OPEN),
    ({"utter_name": "u", "text_matches": "late"}, [uttered(utter_name="x")], FAILS),
    ({"utter_name": "u", "text_matches": "lost"}, [uttered(utter_name="u")], FAILS),
    ({"utter_name": "u", "text_matches": "lost"}, [uttered(utter_name="x")], HOLDS),
    ({"utter_name": "u", "text_matches": "lost"}, [], OPEN),
]
CASES = [
    *(("flow_started", *case) for case in STARTED),
    *(
        (f"flow_{how}", body, [flow(how, name, flow_step_id=at) for name, at in ends], expected)
        for how in ("completed", "cancelled")
        for body, ends, expected in END
    ),
    ("action_executed", "look_up", [action("look_up")], HOLDS),
    ("action_executed", "look_up", [OTHER], FAILS),
    ("action_executed", "look_up", [A], OPEN),
    *(("slot_was_set", *case) for case in SET),
    *(("slot_was_not_set", *case) for case in NOT_SET),
    *(("pattern_clarification_contains", *case) for case in CLARIFIED),
    *(("bot_uttered", *case) for case in UTTERED),
    *(("bot_did_not_utter", *case) for case in NOT_UTTERED),
]


@pytest.mark.parametrize(("kind", "body", "reported", "expected"), CASES)
def test_an_assertion(kind: str, body: Any, reported: list[Any], expected: Any) -> None:
    result = judged(states(*reported), {kind: body})
    assert (result.passed, result.status) == expected, result.reason
    assert result.kind == "gate"
    assert f"(1) {kind} " in result.reason


@pytest.mark.parametrize("how", ["cancelled", "completed"])
def test_one_kind_of_end_is_not_the_other(how: str) -> None:
    other = {"completed": "cancelled", "cancelled": "completed"}[how]
    assert judged(states(flow(other, "a")), {f"flow_{how}": {"flow_id": "a"}}).passed is False


class TestActionsByToolCalls:
    def called(self, *, tools: str = "[]", error: str | None = None) -> Session:
        session = Session().user()
        brief = f'{{"tools": {tools}}}'
        started = session.events[0].session_started
        assert started is not None
        object.__setattr__(started, "tool_brief", brief)
        return session.call("look_up", {"id": "7"}, error=error).agent()

    def test_a_call_of_a_tool_of_that_name_is_the_action(self) -> None:
        result = judged(self.called(), {"action_executed": "look_up"})
        assert (result.passed, result.citations) == (True, ("t1",))

    def test_a_refused_call_is_none(self) -> None:
        result = judged(self.called(error="tool_unknown"), {"action_executed": "look_up"})
        assert (result.passed, result.status) == OPEN

    def test_a_registered_tool_that_was_not_called_was_not_executed(self) -> None:
        session = self.called(tools='[{"name": "look_up"}, {"name": "refund"}]')
        result = judged(session, {"action_executed": "refund"})
        assert (result.passed, result.status) == FAILS

    def test_another_name_cannot_be_told(self) -> None:
        session = self.called(tools='[{"name": "look_up"}]')
        result = judged(session, {"action_executed": "action_look_up"})
        assert (result.passed, result.status) == OPEN
        assert "reported no actions" in result.reason

    def test_a_deed_that_is_both_reported_and_called_counts_once(self) -> None:
        session = Session().user().trace("state", action("look_up")).call("look_up").agent()
        twice = {"sequencing": [{"action_executed": "look_up"}] * 2}
        assert judged(session, twice).passed is False


def test_a_silent_agent_has_not_kept_to_anything() -> None:
    session = Session().user().agent(outcome="error")
    result = judged(session, {"bot_did_not_utter": {"text_matches": "secret"}})
    assert (result.passed, result.status) == OPEN


def test_texts_are_those_of_every_turn() -> None:
    session = Session().user().agent("One.").user().agent("Two.")
    result = judged(session, {"bot_uttered": {"text_matches": "^One"}})
    assert (result.passed, result.citations) == (True, ("a1",))


def test_a_pattern_that_costs_too_much_decides_nothing() -> None:
    hard = "^(a|a|(?=a)a)*\\1c$"
    for kind in ("bot_uttered", "bot_did_not_utter"):
        result = judged(states(reply="a" * 60 + "b"), {kind: {"text_matches": hard}})
        assert (result.passed, result.status) == OPEN
        assert "steps" in result.reason
