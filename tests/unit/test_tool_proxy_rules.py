"""Which failures strike: exact selections, rates within binomial bounds, and independence."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.briefs import ToolBrief
from schemas.selection import Moment, fraction
from services.tool_proxy import rules
from tests.support.tool_proxy import make_brief

OUTAGE = {"id": "down", "kind": "outage"}


def strikes(brief: ToolBrief, calls: list[tuple[str, dict[str, Any]]]) -> list[int | None]:
    """The index that answered each call, over a whole session."""
    count = len(rules.selectors(brief))
    matched, struck = [0] * count, [0] * count
    answered = []
    for tool, arguments in calls:
        selection = rules.select(brief, matched, struck, tool, arguments, Moment())
        chosen = selection.rule if selection.failure is None else selection.failure
        answered.append(chosen)
        for index in selection.matching:
            matched[index] += 1
        if chosen is not None:
            struck[chosen] += 1
    return answered


def tail(n: int, p: float, k: int) -> float:
    """The exact two-sided binomial tail: how unlikely a count as far off as k is."""

    def log_term(i: int) -> float:
        combinations = math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
        return combinations + i * math.log(p) + (n - i) * math.log1p(-p)

    lower = math.fsum(math.exp(log_term(i)) for i in range(k + 1))
    upper = math.fsum(math.exp(log_term(i)) for i in range(k, n + 1))
    return min(1.0, 2 * min(lower, upper))


@pytest.mark.req("V05")
@pytest.mark.parametrize("probability", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("multiplier", [0.5, 1.0])
def test_failures_strike_at_their_rate(probability: float, multiplier: float) -> None:
    count = 4000
    struck = 0
    for seed in range(count // 40):
        brief = make_brief(
            failures=[{**OUTAGE, "probability": probability}],
            failure_multiplier=multiplier, seed=seed,
        )  # fmt: skip
        answered = strikes(brief, [("get_order", {})] * 40)
        struck += sum(index is not None for index in answered)
    assert tail(count, probability * multiplier, struck) > 1e-4


@pytest.mark.req("V05")
def test_the_multiplier_is_capped_at_certainty_and_can_switch_failures_off() -> None:
    failure = {**OUTAGE, "probability": 0.4}
    calls: list[tuple[str, dict[str, Any]]] = [("get_order", {})] * 50
    assert strikes(make_brief(failures=[failure], failure_multiplier=9), calls) == [0] * 50
    assert strikes(make_brief(failures=[failure], failure_multiplier=0), calls) == [None] * 50


@pytest.mark.req("V05")
def test_successive_decisions_are_uncorrelated() -> None:
    draws = [fraction(3, "failure:down", n) < 0.5 for n in range(4000)]
    equal_neighbours = sum(a == b for a, b in pairwise(draws))
    assert tail(len(draws) - 1, 0.5, equal_neighbours) > 1e-4


@pytest.mark.req("V05")
def test_calls_are_selected_by_tool_arguments_ordinal_and_times() -> None:
    brief = make_brief(
        failures=[
            {**OUTAGE, "id": "second", "tool": "get_order", "calls": [2]},
            {**OUTAGE, "id": "one", "arguments": {"order_id": "1", "deep": {"n": 1}}, "times": 2},
        ],
        rules=[{"tool": "add_note", "respond": {}}],
    )
    one = {"order_id": "1", "deep": {"n": 1.0}, "more": True}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("get_order", {"order_id": "2"}),
        ("get_order", one),  # the second get_order; `one` matches too, but comes later
        ("add_note", one),
        ("add_note", {"order_id": "1", "deep": {"n": True}}),
        ("add_note", one),
        ("add_note", one),  # `one` has struck twice
    ]
    assert strikes(brief, calls) == [None, 0, 1, 2, 1, 2]


@pytest.mark.req("V04", "V05")
@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**62),
    st.lists(st.sampled_from(["get_order", "add_note", "crash"]), max_size=60),
)
def test_a_tools_decisions_do_not_depend_on_interleaving(seed: int, order: list[str]) -> None:
    brief = make_brief(
        failures=[
            {**OUTAGE, "id": f"{tool}-down", "tool": tool, "probability": 0.4}
            for tool in ("get_order", "add_note", "crash")
        ],
        seed=seed,
    )
    mixed = strikes(brief, [(tool, {}) for tool in order])
    for tool in set(order):
        alone = strikes(brief, [(tool, {})] * order.count(tool))
        assert [s for s, name in zip(mixed, order, strict=True) if name == tool] == alone


@pytest.mark.req("V05")
@settings(max_examples=50, deadline=None)
@given(st.permutations(range(4)))
def test_other_rules_change_nothing_for_a_rule(order: list[int]) -> None:
    failures: list[dict[str, Any]] = [
        {**OUTAGE, "id": f"f{n}", "tool": "*" if n == 0 else "x"} for n in range(4)
    ]
    failures[0]["probability"] = 0.5
    brief = make_brief(failures=[failures[n] for n in order])
    answered = strikes(brief, [("get_order", {})] * 30)
    expected = [
        order.index(0) if fraction(brief.seed, "failure:f0", n + 1) < 0.5 else None
        for n in range(30)
    ]
    assert answered == expected
