"""Every problem of a scenario file at once: mistakes in fields and between them."""

from __future__ import annotations

import pytest

from schemas.errors import InvalidDocument
from schemas.faults import Failure
from schemas.loader import located_suite, parse_scenario
from schemas.scenario import Scenario

EVERYTHING_WRONG = """\
scenario:
  name: ""
  category: load
  failures:
    - {id: a, kind: slow}
    - {id: a, kind: sluggish}
    - {id: a, kind: slow}
  user: {goals: [{say: [x], done_when: [x]}]}
  conversations:
    - goals: [{say: [x]}]
  policies:
    - {id: p, never: {says: x}}
    - {id: p, never: {says: "("}}
  expect:
    state: {orders: 1, /ok: 2}
    calls: [{tool: t, response: {verified: true, /a~b: 1}}]
"""


def problems(text: str) -> list[tuple[int | None, int | None, str, str]]:
    with pytest.raises(InvalidDocument) as refused:
        parse_scenario(text, "a.yaml")
    return [(p.line, p.column, p.path, p.message) for p in refused.value.problems]


@pytest.mark.req("S06")
def test_what_does_not_go_together_is_told_along_with_all_else() -> None:
    found = problems(EVERYTHING_WRONG)
    assert [(line, column, path) for line, column, path, _ in found] == [
        (2, 9, "scenario.name"),
        (3, 13, "scenario.category"),
        (6, 12, "scenario.failures[1].id"),
        (6, 21, "scenario.failures[1].kind"),
        (7, 12, "scenario.failures[2].id"),
        (10, 5, "scenario.conversations"),
        (10, 15, "scenario.conversations[0].goals[0].done_when"),
        (13, 12, "scenario.policies[1].id"),
        (13, 29, "scenario.policies[1].never.says"),
        (15, 13, "scenario.expect.state.orders"),
        (16, 34, "scenario.expect.calls[0].response.verified"),
        (16, 50, "scenario.expect.calls[0].response./a~b"),
    ]
    words = {path: message for _, _, path, message in found}
    assert words["scenario.category"] == "category load needs `load: {sessions, concurrency}`"
    assert words["scenario.failures[1].id"] == "failures: repeated id a"
    assert words["scenario.expect.state.orders"].endswith("found 'orders'; write /orders")
    assert words["scenario.expect.calls[0].response./a~b"].endswith("after ~ comes 0 or 1")


@pytest.mark.req("S06")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("category: long-horizon, conversations: nope", "at least two `conversations`"),
        ("category: failure-injection, failures: 3", "needs `failures`"),
        ("category: load, load: {sessions: 0}", ""),
        ("policies: [{id: [x]}, {id: [x]}]", ""),
    ],
)
def test_fields_of_a_wrong_type_do_not_hide_the_rest(fields: str, message: str) -> None:
    found = [said for *_, said in problems(f"scenario: {{name: x, {fields}}}\n")]
    between = [said for said in found if "needs" in said or "repeated" in said]
    assert between == [said for said in found if message and message in said]
    assert len(found) > len(between)


@pytest.mark.req("S06")
def test_scenarios_made_in_code_and_read_from_json_are_checked_too() -> None:
    failure = Failure(id="a", kind="slow")
    with pytest.raises(ValueError, match="repeated id a"):
        Scenario(name="x", failures=(failure, failure))
    with pytest.raises(ValueError, match="category load needs"):
        Scenario.model_validate_json('{"name": "x", "category": "load"}')
    good = Scenario(name="x", failures=(failure,))
    assert Scenario.model_validate_json(good.model_dump_json()) == good
    assert Scenario.model_validate(good) is good


@pytest.mark.req("S06")
def test_values_keep_the_place_that_they_come_from() -> None:
    suite = "name: s\nversion: '1'\nowner: me\ndefaults:\n  policies: [{id: p}]\n"
    text = "scenario:\n  name: x\n  policies:\n    - {id: q}\n"
    _, documents = located_suite(suite, {"deep/a.yaml": text})
    tree = documents["deep/a.yaml"].value
    assert isinstance(tree, dict)
    scenario = tree["scenario"].value
    assert isinstance(scenario, dict)
    policies = scenario["policies"].value
    assert isinstance(policies, list)
    assert [(p.file, p.line) for p in policies] == [("suite.yaml", 5), ("deep/a.yaml", 4)]
    assert scenario["owner"].file == "suite.yaml"
    assert scenario["id"].value == "a"
