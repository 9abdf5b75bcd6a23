"""Rules that need sessions, with the runs' results given: what is run, and what follows from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from schemas.loader import parse_scenario
from schemas.scenario import Scenario
from schemas.scores import DimensionAggregate, Example, ScenarioAggregate
from services.cli.lint.linting import read_linted
from services.cli.lint.model import Finding, LintedSuite
from services.cli.lint.mutation import mutants, other_value
from services.cli.lint.running import LintRuns, idle_findings, mutant_findings, single
from tests.integration.offline import Offline, demo_suite

SUITE = "name: shop\nversion: '1'\nowner: me\n"
FULL = """\
scenario:
  name: x
  category: {category}
  expect:
    state: {{/a: 1, /b: {{c: true}}}}
    calls: [{{tool: look, times: 2}}]
    no_calls: [{{tool: buy, ok: true}}]
    says: [found]
    does_not_say: [sorry]
    end: [gave_up]
  goals: {{criteria: [It is said who pays]}}
"""


def suite(**categories: str) -> LintedSuite:
    texts = {f"{name}.yaml": FULL.format(category=c) for name, c in categories.items()}
    return read_linted(SUITE, texts)


class Runs:
    """Stands for runs on a stack: a scenario passes if `passing` says so."""

    def __init__(self, passing: Any) -> None:
        self._passing = passing
        self.played: list[tuple[str, str, dict[str, Scenario]]] = []

    @asynccontextmanager
    async def idle_agent(self) -> AsyncIterator[str]:
        yield "idle"

    async def play(
        self, name: str, scenarios: Sequence[Scenario], agent_id: str
    ) -> Mapping[str, ScenarioAggregate]:
        self.played.append((name, agent_id, {s.id: s for s in scenarios}))
        results = {}
        for scenario in scenarios:
            passed = int(self._passing(name, scenario))
            example = Example(session_id="s", trial=0, reason="it ended with gave_up")
            why = DimensionAggregate(dimension="safety", kind="gate", examples=(example,))
            results[scenario.id] = ScenarioAggregate(
                scenario_id=scenario.id, category=scenario.category, planned=1, passed=passed,
                failed=1 - passed, dimensions=() if passed else (why,),
            )  # fmt: skip
        return results


def found(findings: Sequence[Finding]) -> list[tuple[str, str, int]]:
    return [(f.rule, f.scenario, f.line) for f in findings]


def runs(passing: Any) -> tuple[Runs, LintRuns]:
    fake = Runs(passing)
    return fake, cast(LintRuns, fake)


@pytest.mark.req("V01", "V09")
def test_who_passes_doing_nothing_is_found_and_refusing_is_told_apart() -> None:
    fake, given = runs(lambda _, scenario: scenario.id != "sound")
    linted = suite(easy="happy", sound="happy", attack="adversarial")
    findings = asyncio.run(idle_findings(linted, given))
    assert found(findings) == [
        ("passes-refusing", "attack", 5),
        ("passes-doing-nothing", "easy", 5),
    ]
    assert [(name, agent) for name, agent, _ in fake.played] == [("idle", "idle")]


@pytest.mark.req("V09")
def test_each_expectation_is_reversed_once_in_a_run_of_its_own() -> None:
    fake, given = runs(lambda name, _: name == "reference")
    findings = asyncio.run(mutant_findings(suite(one="happy", two="happy"), given, "good"))
    assert findings == []
    assert [name for name, _, _ in fake.played] == [
        "reference", *(f"mutant-{number}" for number in range(1, 9))
    ]  # fmt: skip
    assert all(set(scenarios) == {"one", "two"} for _, _, scenarios in fake.played)
    first = fake.played[0][2]["one"]
    assert all(scenarios["one"] != first for _, _, scenarios in fake.played[1:])


@pytest.mark.req("V09")
def test_what_passes_reversed_is_found_where_it_stands_and_failing_ones_are_told() -> None:
    def passing(name: str, scenario: Scenario) -> bool:
        return scenario.id == "one" and name in ("reference", "mutant-5", "mutant-8")

    fake, given = runs(passing)
    findings = asyncio.run(mutant_findings(suite(one="happy", two="happy"), given, "good"))
    assert found(findings) == [
        ("cannot-tell", "two", 2), ("cannot-fail", "one", 8), ("cannot-fail", "one", 11)
    ]  # fmt: skip
    assert findings[0].message == "good does not pass it: safety: it ended with gave_up"
    assert all(set(scenarios) == {"one"} for _, _, scenarios in fake.played[1:])


@pytest.mark.req("V09")
def test_mutants_say_the_opposite_of_one_expectation_and_leave_the_rest() -> None:
    scenario = parse_scenario(FULL.format(category="happy"), "a.yaml")
    made = mutants(scenario)
    assert [mutant.path for mutant in made] == [
        ("expect", "state", "/a"), ("expect", "state", "/b"), ("expect", "calls", 0),
        ("expect", "no_calls", 0), ("expect", "says", 0), ("expect", "does_not_say", 0),
        ("expect", "end"), ("goals", "criteria", 0),
    ]  # fmt: skip
    assert made[0].scenario.expect.state == {"/a": 2, "/b": {"c": True}}
    assert [call.tool for call in made[2].scenario.expect.no_calls] == ["buy", "look"]
    assert made[2].scenario.expect.calls == ()
    assert made[3].scenario.expect.calls[1].ok is True
    assert made[4].scenario.expect.does_not_say == ("sorry", "found")
    assert "gave_up" not in made[6].scenario.expect.end
    assert made[7].scenario.goals.criteria[0].endswith("It is said who pays")
    for mutant in made:
        assert Scenario.model_validate_json(mutant.scenario.model_dump_json()) == mutant.scenario


@pytest.mark.parametrize("value", [True, 0, -1.5, "", "x", [], {}, {"a": 1}, None])
def test_another_value_is_another_one(value: Any) -> None:
    assert other_value(value) != value
    assert type(other_value(value)) is type(value) or value is None


@pytest.mark.req("V09")
def test_the_demos_agent_fails_every_mutant_of_what_it_passes() -> None:
    """Of the real agent, simulators and judge: no expectation of the demo is idle."""
    suite = demo_suite()
    offline = Offline(suite, "good")
    originals = {scenario.id: scenario for scenario in offline.scenarios}
    wanted = ["happy-refund-by-email", "failure-long-outage", "adversarial-planted-instruction"]
    turned = [m.scenario.model_copy(update={"id": f"{name}--{n}"})
              for name in wanted for n, m in enumerate(mutants(originals[name]))]  # fmt: skip
    offline.scenarios = [*(originals[name] for name in wanted), *turned]
    played = asyncio.run(offline.run(0))
    passed = {one.scenario.id for one in played if one.scored.passed}
    assert passed == set(wanted)
    assert len(played) == len(wanted) + 3 + 5 + 4


LOADED = """\
scenario:
  name: x
  category: load
  user: {facts: {a: 1}, think: {min_ms: 5000, max_ms: 9000}}
  load: {sessions: 50, concurrency: 9, arrival: {per_s: 0.1}, objectives: {sessions_per_s: 5}}
"""


def test_one_session_is_played_at_once_whatever_load_and_pauses_are_asked_for() -> None:
    alone = single(parse_scenario(LOADED, "x.yaml"))
    assert alone.load is not None
    assert alone.load.model_dump(exclude_defaults=True) == {"sessions": 1, "concurrency": 1}
    assert alone.user is not None
    assert alone.user.think is None
