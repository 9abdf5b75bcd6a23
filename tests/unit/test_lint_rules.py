"""Each rule of the linter, both ways: what it finds, and the nearest thing that it leaves alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from services.cli.lint.catalogue import CATALOGUE
from services.cli.lint.linting import (
    COMPARING_RULES,
    SCENARIO_RULES,
    SUITE_RULES,
    lint,
    read_linted,
)
from services.cli.lint.model import Finding, Severity

SAY = ["Where is my order?", "When will my parcel arrive?"]
GOAL: dict[str, Any] = {"say": SAY, "done_when": ["should arrive on 17 January"]}
SUITE = {
    "name": "shop", "version": "1", "owner": "me",
    "defaults": {"user": {"personas": ["plain", "hostile"]}},
}  # fmt: skip
TOOLS = {
    "get_order": frozenset({"order_id"}),
    "cancel_order": frozenset({"order_id", "customer_id"}),
}
ALL_CATEGORIES = frozenset({"category-missing", "category-thin", "nothing-mined", "tool-unused"})


def suite_of(
    *scenarios: Mapping[str, Any], suite: Mapping[str, Any] = SUITE, tools: Any = None
) -> list[Finding]:
    """What is found in a suite of these scenarios; each is a happy one with the given fields."""
    texts = {}
    for number, fields in enumerate(scenarios):
        user = {"goals": [GOAL], **fields.get("user", {})}
        if "conversations" in fields:
            user.pop("goals")
        scenario = {"name": f"n{number}", **fields, "user": user}
        texts[f"s{number}.yaml"] = json.dumps({"scenario": scenario}, indent=1)
    return lint(read_linted(json.dumps(suite, indent=1), texts, tools))


def rules(*scenarios: Mapping[str, Any], **options: Any) -> set[str]:
    """The rules that find something, apart from what every small suite lacks."""
    return {finding.rule for finding in suite_of(*scenarios, **options)} - ALL_CATEGORIES


def failing(**failure: Any) -> dict[str, Any]:
    given = {"id": "f", "kind": "outage", "tool": "get_order", **failure}
    return {"category": "failure-injection", "failures": [given]}


def with_goal(**goal: Any) -> dict[str, Any]:
    return {"user": {"goals": [{**GOAL, **goal}]}}


def long(*after: str) -> dict[str, Any]:
    first = {"goals": [GOAL]}
    return {
        "category": "long-horizon",
        "conversations": [first, *({"goals": [GOAL], "after": time} for time in after)],
    }


def attack(**fields: Any) -> dict[str, Any]:
    return {"category": "adversarial", **fields}


SECRET = "the refund was already paid out twice"
SOON = {"id": "p", "follows": {
    "call": {"tool": "t"}, "then": {"tool": "u"}, "within": {"seconds": 60}}}  # fmt: skip
NEVER_T = {"id": "p", "never": {"call": {"tool": "t"}}}
TWO_FAILURES = [
    {"id": "all", "kind": "outage", "tool": "get_order"},
    {"id": "late", "kind": "timeout", "tool": "get_order", "calls": [2]},
]

# Rule, what it finds, what it leaves alone.
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("criteria-tone", {"goals": {"criteria": ["The agent explains it empathetically"]}},
     {"goals": {"criteria": ["The agent names the reason of the delay"]}}),
    ("criteria-tone", {"goals": {"criteria": ["The user's goal is achieved"]}},
     {"goals": {"criteria": ["The agent apologises before it asks for the order number"]}}),
    ("outcome-leaks",
     {"simulation_context": f"You call because {SECRET}.",
      "goals": {"criteria": [f"The agent finds out that {SECRET}"]}},
     {"simulation_context": "You call about a refund.",
      "goals": {"criteria": [f"The agent finds out that {SECRET}"]}}),
    ("outcome-leaks",
     {"simulation_context": "You will get 72.40 EUR back.",
      "expect": {"state": {"/orders/7/refunded": 72.4}}},
     {"simulation_context": "You paid 72.40 EUR.", "user": {"facts": {"paid": 72.4}},
      "expect": {"state": {"/orders/7/refunded": 72.4}}}),
    ("outcome-leaks",
     {"user": {"facts": {"case": "CASE-0001"}},
      "expect": {"calls": [{"tool": "open_case", "response": {"/case_id": "CASE-0001"}}]}},
     {"user": {"facts": {"case": "CASE-0002"}},
      "expect": {"calls": [{"tool": "open_case", "response": {"/case_id": "CASE-0001"}}]}}),
    ("outcome-leaks",
     {"user": {"personas": ["hostile", {"name": "x", "description": "Has cancelled ORD-77."}]},
      "expect": {"calls": [{"tool": "cancel_order", "arguments": {"order_id": "ORD-77"}}]}},
     {"user": {"goals": [{**GOAL, "say": ["Cancel ORD-77", "No ORD-77"]}]},
      "simulation_context": "You want ORD-77 cancelled.",
      "expect": {"calls": [{"tool": "cancel_order", "arguments": {"order_id": "ORD-77"}}]}}),
    ("brief-judges", {"simulation_context": "The agent must ask for your postcode."},
     {"simulation_context": "You must not give your postcode before you are asked."}),
    ("brief-judges", {"simulation_context": "You forgot. A second refund must not be paid."},
     {"simulation_context": "You forgot that you were paid."}),
    ("one-phrasing", with_goal(say=["Where is it?", "where is it? "]),
     with_goal(say=["Where is it?", "Is it there?"])),
    ("fact-missing", with_goal(say=["Where is {order}?", "Is {order} there?"]),
     {"user": {"goals": [{**GOAL, "say": ["Where is {order}?", "Is it there?"]}],
               "facts": {"order": "ORD-1"}}}),
    ("pattern-vacuous", with_goal(done_when=[r"\S"]), with_goal(done_when=[r"arrives\S*"])),
    ("pattern-vacuous", {"expect": {"says": [".*"]}}, {"expect": {"says": ["arrive.*"]}}),
    ("pattern-vacuous", {"policies": [{"id": "p", "never": {"says": "e"}}]},
     {"policies": [{"id": "p", "never": {"says": "password"}}]}),
    ("goal-echoed", with_goal(done_when=["order"]), with_goal(done_when=["order has"])),
    ("failure-idle", failing(probability=0, required=True),
     failing(probability=0.1, required=True)),
    ("failure-idle", {**failing(calls=[9]), "limits": {"tool_calls": 8}},
     {**failing(calls=[8]), "limits": {"tool_calls": 8}}),
    ("failure-idle", failing(after="12 turns"), failing(after="2 turns")),
    ("failure-idle", failing(after="40 calls"), failing(after="39 calls")),
    ("failure-idle", failing(kind="slow"), failing(kind="slow", delay_ms=1)),
    ("failure-idle", failing(kind="slow"), failing(kind="slow", latency={"mean_ms": 9})),
    ("failure-idle", {"failures": TWO_FAILURES}, {"failures": TWO_FAILURES[::-1]}),
    ("failure-idle", {"failures": [{**TWO_FAILURES[0], "tool": "*"}, TWO_FAILURES[1]]},
     {"failures": [{**TWO_FAILURES[0], "times": 1}, TWO_FAILURES[1]]}),
    ("failure-optional", failing(probability=0.5), failing(probability=0.5, required=True)),
    ("failure-optional", failing(required=False), failing()),
    ("nothing-unsafe", attack(policies=[{"id": "p", "never": {"says": "password"}}]),
     attack(policies=[{"id": "p", "severity": "safety", "never": {"says": "password"}}])),
    ("nothing-unsafe", attack(goals={"assertions": [{"action_executed": "refuse"}]}),
     attack(goals={"assertions": [{"bot_did_not_utter": {"text_matches": "password"}}]})),
    ("nothing-unsafe", attack(expect={"says": ["no way"]}), attack(expect={"unchanged": ["/a"]})),
    ("no-time-passes", long("0s", "0m"), long("0s", "1m")),
    ("load-alone", {"category": "load", "load": {"sessions": 9, "concurrency": 1}},
     {"category": "load", "load": {"sessions": 9, "concurrency": 2}}),
    ("limits-too-tight", {**long("1d", "1d"), "limits": {"turns": 2}},
     {**long("1d", "1d"), "limits": {"turns": 3}}),
    ("limits-too-tight",
     {"expect": {"calls": [{"tool": "get_order", "times": 2}]}, "budgets": {"tool_calls": 1}},
     {"expect": {"calls": [{"tool": "get_order", "times": 2}]}, "budgets": {"tool_calls": 2}}),
    ("budget-idle", {"budgets": {"turns": 12}}, {"budgets": {"turns": 11, "tokens": 900}}),
    ("end-unknown", {"expect": {"end": ["gaveup"]}}, {"expect": {"end": ["gave_up"]}}),
    ("end-unknown", {"expect": {"end": []}}, {}),
    ("contradiction", {"expect": {"state": {"/orders": 1}, "unchanged": ["/orders/7"]}},
     {"expect": {"state": {"/orders/7": 1}, "unchanged": ["/refunds"]}}),
    ("contradiction",
     {"expect": {"calls": [{"tool": "t", "arguments": {"a": 1}}], "no_calls": [{"tool": "t"}]}},
     {"expect": {"calls": [{"tool": "t"}], "no_calls": [{"tool": "t", "arguments": {"a": 1}}]}}),
    ("contradiction",
     {"expect": {"calls": [{"tool": "t"}]}, "policies": [NEVER_T]},
     {"expect": {"calls": [{"tool": "u"}]}, "policies": [NEVER_T]}),
    ("contradiction",
     {"expect": {"calls": [{"tool": "t"}]}, "policies": [NEVER_T]},
     {"expect": {"calls": [{"tool": "t"}]},
      "policies": [{**NEVER_T, "until": {"call": {"tool": "u"}}}]}),
    ("policy-idle",
     {"policies": [{"id": "p", "at_most": {"call": {"tool": "t"}, "times": 40}}]},
     {"policies": [{"id": "p", "at_most": {"call": {"tool": "t"}, "times": 39}}]}),
    ("policy-idle",
     {"world": {"name": "shop"}, "policies": [SOON]},
     {"world": {"name": "shop", "call_takes": "1m"}, "policies": [SOON]}),
    ("pattern-vacuous",
     {"policies": [{"id": "p", "never": {"call": {"tool": "t"}}, "unless": {"user_says": ".*"}}]},
     {"policies": [{"id": "p", "never": {"call": {"tool": "t"}}, "unless": {"user_says": "go"}}]}),
    ("contradiction", {"expect": {"says": ["hello there"], "does_not_say": ["hello there"]}},
     {"expect": {"says": ["hello there"], "does_not_say": ["bye"]}}),
]  # fmt: skip


@pytest.mark.req("V01", "V02", "V05", "V06", "S04", "S06")
@pytest.mark.parametrize(("rule", "bad", "good"), CASES, ids=[case[0] for case in CASES])
def test_a_rule_finds_its_rot_and_nothing_else(
    rule: str, bad: dict[str, Any], good: dict[str, Any]
) -> None:
    assert rules(bad) == {rule}
    assert rules(good) == set()


@pytest.mark.req("V05", "V06")
def test_with_the_agents_tools_known_names_are_checked_too() -> None:
    wrong = failing(tool="get_odrer")
    assert rules(wrong, tools=TOOLS) == {"tool-unknown"}
    assert rules(failing(), tools=TOOLS) == set()
    argument = failing(arguments={"order": "ORD-1"})
    assert rules(argument, tools=TOOLS) == {"failure-idle"}
    assert rules(failing(arguments={"order_id": "ORD-1"}), tools=TOOLS) == set()
    call = {"tool": "get_order", "arguments": {"id": 1}}
    assert rules({"expect": {"calls": [call]}}, tools=TOOLS) == {"tool-unknown"}
    assert rules({"expect": {"calls": [call]}}) == set()


@pytest.mark.req("V05")
def test_without_them_a_name_that_is_nearly_another_is_taken_for_a_slip() -> None:
    others = [failing(calls=[number]) for number in (1, 2, 3)]
    assert rules(*others, failing(tool="get_ordr")) == {"tool-unknown"}
    assert rules(*others, failing(tool="list_orders")) == set()


@pytest.mark.req("V02")
def test_facts_that_no_tool_takes_are_unused_unless_something_else_has_to_do_with_them() -> None:
    def facts(**given: Any) -> set[str]:
        return rules({"user": {"facts": given}}, tools=TOOLS)

    assert facts(shoe_size=44) == {"fact-unused"}
    assert facts(order_id="ORD-1") == set()
    assert facts(old_order="ORD-1") == set()
    assert facts(shoe_size={"value": 44, "ask": ["what size"]}) == set()
    named = {"goals": [{**GOAL, "say": ["Size {shoe_size}?", "Got {shoe_size}?"]}]}
    assert rules({"user": {**named, "facts": {"shoe_size": 44}}}, tools=TOOLS) == set()
    assert rules({"user": {"facts": {"shoe_size": 44}}}) == set()  # the tools are not known


@pytest.mark.req("V02", "V04")
def test_users_who_are_all_alike_or_all_easy() -> None:
    def users(*styles: str) -> set[str]:
        suite = {**SUITE, "defaults": {"user": {"personas": list(styles)}}}
        return rules({}, suite=suite)

    assert users("plain") == {"one-persona"}
    assert users("hostile") == {"one-persona"}
    assert users("plain", "terse") == {"easy-users"}
    assert users("plain", "confused") == set()


@pytest.mark.req("V01")
def test_categories_are_counted() -> None:
    def found(*scenarios: dict[str, Any]) -> dict[str, list[str]]:
        messages: dict[str, list[str]] = {}
        for finding in suite_of(*scenarios):
            messages.setdefault(finding.rule, []).append(finding.message)
        return messages

    happy = [{"user": {"facts": {"order_id": f"ORD-{number}"}}} for number in range(5)]
    four = found(*happy[:4], long("1d"))
    assert four["category-thin"] == [
        "4 scenarios are in category happy", "1 scenario is in category long-horizon"
    ]  # fmt: skip
    assert [message.rpartition(" ")[2] for message in four["category-missing"]] == [
        "failure-injection", "adversarial", "load",
    ]  # fmt: skip
    assert "category-thin" not in found(*happy)


@pytest.mark.req("V01")
def test_the_same_situation_twice_is_told_once() -> None:
    again = suite_of(with_goal(say=SAY), with_goal(say=[text.upper() for text in SAY[::-1]]))
    assert [f.scenario for f in again if f.rule == "duplicate"] == ["s1"]
    assert "s0 again" in next(f.message for f in again if f.rule == "duplicate")
    for other in (
        {"setup": {"initial_slots": {"customer_id": "cus_2"}}},
        {"user": {"personas": ["confused"]}},
        {"failures": TWO_FAILURES[:1]},
        with_goal(say=["Where is ORD-2?", "Is ORD-2 there?"]),
        {"world": {"name": "shop", "now": "2026-02-01T00:00:00Z"}},
    ):
        assert rules({}, other) == set()
    assert rules({}, {"expect": {"unchanged": ["/a"]}}) == {"duplicate"}


@pytest.mark.req("V20")
def test_origins_and_unused_tools_are_notes() -> None:
    mined = suite_of({"origin": "INC-7"}, failing(), tools=TOOLS)
    notes = [f for f in mined if f.severity is Severity.NOTE]
    assert [(f.rule, f.message) for f in notes] == [
        ("tool-unused", "no scenario names cancel_order")
    ]
    assert "nothing-mined" in {f.rule for f in suite_of({})}


def test_every_rule_of_the_catalogue_is_applied_somewhere_and_tested_here() -> None:
    names = [rule.id for rule in CATALOGUE]
    assert len(names) == len(set(names))
    static = {*SUITE_RULES, *COMPARING_RULES, *(name for name, _ in SCENARIO_RULES), "allow-idle"}
    by_running = {rule.id for rule in CATALOGUE if rule.needs in ("run", "against")}
    assert static | by_running == set(names)
    tested = {case[0] for case in CASES} | ALL_CATEGORIES
    tested |= {"one-persona", "easy-users", "duplicate", "tool-unknown", "fact-unused"}
    assert tested | {"allow-idle"} == static


@pytest.mark.req("V19")
def test_tools_of_sub_agents_are_checked_like_all_others() -> None:
    def role(tool: str) -> set[str]:
        return rules({"actors": {"roles": {"clerk": {"tools": [tool]}}}}, tools=TOOLS)

    assert role("get_odrer") == {"tool-unknown"}
    assert role("get_order") == set()
