"""Failure profiles with production's rates, their multiplier, and the documentation's examples."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from schemas.errors import InvalidDocument, Problem
from schemas.faults import InjectionKind
from schemas.loader import parse_scenario, parse_suite, scenario_of
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from services.cli.lint.showing import shown
from services.dispatcher.expansion import RequestRefused, make_plan

pytestmark = pytest.mark.req("V05")

PAGE = (Path(__file__).parents[2] / "docs" / "injection.md").read_text()
EXAMPLES = dict(re.findall(r"```(yaml[^\n]*)\n(.*?)```", PAGE, re.DOTALL))
SUITE = """
name: shop
version: "1"
owner: me
failure_profiles:
  production:
    - {id: rare, kind: outage, probability: 0.02}
    - {id: often, kind: slow, delay_ms: 5, probability: 0.3}
    - {id: always, kind: rate_limit, calls: [9], required: false}
"""


def one(text: str, suite: str = SUITE) -> Scenario:
    [entry] = parse_suite(suite, {"a.yaml": text}).scenarios
    return scenario_of(entry)


def problems(text: str, suite: str = SUITE) -> list[Problem]:
    with pytest.raises(InvalidDocument) as refused:
        one(text, suite)
    return list(refused.value.problems)


def rates(scenario: Scenario) -> dict[str, float]:
    return {failure.id: failure.probability for failure in scenario.failures}


def test_a_profiles_failures_come_after_the_scenarios_own() -> None:
    text = "scenario: {name: A, failure_profile: production, failures: [{id: own, kind: timeout}]}"
    assert list(rates(one(text))) == ["own", "rare", "often", "always"]
    assert rates(one("scenario: {name: A}")) == {}


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        ("3", {"rare": 0.06, "often": 0.9, "always": 1.0}),
        ("0.5", {"rare": 0.01, "often": 0.15, "always": 0.5}),
        ("0", {"rare": 0.0, "often": 0.0, "always": 0.0}),
    ],
)
def test_the_multiplier_is_for_the_profile_alone(factor: str, expected: dict[str, float]) -> None:
    text = f"""
    scenario:
      name: A
      failure_profile: production
      profile_multiplier: {factor}
      failures: [{{id: own, kind: timeout, probability: 0.4}}]
    """
    assert rates(one(text)) == {"own": 0.4, **expected}


def test_a_suites_defaults_can_name_the_profile() -> None:
    suite = SUITE + "defaults: {failure_profile: production, profile_multiplier: 2}\n"
    assert rates(one("scenario: {name: A}", suite))["rare"] == 0.04
    assert rates(one("scenario: {name: A, profile_multiplier: 1}", suite))["rare"] == 0.02
    profiles = {"p": [{"id": "x", "kind": "outage", "probability": 0.1}]}
    given = parse_scenario("scenario: {name: A, failure_profile: p}", "a.yaml", {}, profiles)
    assert rates(given) == {"x": 0.1}


def test_a_rate_above_one_is_an_error_at_the_multiplier() -> None:
    text = "scenario:\n  name: A\n  failure_profile: production\n  profile_multiplier: 4\n"
    [problem] = problems(text)
    assert (problem.file, problem.line, problem.path) == (
        "a.yaml", 4, "scenario.profile_multiplier",
    )  # fmt: skip
    assert problem.message == (
        "expected at most 3.33333: the rate 0.3 of failure often in profile production would be "
        "1.2, found 4"
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("failure_profile: staging", "expected one of production, found 'staging'"),
        ("profile_multiplier: 2", "it is for a `failure_profile`; name one"),
        ("failure_profile: production, profile_multiplier: -1", "greater than or equal to 0"),
        ("failure_profile: production, profile_multiplier: lots", "number"),
        ("failure_profile: production, failures: [{id: rare, kind: outage}]", "repeated id rare"),
    ],
)
def test_mistakes_are_told(fields: str, why: str) -> None:
    assert any(why in problem.message for problem in problems(f"scenario: {{name: A, {fields}}}"))


def test_a_mistake_in_a_profile_is_told_once_and_where_it_stands() -> None:
    suite = SUITE.replace("probability: 0.02", "probability: 2")
    texts = {f"{name}.yaml": "scenario: {name: A, failure_profile: production}" for name in "ab"}
    with pytest.raises(InvalidDocument) as refused:
        parse_suite(suite, texts)
    assert [(p.file, p.line) for p in refused.value.problems] == [("suite.yaml", 7)]


def test_a_run_that_would_multiply_a_rate_to_above_one_is_refused() -> None:
    goals = "{goals: [{say: [a], done_when: [b]}]}"
    scenario = one(f"scenario: {{name: A, user: {goals}, failure_profile: production}}")

    def plan(factor: float) -> None:
        request = RunRequest(
            run_id="r", suite="shop", agent_id="a", trials=1, failure_multiplier=factor
        )
        make_plan(request, [scenario], can_improvise=False)

    plan(3)
    plan(0.1)
    with pytest.raises(RequestRefused) as refused:
        plan(5)
    assert refused.value.errors == (
        "scenario 'a', failure often: its rate 0.3 times 5 is 1.5, above 1; multiply by at most "
        "3.33333",
    )


def test_show_tells_profile_and_selectors() -> None:
    scenario = one("""
    scenario:
      name: A
      failure_profile: production
      profile_multiplier: 0.1
      failures:
        - {id: own, kind: timeout, like: {id: "O*"}, after: 1 turn, until: 3 turns, burst: 2,
           latency: {mean_ms: 9}, conversations: [1]}
    """)
    text = shown(scenario)
    assert "failure profile production, rates times 0.1" in text
    assert (
        'failure own: timeout for mean_ms 9 in any tool like {"id":"O*"}, conversation 1, after '
        "1 turn, until 3 turns, 2 in a row; must strike"
    ) in text
    assert "failure rare: outage in any tool, 0.2% of them; may strike" in text


def test_the_pages_examples_load() -> None:
    alone = parse_scenario(EXAMPLES["yaml"], "alone.yaml")
    assert [failure.id for failure in alone.failures] == ["down", "hesitant", "flaky"]
    scenario = one(EXAMPLES["yaml scenario-of-the-suite"], EXAMPLES["yaml suite"])
    assert rates(scenario) == {"order-timeouts": 0.04, "rate-limits": 0.1, "slow-tail": 0.5}


def test_the_page_has_every_kind() -> None:
    table = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert sorted(table[: len(get_args(InjectionKind))]) == sorted(get_args(InjectionKind))
