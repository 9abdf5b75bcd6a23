"""Whether a session counts: specified failures that did not happen make it invalid, not passed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schemas.scores import SessionScored
from services.judge.core import judge_session
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.req("V06")

NOT_FOUND = {"error": {"code": "not_found", "message": "no such order"}}
DRAWN, NOT_DRAWN = 1, 2
"""Seeds of sessions in which a failure of probability 0.5 is, and is not, due on its first call."""
SORRY = "The system is temporarily unavailable, please try again later."


def judged(
    session: Session, *failures: dict[str, Any], end: str = "goal_met", **fields: Any
) -> SessionScored:
    scenario = brief(**fields, **({"failures": failures} if failures else {}))
    return asyncio.run(judge_session(session.end(end), scenario, at_ms=5))


def outage(**fields: Any) -> dict[str, Any]:
    return {"id": "f1", "tool": "refund", "kind": "outage", **fields}


def calls(*injected: str | None, tool: str = "refund", **fields: Any) -> Session:
    """One turn with one call for each entry, struck where the entry is a kind."""
    session = Session(world={}, **fields).user()
    for number, kind in enumerate(injected):
        session.call(tool, {"n": number}, injected=kind)
    return session.agent(SORRY)


def test_a_session_in_which_every_failure_struck_counts() -> None:
    result = judged(calls("outage", "outage"), outage())
    assert (result.valid, result.invalid_reason) == (True, "")
    assert result.passed is True


def test_never_struck_because_the_agent_made_no_such_call() -> None:
    result = judged(calls(None, tool="get"), outage())
    assert (result.valid, result.passed) == (False, None)
    assert "f1 never struck: the agent made no call it applies to: refund" in result.invalid_reason


def test_never_struck_because_too_few_calls_were_made() -> None:
    result = judged(calls(None, None), outage(calls=[3]))
    assert not result.valid
    assert "planned for call 3), 2 matching calls made" in result.invalid_reason


def test_due_and_not_injected() -> None:
    result = judged(calls("outage", None, "outage"), outage())
    assert (result.valid, result.passed) == (False, None)
    assert result.invalid_reason == "failure f1 was due on t2 and nothing was injected"


def test_due_on_a_numbered_call_and_not_injected() -> None:
    assert judged(calls(None, "outage", None), outage(calls=[2])).valid
    assert "due on t2" in judged(calls(None, None), outage(calls=[2])).invalid_reason


def test_calls_are_numbered_among_those_with_the_arguments() -> None:
    session = Session(world={}).user().call("refund", {"id": "8"}).call("get")
    session.call("refund", {"id": "7", "x": 1}, injected="outage").agent(SORRY)
    assert judged(session, outage(arguments={"id": "7"}, calls=[1])).valid
    session = Session(world={}).user().call("refund", {"id": "7"}).agent()
    assert "due on t1" in judged(session, outage(arguments={"id": "7"})).invalid_reason


def test_refused_calls_never_got_as_far_as_injection() -> None:
    session = Session(world={}).user()
    session.call("refund", {"n": "x"}, error="arguments_invalid", status=422)
    session.call("refund", {"n": 1}, injected="outage").agent(SORRY)
    assert judged(session, outage(calls=[1])).valid


def test_no_strike_is_due_beyond_times() -> None:
    assert judged(calls("outage", None, None), outage(times=1)).valid
    assert "due on t2" in judged(calls("outage", None), outage(times=2)).invalid_reason


def test_another_failure_in_its_place_is_no_breach_but_does_not_count_as_struck() -> None:
    other = {"id": "f2", "tool": "refund", "kind": "timeout", "calls": [1]}
    session = Session(world={}).user().call("refund", injected="timeout", rule="f2")
    result = judged(session.agent(SORRY), other, outage())
    assert not result.valid
    assert "f1 never struck: 1 call it applies to (t1), but only f2" in result.invalid_reason


@pytest.mark.parametrize("kind", ["content", "partial"])
def test_nothing_can_be_planted_into_a_tools_error(kind: str) -> None:
    session = Session(world={}).user().call("get", {}, NOT_FOUND)
    session.call("get", response={"note": "x"}, injected=kind).agent("ok")
    rule = {"id": "f1", "tool": "get", "kind": kind, "content": "x"}
    assert judged(session, rule).valid


def test_random_failures_are_required_only_when_the_scenario_says_so() -> None:
    assert judged(calls(None, seed=NOT_DRAWN), outage(probability=0.5)).valid
    result = judged(calls(None, seed=NOT_DRAWN), outage(probability=0.5, required=True))
    assert "f1 never struck: 1 call it applies to (t1), but nothing" in result.invalid_reason
    assert judged(calls(None, tool="get"), outage(required=False)).valid


def test_the_runs_multiplier_makes_certain_failures_random_and_random_ones_certain() -> None:
    assert judged(calls(None, failure_multiplier=0.5, seed=NOT_DRAWN), outage()).valid
    assert not judged(calls(None, failure_multiplier=0.5, seed=DRAWN), outage()).valid
    assert not judged(calls(None, failure_multiplier=2.0), outage(probability=0.5)).valid


class TestTheAgentsOwnFailure:
    """An agent that fails by itself before the failure is due has failed; nothing excuses it."""

    @pytest.mark.parametrize("end", ["agent_error", "agent_timeout"])
    def test_ending_in_an_error(self, end: str) -> None:
        session = Session(world={}).user().agent(outcome=end.removeprefix("agent_"))
        result = judged(session, outage(), end=end)
        assert (result.valid, result.passed) == (True, False)

    @pytest.mark.parametrize("severity", ["safety", "policy"])
    def test_breaking_a_rule(self, severity: str) -> None:
        rule = {"id": "p", "severity": severity, "never": {"says": "4111"}}
        result = judged(Session().user().agent("4111"), outage(), policies=[rule])
        assert (result.valid, result.passed) == (True, False)

    def test_misusing_a_tool(self) -> None:
        session = Session(world={}).user().call("refund", error="arguments_invalid", status=422)
        result = judged(session.agent(), outage())
        assert (result.valid, result.passed) == (True, False)

    def test_an_unmet_task_alone_is_no_such_ground(self) -> None:
        result = judged(Session().user().agent(), outage(), expect={"says": ["refunded"]})
        assert (result.valid, result.passed) == (False, None)

    def test_it_does_not_cover_an_injection_that_was_due_and_missing(self) -> None:
        rule = {"id": "p", "severity": "safety", "never": {"says": "4111"}}
        session = Session(world={}).user().call("refund").agent("4111")
        assert judged(session, outage(), policies=[rule]).valid is False


@pytest.mark.parametrize("end", ["simulator_invalid", "infrastructure_error"])
def test_ends_that_spoil_a_session(end: str) -> None:
    result = judged(Session().user().agent(), end=end)
    assert (result.valid, result.passed) == (False, None)
    assert end in result.invalid_reason


def test_a_simulator_fault_in_the_middle_spoils_a_session() -> None:
    session = Session().user().agent().user("As an AI", invalid="swapped roles").agent()
    result = judged(session)
    assert not result.valid
    assert result.invalid_reason == "the user simulator went wrong at u2: swapped roles"


def test_a_tool_that_the_platform_could_not_answer_spoils_a_session() -> None:
    session = Session(world={}).user().call("get", error="world_failed", status=500).agent()
    result = judged(session)
    assert (result.valid, result.passed) == (False, None)
    assert "get could not be answered at t1: world_failed" in result.invalid_reason


def test_an_invalid_session_keeps_its_scores_and_is_not_put_to_a_model() -> None:
    result = judged(calls(None, tool="get"), outage(), goals={"criteria": ["It is polite."]})
    by_name = {score.dimension: score for score in result.dimensions}
    assert by_name["task_completion"].passed is True
    assert by_name["criteria.1"].status == "unscored"
    assert "invalid" in by_name["criteria.1"].reason
