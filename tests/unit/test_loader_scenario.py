"""Scenario files: what loads, and how everything else is refused."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.scenario import Category


def text(document: str) -> str:
    return textwrap.dedent(document).lstrip("\n")


def problems(document: str) -> list[tuple[int | None, str, str]]:
    """Line, path and message of every problem."""
    with pytest.raises(InvalidDocument) as refused:
        parse_scenario(document, "a.yaml")
    assert all(problem.file == "a.yaml" for problem in refused.value.problems)
    return [(p.line, p.path, p.message) for p in refused.value.problems]


ELSEWHERE = text(
    """
    scenario:
      name: Late parcel, upset customer

      simulation_context: >
        You have waited for a parcel for two weeks and get louder with every detour.

      setup:
        initial_slots:
          authenticated: true
          account_id: "12345"
          attempts: 2

      goals:
        criteria:
          - The reason for the delay is named
        assertions:
          - flow_started:
              flow_ids: [check_order_status]
              operator: any
          - flow_completed:
              flow_id: check_order_status
          - flow_cancelled:
              flow_id: verify_identity
          - action_executed: action_check_order_status
          - slot_was_set:
              - name: order_id
                value: "ORD-9981"
          - slot_was_not_set:
              - name: transfer_amount
          - bot_uttered:
              utter_name: utter_order_delayed
          - bot_did_not_utter:
              utter_name: utter_dont_know
          - pattern_clarification_contains:
              flow_ids: [check_order_status, track_shipment]
              operator: any
          - generative_response_is_relevant:
              utter_source: utter_order_status_details
          - generative_response_is_grounded:
              utter_source: utter_order_status_details
          - sequencing:
              - flow_started: verify_identity
              - action_executed: action_verify_account
              - slot_was_set: authenticated
              - flow_completed: verify_identity
    """
)


@pytest.mark.req("S01")
def test_a_file_of_the_plain_schema_loads_unchanged() -> None:
    scenario = parse_scenario(ELSEWHERE, "eval/scenarios/order_delay.yml")
    written: dict[str, Any] = yaml.safe_load(ELSEWHERE)["scenario"]
    assert scenario.id == "order_delay"
    loaded = scenario.model_dump(mode="json", exclude_defaults=True)
    assert loaded == {"id": "order_delay", **written}


TEN_MISTAKES = text(
    """
    scenario:
      name: Ten mistakes
      categroy: happy
      version: [1]
      user:
        personas: [plain, angry]
        goals:
          - say: [help]
            done_when: ["(unclosed"]
      failures:
        - id: slow
          kind: sluggish
          calls: [0]
      expect:
        unchanged: [orders]
      policies:
        - id: no-form
      limits:
        turns: many
      limits:
        turns: 3
    """
)


@pytest.mark.req("S06", "V01", "V20")
def test_ten_different_mistakes_are_reported_together_with_their_lines() -> None:
    found = problems(TEN_MISTAKES)
    assert [(line, path) for line, path, _ in found] == [
        (3, "scenario.categroy"),
        (4, "scenario.version"),
        (6, "scenario.user.personas[1]"),
        (9, "scenario.user.goals[0].done_when[0]"),
        (12, "scenario.failures[0].kind"),
        (13, "scenario.failures[0].calls[0]"),
        (15, "scenario.expect.unchanged[0]"),
        (17, "scenario.policies[0]"),
        (19, "scenario.limits.turns"),
        (20, "scenario.limits"),
    ]
    by_line = {line: message for line, _, message in found}
    assert "did you mean 'category'?" in by_line[3]
    assert by_line[4] == "expected text, found a list of 1"
    assert "expected a mapping" in by_line[6]
    assert "found 'angry'" in by_line[6]
    assert "regular expression" in by_line[9]
    assert "expected one of timeout, schema_mismatch" in by_line[12]
    assert by_line[13] == "expected greater than or equal to 1, found 0"
    assert "write /orders" in by_line[15]
    assert "exactly one of never, always, requires, at_most, follows" in by_line[17]
    assert by_line[19] == "expected an integer, found 'many'"
    assert "each key once, found it in line 18 too" in by_line[20]


@pytest.mark.req("S06")
def test_a_problem_names_its_column_too() -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse_scenario("scenario: {name: x, owner: [y]}\n", "deep/a.yaml")
    assert str(refused.value) == (
        "deep/a.yaml:1:28: scenario.owner: expected text, found a list of 1"
    )


@pytest.mark.req("S06")
@pytest.mark.parametrize(
    ("document", "line", "message"),
    [
        ("scenario: {name: [x}\n", 1, "not YAML"),
        ("scenario:\n\tname: x\n", 2, "not YAML"),
        ("scenario: {name: x}\n---\nscenario: {name: y}\n", 2, "expected one document"),
        ("- name: x\n", 1, "expected a mapping at the top of the file, found a list"),
        ("", 1, "found nothing"),
        ("just words\n", 1, "found a scalar"),
        ("scenario:\n  name: &n x\n  owner: *n\n", 3, "found the alias *n"),
        ("scenario:\n  name: !!python/name:os.system x\n", 2, "found 'x' as"),
        ("scenario:\n  name: x\n  [1, 2]: y\n", 3, "expected a name as key, found a list"),
        ("scenario: {name: x, limits: {turns: " + "9" * 5000 + "}}\n", 1, "as int"),
        ("scenario: {name: x, limits: {wall_s: 1e999}}\n", 1, "as float"),
        ("scenario: {name: x}\nscenarios: []\n", 2, "did you mean 'scenario'?"),
        ("scenario: 3\n", 1, "expected a mapping, found 3"),
        ("scenari: {name: x}\n", 1, "expected the field 'scenario', which is missing"),
        ("scenario: {name: ''}\n", 1, "expected at least 1 character, found ''"),
        ("scenario: {name: x, category: load}\n", 1, "category load needs `load:"),
    ],
)
def test_what_is_no_scenario_is_refused_where_it_goes_wrong(
    document: str, line: int, message: str
) -> None:
    found = problems(document)
    assert any(at == line and message in said for at, _, said in found), found


@pytest.mark.req("S06")
def test_aliases_that_would_explode_are_refused_before_they_are_built() -> None:
    rows = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    rows += [f"{n}: &{n} [{', '.join([f'*{chr(ord(n) - 1)}'] * 9)}]" for n in "bcdefghijklmnop"]
    found = problems("\n".join(rows) + "\n")
    assert found == [(2, "", "expected the value itself, found the alias *a")]


@pytest.mark.req("S06")
def test_bottomless_nesting_is_refused() -> None:
    assert "levels of nesting" in problems("scenario: " + "[" * 100_000)[0][2]


@pytest.mark.req("S06")
def test_control_characters_are_refused() -> None:
    assert "not YAML" in problems("scenario: \x00")[0][2]


@pytest.mark.req("S01")
def test_words_that_look_like_booleans_or_dates_stay_words() -> None:
    scenario = parse_scenario(
        text(
            """
            scenario:
              name: no
              world: {name: shop, now: 2026-01-15T09:00:00Z}
              user:
                consents: no
                facts: {answer: yes, born: 1999-01-01, pin: 0042, exact: 1e3, sure: true}
                goals: [{say: [hello], done_when: [on]}]
            """
        ),
        "a.yaml",
    )
    assert scenario.name == "no"
    assert scenario.world is not None
    assert scenario.world.now == "2026-01-15T09:00:00Z"
    assert scenario.user is not None
    assert scenario.user.consents is False
    facts = {name: fact.value for name, fact in scenario.user.facts.items()}
    assert facts == {"answer": "yes", "born": "1999-01-01", "pin": 42, "exact": 1000.0,
                     "sure": True}  # fmt: skip


@pytest.mark.req("V20")
def test_an_id_comes_from_the_file_unless_it_is_written() -> None:
    assert parse_scenario("scenario: {name: x}", "deep/late-refund.yaml").id == "late-refund"
    assert parse_scenario("scenario: {name: x, id: own}", "deep/late-refund.yaml").id == "own"
    with pytest.raises(InvalidDocument, match=r"scenario\.id: expected text like"):
        parse_scenario("scenario: {name: x}", "what a name.yaml")


DEFAULTS: dict[str, Any] = {
    "category": "adversarial",
    "owner": "shop",
    "limits": {"turns": 5, "tool_calls": 7},
    "user": {"personas": ["terse", "plain"], "facts": {"email": "a@b.example"}},
    "policies": [{"id": "never-x", "never": {"says": "x"}}],
    "failures": [{"id": "f1", "kind": "slow"}],
    "expect": {"unchanged": ["/orders"]},
}


@pytest.mark.req("S06")
def test_defaults_are_what_a_scenario_starts_from() -> None:
    scenario = parse_scenario(
        text(
            """
            scenario:
              name: x
              category: happy
              limits: {turns: 9}
              user: {personas: [hostile], facts: {pin: 3}}
              policies: [{id: never-y, never: {says: y}}]
              failures: [{id: f2, kind: outage}]
              expect: {unchanged: [/refunds]}
            """
        ),
        "a.yaml",
        DEFAULTS,
    )
    assert scenario.category is Category.HAPPY
    assert scenario.owner == "shop"
    assert (scenario.limits.turns, scenario.limits.tool_calls) == (9, 7)
    assert scenario.user is not None
    assert [persona.name for persona in scenario.user.personas] == ["hostile"]
    assert set(scenario.user.facts) == {"email", "pin"}
    assert [policy.id for policy in scenario.policies] == ["never-x", "never-y"]
    assert [failure.id for failure in scenario.failures] == ["f1", "f2"]
    assert scenario.expect.unchanged == ("/refunds",)


@pytest.mark.req("S06")
def test_an_appended_policy_may_not_repeat_a_default_ones_id() -> None:
    document = "scenario: {name: x, policies: [{id: never-x, never: {says: y}}]}"
    with pytest.raises(InvalidDocument, match="policies: repeated id never-x"):
        parse_scenario(document, "a.yaml", DEFAULTS)


def refusal(document: str) -> InvalidDocument | None:
    try:
        parse_scenario(document, "a.yaml")
    except InvalidDocument as error:
        return error
    return None


@pytest.mark.req("S06")
@given(st.text(max_size=200))
def test_no_text_is_a_scenario_by_chance_and_none_breaks_the_loader(document: str) -> None:
    refused = refusal(document)
    assert refused is not None
    assert refused.problems


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["name", "id", "user", "world", "failures", "policies", "expect", "limits", "conversations",
     "goals", "setup", "rules", "load", "category"]
)  # fmt: skip


@pytest.mark.req("S06")
@given(st.dictionaries(FIELDS, VALUES), st.booleans())
def test_any_values_load_or_are_refused_with_a_place(fields: dict[str, Any], flow: bool) -> None:
    document = yaml.safe_dump({"scenario": fields}, default_flow_style=flow, allow_unicode=True)
    refused = refusal(document)
    assert refused is None or all(problem.line for problem in refused.problems)


@pytest.mark.req("S05", "S06")
def test_a_mistake_in_an_assertion_has_its_place() -> None:
    text = """\
scenario:
  name: n
  goals:
    assertions:
      - flow_started: {flow_ids: [a], operator: some}
      - bot_uttered: {text_matches: "("}
      - unheard_of: x
"""
    with pytest.raises(InvalidDocument) as caught:
        parse_scenario(text, "a.yaml")
    found = [str(problem) for problem in caught.value.problems]
    assert len(found) == 3
    expected_at = {5: "operator", 6: "found '('", 7: "expected one of action_executed, bot_did"}
    for line, expected in expected_at.items():
        assert any(one.startswith(f"a.yaml:{line}:") and expected in one for one in found), found
