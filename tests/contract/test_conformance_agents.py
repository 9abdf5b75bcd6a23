"""R26: agents written from the contract alone, in four languages, pass every check; a test a line.

The agents are in tests/support/agents; the conformance kit examines each once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from schemas.registry import ToolRegistration
from services.cli.conformance import CATALOGUE, AgentTarget, CheckResult, CheckSpec, run_checks
from tests.support.reference_agents import AGENTS, TOOL_SCHEMA, reference_agent

TOOLS = (ToolRegistration(name="get_order", input_schema=TOOL_SCHEMA),)
NOT_USED = {
    "python": {"rich_answer", "actor", "trace"},
    "shell": {"rich_answer", "actor", "trace"},
    "node": {"actor"},
    "go": {"trace"},
}
"""The optional parts of the contract that an agent does without; all else must pass."""
Examine = Callable[[str], dict[str, CheckResult]]


@pytest.fixture(scope="module")
def examine(tmp_path_factory: pytest.TempPathFactory) -> Examine:
    folder: Path = tmp_path_factory.mktemp("agents")

    @lru_cache
    def once(language: str) -> dict[str, CheckResult]:
        with reference_agent(language, folder) as agent:
            target = AgentTarget(
                url=agent.url, auth_header="Authorization", auth_value=agent.auth, tools=TOOLS,
                instruction="Where is my order 4521?", timeout_s=60, slow_tool_s=1.0, settle_s=0.3,
            )  # fmt: skip
            results = asyncio.run(run_checks(target, on_result=lambda _: None))
        return {result.id: result for result in results}

    return once


@pytest.mark.timeout(300)  # the first use of Go compiles its standard library
@pytest.mark.parametrize(
    ("language", "spec"),
    [
        pytest.param(language, spec, marks=pytest.mark.req(spec.requirement, "R26"))
        for language in AGENTS
        for spec in CATALOGUE
    ],
    ids=lambda value: value.id if isinstance(value, CheckSpec) else value,
)
def test_a_port_of_the_contract_passes(language: str, spec: CheckSpec, examine: Examine) -> None:
    result = examine(language)[spec.id]
    expected = "not_applicable" if spec.id in NOT_USED[language] else "passed"
    assert result.outcome == expected, result.seen
