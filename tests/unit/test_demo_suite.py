"""The demo's suite: complete, varied, and about tools and facts that exist."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from deploy.demo.world import world
from schemas.faults import InjectionKind
from schemas.loader import incomplete_categories, scenario_of
from schemas.scenario import Category, Scenario
from schemas.trajectory import EndReason
from tests.integration.offline import demo_suite

SUITE = demo_suite()
SCENARIOS = [scenario_of(entry) for entry in SUITE.scenarios]
TOOLS = {tool.name for tool in world.tools}


@pytest.mark.req("V01")
def test_every_category_is_covered() -> None:
    counts = Counter(scenario.category for scenario in SCENARIOS)
    assert incomplete_categories(SUITE) == ()
    assert len(SCENARIOS) >= 25
    assert all(counts[category] >= 5 for category in Category)


@pytest.mark.req("V05")
def test_every_kind_of_failure_is_injected_somewhere() -> None:
    kinds = {failure.kind for scenario in SCENARIOS for failure in scenario.failures}
    assert kinds == set(get_args(InjectionKind))


def each(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(part, SCENARIOS, ids=lambda scenario: scenario.id)


@each("scenario")
def test_failures_are_certain_and_quick(scenario: Scenario) -> None:
    for failure in scenario.failures:
        assert failure.is_required
        assert failure.delay_ms <= 400
        assert failure.tool in TOOLS


@pytest.mark.req("V04")
@each("scenario")
def test_every_goal_has_paraphrases_and_every_user_a_choice_of_personas(
    scenario: Scenario,
) -> None:
    goals = [goal for c in scenario.all_conversations() for goal in c.goals]
    assert goals
    assert all(len(set(goal.say)) >= 3 for goal in goals)
    assert scenario.user is not None
    assert {persona.style for persona in scenario.user.personas} == {
        "plain", "terse", "rambling", "hostile", "confused",
    }  # fmt: skip


@pytest.mark.req("V20")
@each("scenario")
def test_every_scenario_has_owner_version_and_origin(scenario: Scenario) -> None:
    assert scenario.owner == "order-support-team"
    assert scenario.version
    assert scenario.origin


@each("scenario")
def test_what_scenarios_name_exists(scenario: Scenario) -> None:
    assert scenario.world is not None
    assert scenario.world.name == world.name
    named = {call.tool for call in (*scenario.expect.calls, *scenario.expect.no_calls)}
    assert named <= TOOLS
    assert set(scenario.expect.end) <= set(EndReason.ALL)
    places = {pointer.split("/")[1] for pointer in (*scenario.expect.state,
                                                    *scenario.expect.unchanged)}  # fmt: skip
    assert places <= set(world.initial_state)


@pytest.mark.req("V15")
def test_load_scenarios_really_run_many_sessions() -> None:
    loads = [scenario.load for scenario in SCENARIOS if scenario.load]
    assert all(12 <= load.sessions <= 24 for load in loads)
    assert all(8 <= load.concurrency <= 16 for load in loads)


@pytest.mark.req("V14")
def test_long_horizon_scenarios_let_time_pass() -> None:
    for scenario in SCENARIOS:
        if scenario.category is Category.LONG_HORIZON:
            assert all(c.after != "0s" for c in scenario.conversations[1:])
