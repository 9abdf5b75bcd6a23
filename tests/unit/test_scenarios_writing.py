"""`scenarios show` and `scenarios new`: who knows what, and skeletons that hold."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from schemas.briefs import JudgeBrief, ToolBrief, UserBrief, judge_brief, split
from schemas.loader import parse_scenario, scenario_of
from schemas.registry import AgentRegistration
from schemas.scenario import Category, Scenario
from schemas.yaml_tree import parse
from services.cli.app import app
from services.cli.lint.linting import lint, read_linted
from services.cli.lint.publish import SCENARIO_SCHEMA
from services.cli.lint.schema import scenario_schema
from services.cli.lint.showing import shown
from services.cli.lint.skeletons import skeleton
from tests.integration.offline import SUITE, demo_suite

SUITE_TEXT = """\
name: shop
version: "1"
owner: me
defaults:
  user: {personas: [plain, terse, rambling, hostile, confused]}
"""
OF_SMALL_SUITES = {"category-thin", "nothing-mined"}
SCENARIOS = [scenario_of(entry) for entry in demo_suite().scenarios]
SECTIONS = (
    "The user knows", "The agent is given", "The tools know", "The judge knows", "The run",
)  # fmt: skip


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["scenarios", *arguments])
    return result.exit_code, result.output


def sections(scenario: Scenario) -> dict[str, str]:
    text = shown(scenario)
    starts = [text.index(f"\n{title}\n") for title in SECTIONS]
    ends = [*starts[1:], len(text)]
    return {t: text[a:b] for t, a, b in zip(SECTIONS, starts, ends, strict=True)}


@pytest.mark.req("V02")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_a_scenario_is_shown_by_who_knows_what(scenario: Scenario) -> None:
    shown_to = sections(scenario)
    agent = AgentRegistration(agent_id="a", name="a", endpoint="http://a")
    # Canaries are shown by their names: their values are each session's own.
    briefs = split(scenario.model_copy(update={"canaries": {}}), agent, 1)
    user = shown_to["The user knows"]
    for name, fact in briefs.user.facts.items():
        assert f"fact {name}: {json.dumps(fact.value)}" in user
    for conversation in briefs.user.conversations:
        for text in (*conversation.pushes, *(t for goal in conversation.goals for t in goal.say)):
            assert text in user
    judge = shown_to["The judge knows"]
    for policy in judge_brief(scenario).policies:
        assert policy.id in judge
        assert policy.id not in user
    for call in (*scenario.expect.calls, *scenario.expect.no_calls):
        assert call.tool in judge
    for pointer in scenario.expect.state:
        assert pointer in judge
        assert pointer not in user
    for failure in briefs.tool.failures:
        assert failure.id in shown_to["The tools know"]
        assert failure.id not in user


def test_every_field_of_a_scenario_is_in_somebodys_brief_or_about_the_run() -> None:
    """Whoever adds a field decides who is told; `show` and the reference then say so."""
    told = set(UserBrief.model_fields) | set(ToolBrief.model_fields) | set(JudgeBrief.model_fields)
    told |= {"simulation_context", "setup", "user", "variations"}  # by other names in the briefs
    about_the_run = {"id", "name", "owner", "origin", "limits", "load", "labels"}
    about_the_run |= {"failure_profile", "profile_multiplier"}  # they are among the failures
    assert set(Scenario.model_fields) - told - about_the_run == set()


@pytest.mark.req("V02")
def test_show_says_everything_that_a_rich_scenario_has() -> None:
    text = """
    scenario:
      name: Rich
      user: {consents: false, think_ms: 20, facts: {code: {value: 7, ask: [which code]}}}
      conversations:
        - goals: [{say: [one], done_when: [first]}]
        - {after: 3d, goals: [{say: [two], done_when: [second]}], consents: false}
      world: {name: shop, state: {open: true}}
      rules: [{id: r1, tool: look, calls: [2], probability: 0.5, times: 3, respond: [1]}]
      failures: [{id: f1, kind: content, content: Call me, field: note, arguments: {a: 1}}]
      policies:
        - {id: p1, at_most: {call: {tool: buy}, times: 2, per: [id]}}
        - {id: p2, follows: {call: {tool: buy, ok: true}, then: {tool: note}, within: 3}}
      goals: {criteria: [It is said], assertions: [{action_executed: x}]}
      expect: {says: [yes], does_not_say: [no], unchanged: [/a]}
      recovery: {by: inform, says: [down]}
      budgets: {turns: 2}
      load: {sessions: 3, concurrency: 2}
      labels: {team: checkout}
      variations: [{name: late, weight: 2, facts: {code: 8}, state: {open: false}}]
    """
    said = shown(parse_scenario(text, "rich.yaml"))
    for line in (
        "thinks for 20 ms", 'fact code: 7, asked for as /which code/', "conversation 2, after 3d:",
        "says no when asked", 'with {"open":true}',
        "rule r1: look, call 2, 50% of them, 3 times at most answers [1]",
        'failure f1: content of note "Call me" in any tool with {"a":1}; must strike',
        "policy rule p1: buy() at most 2 times for each id",
        "policy rule p2: buy() succeeding is followed by note() within 3 calls",
        "criterion: It is said", 'assertion: {"action_executed":"x"}', "says /yes/",
        "never says /no/", "/a is as it was", "recovers by: inform, which sounds like /down/",
        "within 2 turns", "3 sessions, 2 at once", "label team: checkout",
        'in variation late (weight 2) code is 8, the world has {"open":false}',
    ):  # fmt: skip
        assert line in said


def test_show_by_command() -> None:
    code, said = run("show", str(SUITE), "long-asked-twice")
    assert code == 0
    assert "The judge knows" in said
    code, said = run("show", str(SUITE), "happy-order-status", "--json")
    assert json.loads(said)["judge"]["scenario_id"] == "happy-order-status"
    code, said = run("show", str(SUITE), "nope")
    assert code == 2
    assert "happy-order-status" in said


@pytest.mark.req("S01", "S06", "V01")
@pytest.mark.parametrize("category", list(Category))
def test_a_skeleton_is_valid_and_lint_finds_nothing_in_it(category: Category) -> None:
    text = skeleton(category, 'He says "no": and: {so} on', "scenario.schema.json")
    scenario = parse_scenario(text, "new.yaml")
    assert (scenario.category, scenario.name) == (category, 'He says "no": and: {so} on')
    schema = jsonschema_rs.validator_for(scenario_schema())
    assert schema.is_valid(parse(text, "new.yaml")[0].plain())
    texts = {f"{one}.yaml": skeleton(one, "x", "s.json") for one in Category}
    assert {f.rule for f in lint(read_linted(SUITE_TEXT, texts))} == OF_SMALL_SUITES


@pytest.mark.req("S06")
def test_new_writes_a_file_that_validates_and_never_overwrites(tmp_path: Path) -> None:
    for category in Category:
        code, said = run("new", category, f"A {category} one", "--out", str(tmp_path))
        assert code == 0
        file = tmp_path / f"a-{category}-one.yaml"
        assert str(file) in said
        place = file.read_text().splitlines()[0].partition("$schema=")[2]
        assert (tmp_path / place).resolve() == SCENARIO_SCHEMA
    (tmp_path / "suite.yaml").write_text(SUITE_TEXT)
    assert run("validate", str(tmp_path))[0] == 0
    before = (tmp_path / "a-load-one.yaml").read_text()
    code, said = run("new", "load", "A load one", "--out", str(tmp_path))
    assert code == 2
    assert "there already" in said
    assert (tmp_path / "a-load-one.yaml").read_text() == before
    assert run("new", "sad", "x", "--out", str(tmp_path))[0] == 2
    assert run("new", "load", "  ", "--out", str(tmp_path))[0] == 2
