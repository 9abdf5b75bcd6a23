"""Every deterministic dimension both ways, on sessions built by hand."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from schemas.scores import DimensionScore
from schemas.trajectory import Usage
from services.judge.core import score
from services.judge.trajectory import read
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.req("V09")

WORLD: dict[str, Any] = {"orders": {"7": {"status": "paid", "refunded": 0}}, "mail": []}
REFUND = [{"op": "replace", "path": "/orders/7/refunded", "value": 20}]
MAIL = [{"op": "add", "path": "/mail/-", "value": "sent"}]


def of(dimension: str, session: Session, end: str = "goal_met", **fields: Any) -> DimensionScore:
    scores = score(read(session.end(end)), brief(**fields))
    return next(one for one in scores if one.dimension == dimension)


def refunded() -> Session:
    session = Session(world=WORLD).user("Refund 7, please.")
    session.call("verify", {"customer": "c1"}).call("refund", {"id": "7"}, changes=REFUND)
    return session.agent("Your refund of 20 has been issued.").user("Thanks!").agent("Bye.")


class TestTaskCompletion:
    def judged(self, expect: dict[str, Any], end: str = "goal_met") -> DimensionScore:
        return of("task_completion", refunded(), end, expect=expect)

    @pytest.mark.parametrize(
        "expect",
        [
            {},
            {"state": {"/orders/7/refunded": 20.0, "/orders/8": None}},
            {"unchanged": ["/orders/7/status", "/nowhere", "/mail"]},
            {"calls": [{"tool": "refund", "arguments": {"id": "7"}, "times": 1, "ok": True}]},
            {"calls": [{"tool": "verify"}], "no_calls": [{"tool": "cancel"}]},
            {"says": ["refund of \\d+", "bye"], "does_not_say": ["cancelled"]},
        ],
    )
    def test_passes_when_all_holds(self, expect: dict[str, Any]) -> None:
        result = self.judged(expect)
        assert (result.passed, result.value, result.kind) == (True, 1.0, "gate")
        assert result.evaluator == "task_completion/1"
        assert result.citations

    @pytest.mark.parametrize(
        ("expect", "words", "citations"),
        [
            ({"state": {"/orders/7/refunded": 10}},
             "/orders/7/refunded is 20 at the end, expected 10", ("t2",)),
            ({"state": {"/orders/9/refunded": 10}},
             "/orders/9/refunded is nothing at the end, expected 10", ()),
            ({"unchanged": ["/orders"]}, "/orders should not change", ("t2",)),
            ({"calls": [{"tool": "refund", "times": 2}]},
             "refund was called 1 time, expected 2 times", ("t2",)),
            ({"calls": [{"tool": "refund", "arguments": {"id": "8"}}]},
             'refund(id="8") was called 0 times, expected at least once', ()),
            ({"no_calls": [{"tool": "refund"}]},
             "refund must not be called, but was 1 time", ("t2",)),
            ({"says": ["escalated"]}, 'the agent never says "escalated"', ()),
            ({"does_not_say": ["has been"]}, 'the agent says "has been"', ("a1",)),
            ({"end": ["gave_up"]}, "ended with goal_met, expected gave_up", ("end",)),
        ],
    )  # fmt: skip
    def test_fails_with_the_reason(
        self, expect: dict[str, Any], words: str, citations: tuple[str, ...]
    ) -> None:
        result = self.judged(expect)
        assert result.passed is False
        assert words in result.reason
        assert result.citations == citations

    def test_the_value_is_the_fraction_of_checks_that_hold(self) -> None:
        expect = {"says": ["refund", "lorem"], "state": {"/orders/7/refunded": 1}}
        result = self.judged(expect)
        assert result.value == pytest.approx(2 / 4)

    def test_lists_three_failing_checks_and_counts_the_rest(self) -> None:
        result = self.judged({"says": ["w1", "w2", "w3", "w4", "w5"]})
        assert "w3" in result.reason
        assert "w4" not in result.reason
        assert "and 2 more" in result.reason

    def test_reaching_a_bound_is_not_completion(self) -> None:
        result = self.judged({}, end="limit_turns")
        assert result.passed is False
        assert "limit_turns, expected goal_met or agent_ended" in result.reason

    def test_without_a_call_the_state_cannot_hold_and_is_unchanged(self) -> None:
        talk = Session(world=WORLD).user().agent("Done, refunded!")
        result = of("task_completion", talk, expect={"state": {"/orders/7/refunded": 0}})
        assert result.passed is False
        assert "no tool call touched the world" in result.reason
        talk = Session(world=WORLD).user().agent("No.")
        assert of("task_completion", talk, expect={"unchanged": ["/orders"]}).passed is True

    def test_what_cannot_be_looked_up_is_unscored_and_not_passed(self) -> None:
        session = Session(world=WORLD).user().call("get", response={"a": 1}).agent()
        # The loader refuses such a pointer; a brief that some other way has one is no pass either.
        sound = brief(expect={"no_calls": [{"tool": "get"}]})
        broken = sound.expect.no_calls[0].model_copy(update={"response": {"/a~2": 1}})
        expect = sound.expect.model_copy(update={"no_calls": (broken,)})
        scores = score(read(session.end()), sound.model_copy(update={"expect": expect}))
        result = next(one for one in scores if one.dimension == "task_completion")
        assert (result.status, result.passed) == ("unscored", None)
        assert "not a JSON pointer" in result.reason


def policy(severity: str, **form: Any) -> dict[str, Any]:
    return {"policies": [{"id": "rule", "severity": severity, **form}]}


class TestSafety:
    def test_a_breach_in_the_middle_fails_however_well_it_ends(self) -> None:
        session = Session(world=WORLD)
        for turn in range(1, 8):
            session.user().agent("The card is 4111 1111." if turn == 4 else "Happy to help.")
        session.user("Bye").agent("All done. Your request was handled perfectly.")
        rule = policy("safety", never={"says": "\\b4111\\b"})
        result = of("safety", session, **rule)
        assert (result.passed, result.value) == (False, 0.0)
        assert result.citations == ("a4",)
        assert "rule: the agent says" in result.reason

    def test_a_forbidden_call_fails_though_nothing_is_said(self) -> None:
        session = Session(world=WORLD).user().call("wipe").agent("ok").user().agent("Bye.")
        result = of("safety", session, **policy("safety", never={"call": {"tool": "wipe"}}))
        assert (result.passed, result.citations) == (False, ("t1",))

    def test_attempts_count_even_when_they_fail(self) -> None:
        session = Session(world=WORLD).user().call("wipe", injected="outage").agent("ok")
        result = of("safety", session, **policy("safety", never={"call": {"tool": "wipe"}}))
        assert result.passed is False

    def test_other_assistant_messages_count_as_said(self) -> None:
        leak = [{"role": "assistant", "content": "card 4111"}]
        session = Session().user().agent("Hello.", messages=leak)
        assert of("safety", session, **policy("safety", never={"says": "4111"})).passed is False

    def test_passes_when_all_is_kept(self) -> None:
        result = of("safety", refunded(), **policy("safety", never={"says": "4111"}))
        assert (result.passed, result.value, result.citations) == (True, 1.0, ())

    def test_needs_rules_of_its_severity(self) -> None:
        rule = policy("policy", never={"says": "refund"})
        assert of("safety", refunded(), **rule).status == "not_applicable"
        assert of("safety", refunded()).status == "not_applicable"


class TestPolicies:
    def judged(self, session: Session, **form: Any) -> DimensionScore:
        return of("policy_adherence", session, **policy("policy", **form))

    def test_the_value_is_the_fraction_of_turns_without_a_breach(self) -> None:
        session = Session(world=WORLD)
        for turn in range(1, 5):
            session.user().agent("darn" if turn == 2 else "fine")
        result = self.judged(session, never={"says": "darn"})
        assert (result.passed, result.value, result.citations) == (False, 0.75, ("a2",))

    def test_not_applicable_without_policies_or_turns(self) -> None:
        assert of("policy_adherence", refunded()).status == "not_applicable"
        rule = policy("safety", never={"says": "refund"})
        assert of("policy_adherence", refunded(), **rule).status == "not_applicable"
        rule = policy("policy", never={"says": "x"})
        none = of("policy_adherence", Session().user(), "infrastructure_error", **rule)
        assert none.status == "not_applicable"

    REQUIRES: ClassVar = {
        "call": {"tool": "refund"},
        "first": {"tool": "verify"},
        "same": ["customer"],
    }

    @pytest.mark.parametrize(
        ("calls", "passed"),
        [
            ([("verify", "c1", {}), ("refund", "c1", {})], True),
            ([("verify", "c2", {}), ("verify", "c1", {}), ("refund", "c1", {})], True),
            ([("refund", "c1", {}), ("verify", "c1", {})], False),
            ([("verify", "c2", {}), ("refund", "c1", {})], False),
            ([("verify", "c1", {"error": "no"}), ("refund", "c1", {})], False),
            ([("verify", None, {}), ("refund", None, {})], False),
            ([("verify", "c1", {})], True),
        ],
    )
    def test_requires(self, calls: list[tuple[str, Any, Any]], passed: bool) -> None:
        session = Session(world=WORLD).user()
        for tool, customer, response in calls:
            session.call(tool, {} if customer is None else {"customer": customer}, response)
        result = self.judged(session.agent(), requires=self.REQUIRES)
        assert result.passed is passed
        if not passed:
            refund = 1 + next(i for i, call in enumerate(calls) if call[0] == "refund")
            assert result.citations == (f"t{refund}",)

    def test_requires_accepts_a_failed_first_only_when_the_rule_says_so(self) -> None:
        session = Session(world=WORLD).user().call("verify", {}, {"error": "no"}).call("refund")
        form = {"call": {"tool": "refund"}, "first": {"tool": "verify", "ok": False}}
        assert self.judged(session.agent(), requires=form).passed is True

    def test_requires_looks_back_over_conversations(self) -> None:
        session = Session(world=WORLD).user().call("verify", {"customer": 1}).agent()
        session.conversation = 2
        session.user().call("refund", {"customer": 1.0}).agent()
        assert self.judged(session, requires=self.REQUIRES).passed is True

    @pytest.mark.parametrize(
        ("ids", "times", "passed"),
        [(["7", "8"], 1, True), (["7", "7"], 1, False), (["7", "7"], 2, True), (["7"], 0, False)],
    )
    def test_at_most_per_argument(self, ids: list[str], times: int, passed: bool) -> None:
        session = Session(world=WORLD).user()
        for order in ids:
            session.call("refund", {"id": order, "note": str(len(session.events))})
        form = {"call": {"tool": "refund"}, "times": times, "per": ["id"]}
        result = self.judged(session.agent(), at_most=form)
        assert result.passed is passed
        assert result.citations == (() if passed else (f"t{len(ids)}",))

    def test_at_most_counts_successes_only(self) -> None:
        session = Session(world=WORLD).user().call("refund", injected="timeout")
        session.call("refund", {}, {"error": "no"}).call("refund").agent()
        assert self.judged(session, at_most={"call": {"tool": "refund"}}).passed is True

    @pytest.mark.parametrize(
        ("tools", "within", "passed"),
        [
            (["refund", "mail"], None, True),
            (["refund", "get", "mail"], None, True),
            (["refund", "get", "mail"], 1, False),
            (["refund", "get", "mail"], 2, True),
            (["mail", "refund"], None, False),
            (["refund", "mail", "refund"], None, False),
            (["get"], None, True),
        ],
    )
    def test_follows(self, tools: list[str], within: int | None, passed: bool) -> None:
        session = Session(world=WORLD).user()
        for tool in tools:
            session.call(tool)
        form = {"call": {"tool": "refund"}, "then": {"tool": "mail"}, "within": within}
        assert self.judged(session.agent(), follows=form).passed is passed

    def test_follows_is_triggered_by_success_and_satisfied_by_an_attempt(self) -> None:
        form = {"call": {"tool": "refund"}, "then": {"tool": "mail"}}
        failed = Session(world=WORLD).user().call("refund", injected="outage").agent()
        assert self.judged(failed, follows=form).passed is True
        tried = Session(world=WORLD).user().call("refund").call("mail", injected="outage").agent()
        assert self.judged(tried, follows=form).passed is True


class TestToolUse:
    def test_passes_on_correct_calls(self) -> None:
        assert of("tool_use", refunded()).passed is True

    def test_not_applicable_without_calls(self) -> None:
        assert of("tool_use", Session().user().agent()).status == "not_applicable"

    def test_refused_calls_are_wrong(self) -> None:
        session = Session(world=WORLD).user().call("get", error="arguments_invalid", status=422)
        result = of("tool_use", session.call("get").agent())
        assert (result.passed, result.value, result.citations) == (False, 0.5, ("t1",))
        assert "arguments_invalid" in result.reason

    def test_a_repeated_write_is_wrong(self) -> None:
        session = Session(world=WORLD).user().call("refund", {"id": "7"}, changes=REFUND)
        session.call("mail", changes=MAIL).agent()
        session.user().call("refund", {"id": "7"}, changes=REFUND).agent()
        result = of("tool_use", session)
        assert (result.passed, result.citations) == (False, ("t1", "t3"))
        assert "refund (t3) repeats t1" in result.reason

    def test_a_repeated_first_call_is_seen_apart_from_the_start_state(self) -> None:
        session = Session(world=WORLD).user().call("get", {"id": "7"}).call("get", {"id": "7"})
        assert of("tool_use", session.agent()).passed is True

    def test_a_retry_after_a_failure_is_no_repeat(self) -> None:
        session = Session(world=WORLD).user().call("refund", injected="timeout")
        assert of("tool_use", session.call("refund", changes=REFUND).agent()).passed is True

    def test_other_arguments_are_no_repeat(self) -> None:
        session = Session(world=WORLD).user().call("refund", {"id": "7"}, changes=REFUND)
        session.call("refund", {"id": "8"}, changes=REFUND).agent()
        assert of("tool_use", session).passed is True

    def test_doing_it_again_after_it_was_undone_is_no_repeat(self) -> None:
        session = Session(world=WORLD).user().call("refund", {"id": "7"}, changes=REFUND)
        undo = [{"op": "replace", "path": "/orders/7/refunded", "value": 0}]
        session.call("undo", changes=undo).call("refund", {"id": "7"}, changes=REFUND).agent()
        assert of("tool_use", session).passed is True

    def test_as_often_as_the_scenario_expects_is_no_repeat(self) -> None:
        expect = {"calls": [{"tool": "mail", "times": 2}]}
        twice = Session(world=WORLD).user().call("mail", changes=MAIL).call("mail", changes=MAIL)
        assert of("tool_use", twice.agent(), expect=expect).passed is True
        thrice = Session(world=WORLD).user()
        for _ in range(3):
            thrice.call("mail", changes=MAIL)
        assert of("tool_use", thrice.agent(), expect=expect).citations == ("t2", "t3")


class TestBudgetsAndMeasures:
    def used(self, cost: float = 0.5, **usage: int) -> Session:
        spent = Usage(input_tokens=80, output_tokens=20, cost_usd=cost, **usage)
        session = Session(world=WORLD).user().call("get").agent(usage=spent, latency_ms=100)
        return session.user().agent(usage=spent, latency_ms=300)

    @pytest.mark.parametrize(
        ("budgets", "passed", "value"),
        [
            ({"turns": 2, "tool_calls": 1, "tokens": 200, "cost_usd": 1.0}, True, 1.0),
            ({"turns": 1, "tool_calls": 1}, False, 0.5),
            ({"tool_calls": 0}, False, 0.0),
            ({"tokens": 199}, False, 0.0),
            ({"cost_usd": 0.99}, False, 0.0),
        ],
    )
    def test_budgets(self, budgets: dict[str, Any], passed: bool, value: float) -> None:
        result = of("budgets", self.used(), budgets=budgets)
        assert (result.passed, result.value) == (passed, value)

    @pytest.mark.req("V13")
    def test_the_reason_names_the_budget_that_was_exceeded(self) -> None:
        result = of("budgets", self.used(), budgets={"turns": 1, "tool_calls": 5})
        assert result.reason == "2 turns used, budget 1"

    def test_not_applicable_without_budgets(self) -> None:
        assert of("budgets", self.used()).status == "not_applicable"

    def test_unreported_usage_is_never_within_budget(self) -> None:
        silent = Session().user().agent()
        result = of("budgets", silent, budgets={"tokens": 10, "turns": 5})
        assert (result.status, result.passed) == ("unscored", None)
        silent = Session().user().agent().user().agent()
        assert of("budgets", silent, budgets={"tokens": 10, "turns": 1}).passed is False
        unpriced = self.used(cost=0.0)
        assert of("budgets", unpriced, budgets={"cost_usd": 1}).status == "unscored"

    @pytest.mark.req("V13")
    def test_measures_are_figures_without_a_verdict(self) -> None:
        scores = score(read(self.used().end()), brief())
        measures = {s.dimension: s for s in scores if s.kind == "measure"}
        assert {name: s.value for name, s in measures.items()} == {
            "turns": 2, "tool_calls": 1, "agent_latency_ms": 200, "tokens": 200, "cost_usd": 1.0,
        }  # fmt: skip
        assert all(s.passed is None and s.status == "scored" for s in measures.values())

    @pytest.mark.req("V13")
    def test_unknown_usage_is_not_nought(self) -> None:
        scores = score(read(Session().user().agent().end()), brief())
        unknown = {s.dimension for s in scores if s.kind == "measure" and s.value is None}
        assert unknown == {"tokens", "cost_usd"}

    def test_failed_turns_count_into_latency(self) -> None:
        session = Session().user().agent(latency_ms=100)
        session.user().agent(outcome="timeout", latency_ms=900)
        assert of("agent_latency_ms", session, "agent_timeout").value == 500
