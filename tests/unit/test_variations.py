"""Variations: other ways for a session to begin, drawn by its seed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from schemas.briefs import split
from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.merge_patch import patched
from schemas.registry import AgentRegistration

AGENT = AgentRegistration(agent_id="a", name="a", endpoint="http://a.test")
SCENARIO = """
scenario:
  name: Somebody asks for an order
  user:
    facts: {order_id: O-1, postcode: {value: AB1, ask: [where]}}
    goals: [{say: ['Where is {order_id}?'], done_when: [on its way]}]
  setup: {initial_slots: {channel: web, beta: true}}
  world: {name: shop, state: {orders: {O-1: {status: open}, O-9: null}}}
  variations:
    - {name: as-written, weight: 3}
    - name: late
      facts: {postcode: CD2}
      initial_slots: {channel: phone, beta: null}
      state: {orders: {O-1: {status: late}, O-2: null}}
      now: 2026-03-01T00:00:00Z
"""


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": None}, {}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, None, None),
    ],
)
def test_merging_follows_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    # The RFC's own appendix, where it says more than the obvious.
    assert patched(target, patch) == result


@pytest.mark.req("V04")
def test_one_variation_is_drawn_by_its_weight_and_the_seed() -> None:
    scenario = parse_scenario(SCENARIO, "order.yaml")
    drawn = [split(scenario, AGENT, seed).variation for seed in range(400)]
    assert drawn == [split(scenario, AGENT, seed).variation for seed in range(400)]
    assert 260 <= Counter(drawn)["as-written"] <= 340


@pytest.mark.req("V04")
def test_a_variation_changes_what_the_session_begins_with() -> None:
    scenario = parse_scenario(SCENARIO, "order.yaml")
    briefs = next(b for s in range(100) if (b := split(scenario, AGENT, s)).variation == "late")
    assert briefs.user.facts["postcode"].value == "CD2"
    assert briefs.user.facts["postcode"].ask == ("where",)
    assert briefs.task_input == {"channel": "phone"}
    assert briefs.tool.world is not None
    assert briefs.tool.world.now == "2026-03-01T00:00:00Z"
    before = {"orders": {"O-1": {"status": "?"}, "O-2": {}, "O-9": {}}}
    assert patched(before, briefs.tool.world.state) == {"orders": {"O-1": {"status": "late"}}}


def test_a_variation_can_only_change_facts_that_there_are() -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_scenario(SCENARIO.replace("CD2", "CD2, city: Ulm"), "order.yaml")
    (problem,) = refused.value.problems
    assert (problem.path, problem.line) == ("scenario.variations[1].facts.city", 12)
    assert "user.facts" in problem.message


def test_a_world_needs_a_name_unless_something_else_answers() -> None:
    with pytest.raises(InvalidDocument, match="answers: schema"):
        parse_scenario(SCENARIO.replace("name: shop, ", ""), "order.yaml")
    parse_scenario(SCENARIO.replace("name: shop, ", "answers: model, "), "order.yaml")
