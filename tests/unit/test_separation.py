"""V02: who may know what is a matter of what each party's code can reach."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from schemas.briefs import ToolBrief, UserBrief
from schemas.topics import SCORES, SUITES

pytestmark = pytest.mark.req("V02")

SERVICES = Path(__file__).parents[2] / "services"
# What the judge measures against, and the topics and records that carry it.
JUDGES_ALONE = {"JudgeBrief", "judge_brief", "Suite", "SuiteLookup", "SUITES", "SCORES", "Expect"}


def names_in(package: str) -> set[str]:
    found: set[str] = set()
    for path in (SERVICES / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.ImportFrom | ast.Import):
                found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("package", ["user_simulator", "tool_proxy"])
def test_the_agents_side_cannot_reach_what_the_judge_knows(package: str) -> None:
    assert not names_in(package) & JUDGES_ALONE


def test_the_check_sees_such_names_where_they_are() -> None:
    assert names_in("judge") >= {"JudgeBrief", "SUITES", "SCORES"}


def test_each_simulator_reads_its_own_brief_alone() -> None:
    assert "ToolBrief" not in names_in("user_simulator")
    assert "UserBrief" not in names_in("tool_proxy")
    for topic in (SUITES, SCORES):
        assert not {"user_simulator", "tool_proxy"} & set(topic.read_by)


def test_no_brief_of_the_agents_side_has_a_field_for_the_expected_outcome() -> None:
    fields = set(UserBrief.model_fields) | set(ToolBrief.model_fields)
    assert not fields & {"expect", "goals", "policies", "recovery", "budgets", "outcome"}
