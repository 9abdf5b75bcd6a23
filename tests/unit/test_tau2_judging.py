"""The gate of tau2's reward where tau2 is not needed: what keeps it from being scored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from schemas.briefs import ToolBrief, judge_brief
from schemas.scenario import Scenario
from schemas.scores import Dimension, SessionScored
from schemas.trajectory import TrajectoryEvent
from schemas.world_setup import WorldSetup
from services.cli.commands import tau2 as commands
from services.cli.errors import CliError
from services.cli.tau2.importing import scenario_id
from services.judge.core import judge_session
from services.runtime.tau2 import package
from tests.support.tool_proxy import ended, started


def scenario(**fields: Any) -> Scenario:
    task = {"tau2": {"domain": "retail", "task": "0"}}
    defaults = {"id": "case", "name": "A case", "world": {"name": "tau2_retail"}, "expect": task}
    return Scenario.model_validate({**defaults, **fields})


def session(world: str = "tau2_retail") -> list[TrajectoryEvent]:
    return [started(ToolBrief(world=WorldSetup(name=world), seed=1)), ended()]


def judged(of: Scenario, events: list[TrajectoryEvent]) -> SessionScored:
    return asyncio.run(judge_session(events, judge_brief(of), at_ms=0))


@pytest.mark.req("V07")
def test_without_tau2_the_gate_is_unscored_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "is_installed", lambda: False)
    # Loaded by another test, a domain would still be there.
    monkeypatch.setattr("services.runtime.tau2.domains._domain", _load_anew)
    scored = judged(scenario(), session())
    [gate] = [one for one in scored.dimensions if one.dimension == Dimension.TAU2]
    assert (gate.kind, gate.status, gate.passed, gate.value) == ("gate", "unscored", None, None)
    assert gate.reason == "tau2 is not installed here: run `make tau2`"
    assert scored.passed is None


def _load_anew(name: str) -> Any:
    from services.runtime.tau2.domains import Domain

    return Domain(name)


@pytest.mark.req("V07")
def test_a_session_in_another_world_is_unscored() -> None:
    scored = judged(scenario(), session("tau2_airline"))
    [gate] = [one for one in scored.dimensions if one.dimension == Dimension.TAU2]
    assert (gate.status, gate.passed) == ("unscored", None)
    assert gate.reason == "the session's world is tau2_airline, not tau2_retail"


@pytest.mark.req("V07")
def test_scenarios_that_name_no_task_have_no_such_gate() -> None:
    scored = judged(scenario(expect={}), session())
    assert Dimension.TAU2 not in {one.dimension for one in scored.dimensions}


@pytest.mark.req("V07")
@pytest.mark.parametrize("world", [None, {"name": "tau2_airline"}, {"answers": "schema"}])
def test_a_task_needs_the_world_of_its_domain(world: Any) -> None:
    with pytest.raises(ValidationError, match="solved in the world tau2_retail"):
        scenario(world=world)


@pytest.mark.req("V07")
def test_ids_of_tasks_become_ids_of_scenarios_that_differ() -> None:
    assert scenario_id("retail", "12") == "retail-12"
    long = "[mms_issue]bad_network|app_off[PERSONA:None]"
    assert scenario_id("telecom", long).startswith("telecom-mms-issue-bad-network-app-off-persona")
    other = scenario_id("telecom", long.replace("|", "[PERSONA"))
    assert scenario_id("telecom", long) != other


@pytest.mark.req("V07")
def test_commands_say_how_to_get_tau2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "is_installed", lambda: False)
    monkeypatch.setattr("services.runtime.tau2.domains._domain", _load_anew)
    with pytest.raises(CliError, match="run `make tau2`"):
        commands._domain("retail")
    with pytest.raises(CliError, match="no domain 'bank' here"):
        commands._domain("bank")
