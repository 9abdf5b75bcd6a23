"""The published JSON Schema: shipped files fit it, and it refuses what the loader refuses."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.yaml_tree import parse
from services.cli.lint.publish import files
from services.cli.lint.schema import scenario_schema, suite_schema

ROOT = Path(__file__).parents[2]
SUITES = [ROOT / "deploy" / "demo" / "suite", ROOT / "deploy" / "example" / "suite"]
SCENARIOS = sorted(path for folder in SUITES for path in folder.glob("*.yaml")
                   if path.name != "suite.yaml")  # fmt: skip
ELSEWHERE = ROOT / "tests" / "support" / "scenarios" / "order_delay.yml"
SCENARIO = jsonschema_rs.validator_for(scenario_schema())
SUITE = jsonschema_rs.validator_for(suite_schema())


def document(path: Path) -> Any:
    return parse(path.read_text(), path.name)[0].plain()


@pytest.mark.req("S06")
@pytest.mark.parametrize("path", list(files()), ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    assert path.read_text() == files()[path], "run `python -m services.cli.lint.publish`"


@pytest.mark.req("S01", "S06")
@pytest.mark.parametrize("path", [*SCENARIOS, ELSEWHERE], ids=lambda path: path.stem)
def test_shipped_scenarios_fit_the_schema(path: Path) -> None:
    assert [error.message for error in SCENARIO.iter_errors(document(path))] == []


@pytest.mark.req("S06")
@pytest.mark.parametrize("folder", SUITES, ids=lambda folder: folder.parent.name)
def test_shipped_suites_fit_the_schema(folder: Path) -> None:
    assert [error.message for error in SUITE.iter_errors(document(folder / "suite.yaml"))] == []
    assert not SUITE.is_valid({"name": "x", "version": "1", "owner": "me", "default": {}})
    assert not SUITE.is_valid(
        {"name": "x", "version": "1", "owner": "me", "defaults": {"limits": {"turn": 3}}}
    )


@pytest.mark.req("S06")
@pytest.mark.parametrize("field", ["scenario", "suite"])
def test_the_schemas_are_schemas_and_every_field_says_what_it_means(field: str) -> None:
    schema = {"scenario": scenario_schema, "suite": suite_schema}[field]()
    jsonschema_rs.meta.validate(schema)
    for name, part in {"": schema, **schema["$defs"]}.items():
        for field_name, value in part.get("properties", {}).items():
            described = value.get("description") or (
                "$ref" in value
                and schema["$defs"][value["$ref"].rpartition("/")[2]].get("description")
            )
            assert described, f"{name}.{field_name}"


BROKEN: list[tuple[str, Any]] = [
    ("an unknown field", {"categroy": "happy"}),
    ("a category that is none", {"category": "sad"}),
    ("a type", {"name": 3}),
    ("a bound", {"limits": {"turns": 0}}),
    ("no pointer", {"expect": {"unchanged": ["orders"]}}),
    ("no pointer as key", {"expect": {"state": {"orders": 1}}}),
    ("no pointer in an answer", {"expect": {"calls": [{"tool": "t", "response": {"ok": 1}}]}}),
    ("a half escaped pointer", {"expect": {"unchanged": ["/a~b"]}}),
    ("a style that is none", {"user": {"personas": ["angry"]}}),
    ("no persona", {"user": {"personas": []}}),
    ("a fact that is none", {"user": {"facts": {"a": None}}}),
    ("a goal without an end", {"user": {"goals": [{"say": ["x"]}]}}),
    ("two forms of a policy", {"policies": [
        {"id": "p", "never": {"says": "x"}, "at_most": {"call": {"tool": "t"}}}]}),
    ("an utterance of nothing", {"goals": {"assertions": [{"bot_uttered": {}}]}}),
    ("flows that are none", {"goals": {"assertions": [{"flow_started": []}]}}),
    ("no form of a policy", {"policies": [{"id": "p"}]}),
    ("a duration that is none", {"conversations": [
        {"after": "soon", "goals": [{"say": ["x"], "done_when": ["y"]}]}]}),
]  # fmt: skip


@pytest.mark.req("S06")
@pytest.mark.parametrize("broken", [case[1] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_has_the_wrong_shape_is_refused_by_both(broken: dict[str, Any]) -> None:
    scenario = {"scenario": {"name": "x", **broken}}
    assert not SCENARIO.is_valid(scenario)
    with pytest.raises(InvalidDocument):
        parse_scenario(json.dumps(scenario), "a.yaml")


# What the loader alone can tell: see services/cli/lint/schema.py.
LOADER_ALONE = re.compile(
    r"regular expression|repeated id|category \S+ needs|kind \S+ needs|not in both|"
    r"there is no canary|"
    r"scenario\.world\.name: expected the field|facts\.[^:]*\.value: expected the field|"
    r"expected text like .* found '(?:[^']*\\n)'"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 700)
    | st.sampled_from(["", "x", "/a", "3d", "plain"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["name", "tool", "value", "id", "/a", "call"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
ORIGINALS = [document(path) for path in [*SCENARIOS, ELSEWHERE]]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with each of its keys."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else []
    )
    found = [(value, key) for key in keys]
    return found + [place for key in keys for place in places(value[key])]


def problems(scenario: Any) -> list[str]:
    text = json.dumps(scenario)
    try:
        parse_scenario(text, "a.yaml", {"world": {"name": "w"}})
    except InvalidDocument as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.req("S06")
@settings(max_examples=200)
@given(st.data())
def test_mutated_scenarios_that_fit_the_schema_are_loaded(data: st.DataObject) -> None:
    scenario = copy.deepcopy(data.draw(st.sampled_from(ORIGINALS)))
    container, key = data.draw(st.sampled_from(places(scenario)))
    if data.draw(st.booleans()):
        container[key] = data.draw(VALUES)
    elif isinstance(container, dict) and data.draw(st.booleans()):
        container[data.draw(st.sampled_from(["nmae", "turns", "tool", "orders"]))] = data.draw(
            VALUES
        )
    else:
        del container[key]
    told = [problem for problem in problems(scenario) if not LOADER_ALONE.search(problem)]
    assert not (SCENARIO.is_valid(scenario) and told), (scenario, told)
