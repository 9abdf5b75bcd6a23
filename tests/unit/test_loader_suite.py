"""Suites: files in, one content-addressed record out."""

from __future__ import annotations

import json

import pytest

from schemas.errors import InvalidDocument
from schemas.loader import incomplete_categories, parse_scenario, parse_suite, scenario_of
from schemas.registry import Suite, SuiteScenario

SUITE = "name: shop\nversion: '1'\nowner: shop-team\n"


def suite(**files: str) -> Suite:
    return parse_suite(SUITE, {f"{name}.yaml": text for name, text in files.items()})


def test_scenarios_come_by_id_with_file_and_canonical_document() -> None:
    made = suite(b="scenario: {name: B, owner: me}", a="scenario: {name: A}")
    assert [(entry.scenario_id, entry.file) for entry in made.scenarios] == [
        ("a", "a.yaml"),
        ("b", "b.yaml"),
    ]
    assert made.scenarios[0].document == '{"id":"a","name":"A","owner":"shop-team"}'
    assert (made.name, made.version, made.owner) == ("shop", "1", "shop-team")
    assert [scenario_of(entry).owner for entry in made.scenarios] == ["shop-team", "me"]


@pytest.mark.req("V20")
def test_the_hash_names_content_and_nothing_else() -> None:
    one = suite(a="scenario: {name: A}", b="scenario: {name: B, id: z}")
    same = suite(other="# a comment\nscenario:\n  id: z\n  name: B\n", a="scenario:\n  name: 'A'\n")
    assert same.suite_hash == one.suite_hash
    assert suite(a="scenario: {name: A!}", b="scenario: {name: B, id: z}").suite_hash != (
        one.suite_hash
    )
    newer = parse_suite(SUITE.replace("'1'", "'2'"), {"a.yaml": "scenario: {name: A}"})
    assert newer.suite_hash != suite(a="scenario: {name: A}").suite_hash


def test_a_document_loads_back_as_the_same_scenario() -> None:
    text = json.dumps(
        {
            "scenario": {
                "name": "all of it",
                "category": "long-horizon",
                "version": "7",
                "origin": "incident",
                "setup": {"initial_slots": {"n": None, "m": [1.5, {"k": True}]}},
                "goals": {"criteria": ["c"], "assertions": [{"action_executed": "a"}]},
                "user": {"personas": ["terse"], "facts": {"pin": 12, "ok": False}},
                "conversations": [
                    {"goals": [{"say": ["s"], "done_when": ["d.*"]}], "consents": False},
                    {"goals": [{"say": ["s"], "done_when": ["d"]}], "after": "2d"},
                ],
                "world": {"name": "w", "state": {"a": {"b": None}}},
                "failures": [{"id": "f", "kind": "partial", "calls": [2, 3], "required": False}],
                "rules": [{"tool": "t", "respond": None}],
                "policies": [{"id": "p", "at_most": {"call": {"tool": "t"}, "per": ["x"]}}],
                "expect": {"state": {"/a/b": 0}, "says": ["x|y"], "end": ["gave_up"]},
                "recovery": {"by": "retry"},
                "budgets": {"turns": 3},
            }
        }
    )
    made = suite(a=text)
    assert scenario_of(made.scenarios[0]) == parse_scenario(text, "a.yaml", {"owner": "shop-team"})


def test_problems_of_all_files_are_reported_at_once() -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_suite(
            "name: shop\nverison: '1'\nowner: me\n",
            {
                "a.yaml": "scenario: {nam: A}",
                "b.yaml": "scenario: {name: B, category: sad}",
                "c.yaml": "scenario: [",
            },
        )
    files = [problem.file for problem in refused.value.problems]
    assert files == ["suite.yaml"] * 2 + ["a.yaml"] * 2 + ["b.yaml", "c.yaml"]
    assert "did you mean 'version'?" in str(refused.value)


def test_an_unreadable_suite_file_does_not_hide_the_scenarios_problems() -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_suite("name: [", {"a.yaml": "scenario: {nme: A}"})
    assert [p.file for p in refused.value.problems] == ["suite.yaml", "a.yaml", "a.yaml"]


def test_a_mistake_in_the_defaults_is_reported_once_and_where_it_is() -> None:
    text = SUITE + "defaults:\n  limits:\n    turns: lots\n"
    with pytest.raises(InvalidDocument) as refused:
        parse_suite(text, {"a.yaml": "scenario: {name: A}", "b.yaml": "scenario: {name: B}"})
    (problem,) = refused.value.problems
    assert (problem.file, problem.line, problem.path) == ("suite.yaml", 6, "scenario.limits.turns")


def test_repeated_ids_are_refused() -> None:
    with pytest.raises(InvalidDocument, match=r"b\.yaml:1:1: scenario\.id: .*'a' in a\.yaml too"):
        suite(a="scenario: {name: A}", b="scenario: {name: B, id: a}")


def test_a_suite_without_scenarios_is_refused() -> None:
    with pytest.raises(InvalidDocument, match="at least one scenario file"):
        parse_suite(SUITE, {})


@pytest.mark.req("V01")
def test_categories_with_fewer_than_five_scenarios_are_named() -> None:
    files = {f"h{n}.yaml": "scenario: {name: x}" for n in range(5)}
    files |= {f"a{n}.yaml": "scenario: {name: x, category: adversarial}" for n in range(4)}
    made = parse_suite(SUITE, files)
    assert incomplete_categories(made) == (
        "failure-injection",
        "adversarial",
        "load",
        "long-horizon",
    )


def test_a_document_from_elsewhere_is_refused_not_raised_raw() -> None:
    with pytest.raises(InvalidDocument, match=r"a\.yaml: name: Field required"):
        scenario_of(SuiteScenario(scenario_id="a", file="a.yaml", document="{}"))
