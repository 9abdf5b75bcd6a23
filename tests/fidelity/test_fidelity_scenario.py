"""A scenario must not be a single happy-path goal: it is of one of five kinds, and says which.

Tried here: a scenario without a kind of risk, labels that nothing stands behind, and trials that
are all alike.
"""

from __future__ import annotations

import pytest

from schemas.briefs import split
from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.scenario import Category, Scenario
from services.cli.lint.catalogue import BY_ID
from tests.fidelity.play import registration
from tests.fidelity.test_fidelity_suite import CASE, rules, text_of


@pytest.mark.req("V01")
def test_a_scenario_is_in_one_of_the_five_categories_and_in_no_other() -> None:
    assert [str(category) for category in Category] == [
        "happy", "failure-injection", "adversarial", "load", "long-horizon",
    ]  # fmt: skip
    with pytest.raises(InvalidDocument, match="category"):
        parse_scenario(text_of(category="exploratory"), "case.yaml")
    with pytest.raises(InvalidDocument, match="category"):
        parse_scenario(text_of(category=["happy", "load"]), "case.yaml")


@pytest.mark.req("V01")
@pytest.mark.parametrize(
    ("category", "needs"),
    [("failure-injection", "failures"), ("load", "load"), ("long-horizon", "conversations")],
)
def test_a_category_is_not_a_mere_label(category: str, needs: str) -> None:
    with pytest.raises(InvalidDocument, match=f"category {category} needs .*`{needs}"):
        parse_scenario(text_of(category=category), "case.yaml")


@pytest.mark.req("V01")
def test_an_adversarial_label_that_forbids_nothing_is_an_error_of_the_linter() -> None:
    assert BY_ID["nothing-unsafe"].severity == "error"
    assert "nothing-unsafe" in rules(text_of(category="adversarial"))
    forbidding = text_of(category="adversarial", expect={"no_calls": [{"tool": "add_note"}]})
    assert "nothing-unsafe" not in rules(forbidding)


@pytest.mark.req("V04")
def test_trials_of_one_scenario_do_not_all_begin_alike() -> None:
    one = Scenario.model_validate(
        {
            "id": "case", **CASE,
            "user": {**CASE["user"], "personas": ["plain", "terse", "hostile"]},
            "variations": [
                {"name": "open", "state": {"orders": {"1": {"status": "open"}}}},
                {"name": "lost", "state": {"orders": {"1": {"status": "lost"}}}},
            ],
        }
    )  # fmt: skip
    briefs = [split(one, registration(), seed) for seed in range(24)]
    assert {brief.user.persona.name for brief in briefs} == {"plain", "terse", "hostile"}
    assert {brief.variation for brief in briefs} == {"open", "lost"}
    assert len({brief.user.seed for brief in briefs}) == 24
