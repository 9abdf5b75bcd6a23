"""The gate that all assertions of a scenario make: what counts, what is told, what cannot harm."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.scores import DimensionScore
from services.judge.assertions.facts import read_facts
from services.judge.core import judge_session
from services.judge.evaluators import assertions
from services.judge.trajectory import read
from tests.support.assertions import TRACKER, Rater, action, flow, judged, slot, states
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.req("S05")

STARTED = {"flow_started": {"flow_ids": ["a"]}}
ENDED = {"flow_completed": {"flow_id": "a"}}
SLOT = {"slot_was_not_set": [{"name": "x"}]}


def test_every_outcome_is_told_and_the_failing_ones_are_cited() -> None:
    said = [flow("started", "a"), slot("x", 1)]
    result = judged(states(*said), STARTED, ENDED, SLOT, {"action_executed": "b"})
    assert (result.passed, result.value, result.citations) == (False, 0.25, ("x2",))
    assert result.reason == (
        "4 assertions (fails: 2, not applicable: 1, holds: 1). "
        '(1) flow_started holds: flow "a" was started. '
        '(2) flow_completed fails: flow "a" was not completed. '
        '(3) slot_was_not_set fails: slot "x" was set to 1. '
        '(4) action_executed not applicable: action "b" was not executed, '
        "but the agent reported no actions in this session"
    )
    assert (result.dimension, result.evaluator) == ("assertions", "assertions/1")


def test_all_holding_passes_and_cites_all() -> None:
    result = judged(states(flow("started", "a"), flow("completed", "a")), STARTED, ENDED)
    assert (result.passed, result.value, result.citations) == (True, 1.0, ("x1", "x2"))


def test_one_that_cannot_be_told_is_no_pass_whatever_else_holds() -> None:
    result = judged(states(flow("started", "a")), STARTED, SLOT)
    assert (result.passed, result.status, result.value) == (None, "unscored", None)
    assert "reported no slots" in result.reason


def test_without_assertions_there_is_no_gate() -> None:
    assert asyncio.run(assertions.evaluate_all(read(Session().user().end()), brief(), None)) == ()


@pytest.mark.req("S03")
def test_without_criteria_the_assertions_are_judged_and_a_failure_fails_the_session() -> None:
    goals = {"assertions": [STARTED, ENDED]}
    for said, expected in (
        ([flow("started", "a"), flow("completed", "a")], True),
        ([flow("started", "a")], False),
        ([], None),
    ):
        events = states(*said).end()
        result = asyncio.run(judge_session(events, brief(goals=goals), at_ms=1))
        assert result.passed is expected
        assert "assertions" in {score.dimension for score in result.dimensions}


def test_nothing_of_an_invalid_session_is_put_to_the_model() -> None:
    judge: Any = Rater(1.0)
    relevant = {"generative_response_is_relevant": {"utter_source": "rag"}}
    session = states({"event": "bot_uttered", "utter_source": "rag", "text": "Hi"})
    events = session.end("infrastructure_error")
    goals = {"assertions": [relevant, {"bot_uttered": {"text_matches": "late"}}]}
    result = asyncio.run(judge_session(events, brief(goals=goals), at_ms=1, llm=judge))
    gate = next(one for one in result.dimensions if one.dimension == "assertions")
    assert (judge.asked, result.valid, gate.status) == ([], False, "unscored")
    assert "the session is invalid" in gate.reason
    assert "bot_uttered holds" in gate.reason


@pytest.mark.parametrize(
    "entry",
    [
        "flow_started",
        {},
        {"flow_startd": "a"},
        {**STARTED, **ENDED},
        {"flow_started": None},
        {"flow_started": {"flow_ids": []}},
        {"flow_started": {"flow_ids": ["a"], "operator": "none"}},
        {"flow_completed": "a"},
        {"flow_completed": {"flow_id": "a", "step": "b"}},
        {"action_executed": ["a"]},
        {"slot_was_set": "x"},
        {"slot_was_set": []},
        {"slot_was_not_set": [{"value": 1}]},
        {"bot_uttered": {}},
        {"bot_uttered": {"text_matches": "(unclosed"}},
        {"bot_uttered": {"text_matches": "a{1,1000}{1,1000}{1,1000}"}},
        {"bot_did_not_utter": {"buttons": []}},
        {"generative_response_is_relevant": {"threshold": 0.5}},
        {"generative_response_is_relevant": {"utter_source": "a", "threshold": 1.1}},
        {"generative_response_is_relevant": {"utter_source": "a", "ground_truth": "b"}},
        {"sequencing": []},
        {"sequencing": [{"slot_was_not_set": "a"}]},
        {"sequencing": [{"slot_was_set": "a", "flow_started": "b"}]},
        {"sequencing": [{"slot_was_set": [{"name": "a"}]}]},
    ],
)
def test_a_malformed_assertion_is_refused_and_never_passes(entry: Any) -> None:
    with pytest.raises(ValidationError):
        brief(goals={"assertions": [entry]})
    result = judged(states(TRACKER, flow("started", "a"), slot("x", 1)), entry, STARTED)
    assert (result.passed, result.status) == (None, "unscored")
    assert "(1) " in result.reason
    assert "malformed" in result.reason
    assert "(2) flow_started holds" in result.reason


class TestWhatIsMissingFromTheRecord:
    def gapped(self, *payloads: dict[str, Any], broken: str = "{") -> DimensionScore:
        session = states(TRACKER, slot("x", 1), *payloads)
        self._break(session, "x2", broken)
        return judged(session, {"slot_was_not_set": [{"name": "y"}]})

    def _break(self, session: Session, step: str, payload: str) -> None:
        for index, event in enumerate(session.events):
            if event.step == step and event.trace is not None:
                trace = dataclasses.replace(event.trace, payload=payload)
                session.events[index] = dataclasses.replace(event, trace=trace)

    @pytest.mark.parametrize(
        "broken",
        [
            "{", "", "[]", "null", "[" * 100_000, "{}", '{"event": 1}',
            '{"event": "slot_was_set", "name": "y"}', '{"event": "slot_was_set", "value": 1}',
            '{"event": "flow_started", "flow_id": 7}',
            '{"event": "pattern_clarification", "flow_ids": "a"}',
            '{"event": "bot_uttered", "buttons": ["a"]}', '{"event": "bot_uttered", "text": []}',
        ],
    )  # fmt: skip
    def test_an_unreadable_event_might_have_been_the_one(self, broken: str) -> None:
        result = self.gapped(broken=broken)
        assert (result.passed, result.status) == (None, "unscored")
        assert "x2 cannot be read" in result.reason

    def test_an_event_of_another_kind_is_no_gap(self) -> None:
        result = self.gapped(broken='{"event": "flow_resumed", "flow_id": 7}')
        assert result.passed is True

    def test_left_out_tracker_events_might_have_been_the_ones(self) -> None:
        session = states(TRACKER, slot("x", 1))
        last = session.events[-1]
        assert last.agent_turn is not None
        warning = "3 tracker events were too many or too large to keep"
        turn = dataclasses.replace(last.agent_turn, soft_warnings=(warning,))
        session.events[-1] = dataclasses.replace(last, agent_turn=turn)
        result = judged(session, SLOT, STARTED)
        assert result.passed is False, "what was seen still counts"
        assert "(2) flow_started not applicable" in result.reason
        assert warning in result.reason


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
EVENTS = ["flow_started", "flow_completed", "slot_was_set", "action_executed",
          "pattern_clarification", "bot_uttered"]  # fmt: skip
KEYS = ["event", "flow_id", "flow_step_id", "name", "value", "flow_ids", "text", "utter_name",
        "utter_source", "buttons"]  # fmt: skip
payloads = st.dictionaries(
    st.sampled_from(KEYS), json_values | st.sampled_from(EVENTS), max_size=6
) | st.builds(
    lambda event, rest: {**rest, "event": event},
    st.sampled_from(EVENTS),
    st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4),
)
EVERY = [
    STARTED, ENDED, SLOT, {"flow_cancelled": {"flow_id": "a", "flow_step_id": "b"}},
    {"slot_was_set": [{"name": "x", "value": {"a": [1]}}]}, {"action_executed": "b"},
    {"pattern_clarification_contains": {"flow_ids": ["a"]}},
    {"bot_uttered": {"utter_name": "u", "text_matches": "a.c", "buttons": ["Yes"]}},
    {"bot_did_not_utter": {"utter_name": "u", "text_matches": "a.c", "buttons": ["Yes"]}},
    {"generative_response_is_relevant": {"utter_source": "a"}},
    {"generative_response_is_grounded": {"utter_source": "a"}},
    {"sequencing": [{"slot_was_set": "x"}, {"flow_started": "a"}]},
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(payloads | json_values, max_size=6))
def test_no_payload_can_crash_the_judge_or_leave_what_cannot_be_written(said: list[Any]) -> None:
    session = Session().user()
    for payload in said:
        session.trace("state", payload)
    result = judged(session.agent("abc"), *EVERY, judge=Rater(0.5))
    result.reason.encode()
    assert result.reason.startswith("12 assertions (")
    assert json.dumps(result.citations)


def test_tool_calls_are_read_in_the_order_of_the_log() -> None:
    session = Session().user().trace("state", action("a")).call("b").trace("state", slot("c", 1))
    facts = read_facts(read(session.agent().end()))
    assert [fact.step for fact in facts.events] == ["x1", "t1", "x2"]
