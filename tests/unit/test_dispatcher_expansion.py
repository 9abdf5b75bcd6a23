"""D04, V04, V15: a run request becomes sessions with deterministic ids, seeds and order."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from schemas.briefs import ToolBrief, UserBrief
from schemas.registry import AgentRegistration, Suite, ToolRegistration
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from services.dispatcher.expansion import (
    RequestRefused,
    check_request,
    fingerprint,
    make_plan,
    started_event,
)

REQUEST = RunRequest(run_id="r", suite="s", agent_id="a", trials=2, seed=3)
AGENT = AgentRegistration(
    agent_id="a",
    name="a",
    endpoint="http://x",
    tools=(ToolRegistration(name="t", input_schema='{"type":"object"}'),),
)
SUITE = Suite(suite_hash="h", name="s", version="1", owner="o", scenarios=())


def scenario(name: str, **more: object) -> Scenario:
    user = {
        "personas": ["terse", "rambling", "hostile"],
        "goals": [{"say": ["hi"], "done_when": ["done"]}],
    }
    return Scenario.model_validate({"id": name, "name": name, "user": user} | more)


LOAD = scenario("z-load", category="load", load={"sessions": 3, "concurrency": 2})
SECRET = "the order ends up refunded"
JUDGED = scenario(
    "judged",
    expect={"state": {"/orders/1/status": SECRET}, "says": ["expected words"]},
    goals={"criteria": ["secret criterion"], "assertions": [{"action_executed": "secret_action"}]},
    policies=[{"id": "secret-policy", "never": {"says": "forbidden words"}}],
)


def test_every_scenario_gets_its_trials_and_load_scenarios_a_phase_of_their_own() -> None:
    plan = make_plan(REQUEST, [scenario("b"), scenario("a"), LOAD], can_improvise=False)
    assert [len(phase.sessions) for phase in plan.phases] == [4, 6]
    assert [phase.concurrency for phase in plan.phases] == [8, 2]
    assert plan.per_scenario() == {"a": 2, "b": 2, "z-load": 6}
    ids = [planned.session_id for phase in plan.phases for planned in phase.sessions]
    assert len(set(ids)) == plan.size == 10


@pytest.mark.req("V04")
def test_seeds_and_personas_depend_on_the_seed_and_not_on_the_run() -> None:
    def briefs(request: RunRequest) -> list[tuple[int, str]]:
        plan = make_plan(request, [scenario("a")], can_improvise=False)
        found = []
        for planned in plan.phases[0].sessions:
            started = started_event(request, plan, planned, SUITE, AGENT, 5).session_started
            assert started is not None
            brief = UserBrief.model_validate_json(started.user_brief)
            found.append((started.seed, brief.persona.name))
        return found

    many = replace(REQUEST, trials=30)
    assert briefs(many) == briefs(replace(many, run_id="another"))
    assert briefs(many) != briefs(replace(many, seed=4))
    assert {persona for _, persona in briefs(many)} == {"terse", "rambling", "hostile"}


@pytest.mark.req("V02")
def test_what_the_judge_knows_is_not_in_the_event_that_simulators_read() -> None:
    plan = make_plan(REQUEST, [JUDGED], can_improvise=False)
    event = started_event(REQUEST, plan, plan.phases[0].sessions[0], SUITE, AGENT, 5)
    text = repr(event)
    for secret in (SECRET, "expected words", "secret criterion", "secret_action", "forbidden"):
        assert secret not in text
    assert event.session_started is not None
    assert ToolBrief.model_validate_json(event.session_started.tool_brief).tools[0].name == "t"


@pytest.mark.req("V08")
def test_nothing_the_agent_is_given_names_the_scenario() -> None:
    plan = make_plan(REQUEST, [JUDGED], can_improvise=False)
    event = started_event(REQUEST, plan, plan.phases[0].sessions[0], SUITE, AGENT, 5)
    assert event.session_started is not None
    assert "judged" not in event.session_id
    assert orjson.loads(event.session_started.task_input) == {}


def test_a_request_with_several_mistakes_names_them_all() -> None:
    bad = RunRequest(run_id=" ", suite="", agent_id="a", trials=0, concurrency=0, baseline="best")
    with pytest.raises(RequestRefused) as caught:
        check_request(bad)
    text = " ".join(caught.value.errors)
    for word in ("run_id", "suite", "trials", "concurrency", "baseline"):
        assert word in text
    check_request(REQUEST)


def test_unknown_scenarios_and_unplayable_ones_are_refused() -> None:
    with pytest.raises(RequestRefused, match="'nope' is not in the suite"):
        make_plan(replace(REQUEST, scenarios=("nope",)), [scenario("a")], can_improvise=False)
    words = Scenario.model_validate({"id": "w", "name": "w", "simulation_context": "You are ..."})
    with pytest.raises(RequestRefused, match="WINDTUNNEL_USER_MODEL"):
        make_plan(REQUEST, [words], can_improvise=False)
    assert make_plan(REQUEST, [words], can_improvise=True).size == 2
    with pytest.raises(RequestRefused, match="no scenarios"):
        make_plan(REQUEST, [], can_improvise=True)


@pytest.mark.req("V08")
def test_the_fingerprint_covers_everything_but_the_time() -> None:
    assert fingerprint(AGENT) == fingerprint(replace(AGENT, registered_at_ms=99))
    assert fingerprint(AGENT) != fingerprint(replace(AGENT, build={"model": "m"}))
    assert fingerprint(AGENT) != fingerprint(replace(AGENT, tools=()))
