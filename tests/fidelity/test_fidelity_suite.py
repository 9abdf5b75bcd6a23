"""Scenario and suite: neither may be a happy path alone, and somebody keeps it.

Tried here: a scenario without a kind of risk, a suite of one happy scenario, a suite that nobody
owns, categories that are empty but for their name, and a verdict that keeps quiet about it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.aggregation import aggregate_run
from schemas.errors import InvalidDocument
from schemas.gate import GateStatus, Verdict
from schemas.loader import incomplete_categories, parse_suite, scenario_of
from schemas.registry import Suite
from schemas.runs import RunStatus
from schemas.scenario import Category
from services.cli.lint.linting import lint, read_linted
from services.dispatcher.expansion import make_plan
from services.gate.verdict import decide
from tests.fidelity.play import REQUEST, good_agent, play
from tests.support.gate_figures import accepted

SUITE_FILE = "name: desk\nversion: '7'\nowner: desk-team\n"
CASE: dict[str, Any] = {
    "name": "Where is my order?",
    "world": {"name": "desk"},
    "user": {
        "personas": ["plain"],
        "facts": {"order_id": "1"},
        "goals": [{"say": ["Where is order {order_id}?"], "done_when": ["it is shipped"]}],
    },
    "expect": {"calls": [{"tool": "get_order"}]},
}


def text_of(**fields: Any) -> str:
    return yaml.safe_dump({"scenario": {**CASE, **fields}})


def rules(text: str) -> set[str]:
    """The rules of the linter that a suite of this scenario breaks."""
    return {finding.rule for finding in lint(read_linted(SUITE_FILE, {"case.yaml": text}))}


def verdict_on(suite: Suite, baseline: str = "none") -> GateStatus:
    """The verdict on a run of all of a suite's scenarios, as the parts make it one by one."""
    scenarios = [scenario_of(entry) for entry in suite.scenarios]
    plan = make_plan(REQUEST, scenarios, can_improvise=False)
    status = RunStatus(
        run_id=REQUEST.run_id, state="sessions_done", suite=suite.name,
        request=replace(REQUEST, baseline=baseline),
        suite_hash=suite.suite_hash, suite_version=suite.version, agent_name="desk-agent",
        planned=plan.size, ended=plan.size, scenario_plan=plan.per_scenario(),
        scenario_categories=plan.categories,
    )  # fmt: skip
    figures = aggregate_run([play(one, good_agent).score for one in scenarios], status)
    return decide(figures, accepted(figures) if baseline == "accepted" else None, 1)


@pytest.mark.req("V01")
def test_a_suite_of_one_happy_path_passes_with_a_verdict_that_says_it_is_incomplete() -> None:
    suite = parse_suite(SUITE_FILE, {"case.yaml": text_of()})
    everything = tuple(str(category) for category in Category)
    assert incomplete_categories(suite) == everything
    status = verdict_on(suite)
    assert status.verdict == Verdict.PASS
    assert status.incomplete_categories == everything
    (told,) = [reason for reason in status.reasons if reason.code == "incomplete_categories"]
    assert all(name in told.message for name in everything)


@pytest.mark.req("V01")
def test_five_happy_scenarios_make_no_other_category_complete() -> None:
    files = {f"case-{n}.yaml": text_of(labels={"row": str(n)}) for n in range(5)}
    status = verdict_on(parse_suite(SUITE_FILE, files), "accepted")
    assert status.incomplete_categories == (
        "failure-injection", "adversarial", "load", "long-horizon",
    )  # fmt: skip
    assert "incomplete_categories" in {reason.code for reason in status.reasons}


@pytest.mark.req("V01")
def test_a_request_for_some_scenarios_does_not_make_the_suite_look_complete_or_not() -> None:
    # The categories are those of the suite, not those of the part that was asked for.
    files = {f"case-{n}.yaml": text_of() for n in range(5)}
    scenarios = [scenario_of(e) for e in parse_suite(SUITE_FILE, files).scenarios]
    part = make_plan(replace(REQUEST, scenarios=("case-1",)), scenarios, can_improvise=False)
    assert part.size == 1
    assert len(part.categories) == 5


@pytest.mark.req("V20")
@pytest.mark.parametrize(
    "line", ["", "owner:", "owner: ''", "owner: '  '"], ids=["none", "null", "empty", "blank"]
)
def test_a_suite_that_nobody_owns_is_refused(line: str) -> None:
    with pytest.raises(InvalidDocument, match="owner"):
        parse_suite(f"name: desk\nversion: '7'\n{line}\n", {"case.yaml": text_of()})


@pytest.mark.req("V20")
@pytest.mark.parametrize("line", ["", "version: ''", "version: ' '"])
def test_a_suite_without_a_version_is_refused(line: str) -> None:
    with pytest.raises(InvalidDocument, match="version"):
        parse_suite(f"name: desk\nowner: desk-team\n{line}\n", {"case.yaml": text_of()})


@pytest.mark.req("V20")
def test_every_scenario_has_an_owner_a_version_and_an_origin() -> None:
    files = {
        "ours.yaml": text_of(),
        "theirs.yaml": text_of(owner="risk-team", version="3", origin="incident-512"),
    }
    ours, theirs = (scenario_of(e) for e in parse_suite(SUITE_FILE, files).scenarios)
    assert (ours.owner, ours.version, ours.origin) == ("desk-team", "1", "written")
    assert (theirs.owner, theirs.version, theirs.origin) == ("risk-team", "3", "incident-512")


@pytest.mark.req("V20")
def test_every_verdict_names_the_suites_version_and_content() -> None:
    suite = parse_suite(SUITE_FILE, {"case.yaml": text_of()})
    for baseline in ("none", "accepted"):
        status = verdict_on(suite, baseline)
        assert (status.suite, status.suite_version) == ("desk", "7")
        assert status.suite_hash == suite.suite_hash


@pytest.mark.req("V20")
def test_what_a_scenario_asks_for_cannot_change_under_the_same_hash() -> None:
    before = parse_suite(SUITE_FILE, {"case.yaml": text_of()})
    softer = parse_suite(SUITE_FILE, {"case.yaml": text_of(expect={})})
    assert softer.version == before.version
    assert softer.suite_hash != before.suite_hash


@pytest.mark.req("V16", "V20")
def test_a_suite_that_knows_nothing_of_production_is_noted() -> None:
    assert "nothing-mined" in rules(text_of())
    assert "nothing-mined" not in rules(text_of(origin="incident-512"))


@pytest.mark.req("V01")
def test_the_demos_own_suite_is_not_happy_path_only() -> None:
    folder = Path(__file__).parents[2] / "deploy" / "demo" / "suite"
    files = {f.name: f.read_text() for f in folder.glob("*.yaml") if f.name != "suite.yaml"}
    suite = parse_suite((folder / "suite.yaml").read_text(), files)
    assert incomplete_categories(suite) == ()
    assert all(json.loads(entry.document)["owner"] for entry in suite.scenarios)
