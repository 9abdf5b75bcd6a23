"""Every check of the conformance kit: passed by agents that conform, failed by those that do not.

A check that cannot fail is worthless: for each there is an agent with that one mistake, and of all
checks that one must find it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from schemas.registry import ToolRegistration
from services.cli.conformance import CATALOGUE, CheckResult, run_checks
from services.cli.conformance.catalogue import BY_ID
from services.runtime.http import HttpServer
from tests.contract.conformance.broken import BROKEN
from tests.contract.conformance.conforming import AUTH, CONFORMING, Good, target_of

pytestmark = pytest.mark.timeout(300)  # all examinations are made before the first test
Examined = Mapping[str, Mapping[str, CheckResult]]
AT_ONCE = 16
TOOLS = (
    ToolRegistration(
        name="get_order",
        input_schema='{"type": "object", "properties": {"order_id": {"type": "string"}}, '
        '"required": ["order_id"], "additionalProperties": false}',
    ),
)


async def examine(agent: type[Good], client: httpx.AsyncClient) -> dict[str, CheckResult]:
    instance = agent(client)
    app = Starlette(routes=[Route("/dispatch", instance.dispatch, methods=["POST"])])
    server = HttpServer(app, "127.0.0.1", 0)
    port = await server.start()
    told: list[CheckResult] = []
    try:
        target = target_of(agent, f"http://127.0.0.1:{port}/dispatch", tools=TOOLS)
        results = await run_checks(target, on_result=told.append)
    finally:
        await server.stop()
    assert [result.id for result in results] == [spec.id for spec in CATALOGUE]
    assert sorted(told, key=id) == sorted(results, key=id)
    return {result.id: result for result in results}


@pytest.fixture(scope="module")
def examined() -> Examined:
    """All of them, several at once: an examination waits more than it works."""

    async def main() -> dict[str, dict[str, CheckResult]]:
        slots = asyncio.Semaphore(AT_ONCE)
        async with httpx.AsyncClient(trust_env=False) as client:

            async def one(agent: type[Good]) -> dict[str, CheckResult]:
                async with slots:
                    return await examine(agent, client)

            agents = (*CONFORMING, *BROKEN)
            results = await asyncio.gather(*map(one, agents))
        return {a.__name__: r for a, r in zip(agents, results, strict=True)}

    return asyncio.run(main())


def failures(results: Mapping[str, CheckResult]) -> dict[str, str]:
    return {result.id: result.seen for result in results.values() if result.outcome == "failed"}


@pytest.mark.req("R26")
@pytest.mark.parametrize("agent", CONFORMING, ids=lambda agent: agent.__name__)
def test_agents_that_conform_pass(agent: type[Good], examined: Examined) -> None:
    assert failures(examined[agent.__name__]) == {}


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(agent, marks=pytest.mark.req(BY_ID[agent.check].requirement, "R26"))
        for agent in BROKEN
    ],
    ids=lambda agent: f"{agent.check}-{agent.__name__}",
)
def test_a_mistake_is_found_by_its_check_and_no_other(
    agent: type[Good], examined: Examined
) -> None:
    results = examined[agent.__name__]
    assert set(failures(results)) == {agent.check}, failures(results)
    found = results[agent.check]
    assert found.mend
    assert found.blocks == (found.level == "must")


def test_every_check_has_an_agent_that_fails_it() -> None:
    assert {agent.check for agent in BROKEN} == {spec.id for spec in CATALOGUE}
    assert len(BY_ID) == len(CATALOGUE)


def test_what_does_not_apply_is_said_with_its_reason(examined: Examined) -> None:
    def skipped(agent: str) -> dict[str, str]:
        results = examined[agent].values()
        return {r.id: r.seen for r in results if r.outcome == "not_applicable"}

    assert set(skipped("Good")) == {"rich_answer", "actor", "trace"}
    assert set(skipped("Rich")) == set()
    assert set(skipped("Open")) - set(skipped("Good")) == {
        "ping_needs_auth", "ping_checks_auth", "turn_needs_auth",
    }  # fmt: skip
    assert skipped("Typed").keys() - skipped("Good").keys() == {
        "text_response", "array_response", "error_response",
    }  # fmt: skip
    without_calls = skipped("NoTools")
    assert len(without_calls) == len(CATALOGUE) - 13, without_calls
    assert "no tool call for this instruction" in without_calls["decoded_once"]
    assert "127.0.0.1" in without_calls["decoded_once"]
    assert all(without_calls.values())


def test_no_result_shows_a_secret(examined: Examined) -> None:
    for name, results in examined.items():
        for result in results.values():
            assert AUTH.split()[1] not in repr(result), (name, result.id)
            assert "gAAAAA" not in repr(result), (name, result.id)  # how every run token starts


def test_nobody_there_is_one_failure() -> None:
    target = target_of(Good, "http://127.0.0.1:9/dispatch")
    assert AUTH not in repr(target)
    results = asyncio.run(run_checks(target, on_result=lambda _: None))
    assert [r.id for r in results if r.outcome == "failed"] == ["ping_answered"]
    assert {r.outcome for r in results} == {"failed", "not_applicable"}
