"""R26: agents ported to other languages from the contract alone hold real sessions, unchanged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from schemas.runs import RunRequest
from schemas.trajectory import TrajectoryEvent
from tests.support.reference_agents import AGENTS, TOOL_SCHEMA, reference_agent, require_language
from tests.support.running_stack import AGENT_TOKEN, RunningStack

pytestmark = pytest.mark.timeout(300)  # the first use of Go compiles its standard library

SUITE = """
name: polyglot
version: "1"
owner: contract
defaults:
  world: {name: order_support}
  limits: {turns: 4, tool_calls: 8, wall_s: 60}
"""
LOOKUP = r"""
scenario:
  name: A customer asks for an order by its number
  category: happy
  user:
    facts: {order_id: ORD-1002}
    goals:
      - {say: ["Where is my order {order_id}?"], done_when: ['headphones.*\}$']}
  expect:
    unchanged: [/orders]
"""
STATE = r"""
scenario:
  name: The order is in the task's state, and the tool first answers no JSON
  category: failure-injection
  setup:
    initial_slots: {order_id: ORD-1002}
  failures:
    - {id: garbled, tool: get_order, kind: malformed, calls: [1], required: true}
  user:
    goals:
      - {say: ["Where is my order?"], done_when: ['headphones.*\}$']}
"""


@dataclass(frozen=True, slots=True)
class Sessions:
    """What came of a language's sessions, by scenario."""

    events: dict[str, list[TrajectoryEvent]]

    def bodies(self, scenario: str, kind: str) -> list[Any]:
        return [b for e in self.events[scenario] if (b := getattr(e, kind)) is not None]


@pytest.fixture(scope="module")
def sessions(
    stack: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Sessions]]:
    """One run for each language whose means are here, all at once."""
    folder: Path = tmp_path_factory.mktemp("polyglot")
    suite = folder / "suite"
    suite.mkdir()
    for name, text in (("suite", SUITE), ("lookup", LOOKUP), ("state", STATE)):
        (suite / f"{name}.yaml").write_text(text)
    stack.publish_suite(suite)
    secret = stack.directory.parent / "auth"
    secret.write_text(f"Bearer {AGENT_TOKEN}")
    with ExitStack() as agents:
        languages = [language for language in AGENTS if _is_here(language)]
        files = []
        for language in languages:
            agent = agents.enter_context(reference_agent(language, folder, AGENT_TOKEN))
            files.append(folder / f"{language}.json")
            files[-1].write_text(json.dumps(_registration(language, agent.url, secret)))
        done = stack.cli("agents", "register", *map(str, files))
        assert done.returncode == 0, done.stderr
        for language in languages:
            stack.request(
                RunRequest(
                    run_id=f"polyglot-{language}", suite="polyglot", agent_id=language,
                    baseline="none", seed=3,
                )
            )  # fmt: skip
        found = {}
        for language in languages:
            status = stack.final_status(f"polyglot-{language}")
            assert (status.state, status.errors) == ("aggregated", ())
            events = stack.trajectories(f"polyglot-{language}")
            found[language] = Sessions({scenario: e for (scenario, _), e in events.items()})
        yield found


def _is_here(language: str) -> bool:
    try:
        require_language(language)
    except pytest.skip.Exception:
        return False
    return True


def _registration(language: str, url: str, secret: Path) -> dict[str, Any]:
    return {
        "agent_id": language,
        "name": "polyglot",
        "endpoint": url,
        "auth_header": "Authorization",
        "auth_value_ref": f"file:{secret}",
        "tools": [{"name": "get_order", "input_schema": json.loads(TOOL_SCHEMA)}],
        "actors": ["supervisor/orders"],
    }


@pytest.mark.req("R26", "R11", "R12")
@pytest.mark.parametrize("language", AGENTS)
def test_a_session_runs_to_its_goal(language: str, sessions: dict[str, Sessions]) -> None:
    require_language(language)
    mine = sessions[language]
    for scenario in ("lookup", "state"):
        [end] = mine.bodies(scenario, "session_ended")
        assert (end.reason, end.detail) == ("goal_met", "")
        for turn in mine.bodies(scenario, "agent_turn"):
            assert (turn.outcome, turn.soft_warnings) == ("ok", ())
            assert turn.final_response.startswith("Order ORD-1002: ")
    calls = mine.bodies("lookup", "tool_called")
    assert [(call.tool, call.source) for call in calls] == [("get_order", "odyssey")]
    assert json.loads(calls[0].arguments) == {"order_id": "ORD-1002"}


@pytest.mark.req("R26", "R04", "V06")
@pytest.mark.parametrize("language", AGENTS)
def test_text_where_json_was_expected_is_survived(
    language: str, sessions: dict[str, Sessions]
) -> None:
    require_language(language)
    mine = sessions[language]
    first, *later = mine.bodies("state", "tool_called")
    assert (first.source, first.response_is_text) == ("injected", True)
    assert [call.source for call in later] == ["odyssey"]
    said = mine.bodies("state", "agent_turn")[0].final_response
    assert said == f"Order ORD-1002: {first.response}".rstrip("\n")


@pytest.mark.req("R09", "R10", "R14")
def test_what_some_of_them_add_is_in_the_trajectory(sessions: dict[str, Sessions]) -> None:
    require_language("node")
    require_language("go")
    [node_plan] = sessions["node"].bodies("lookup", "trace")
    assert (node_plan.type, json.loads(node_plan.payload)) == (
        "plan", {"steps": ["look the order up"]},
    )  # fmt: skip
    [called] = sessions["go"].bodies("lookup", "tool_called")
    assert (called.actor, called.actor_declared) == ("supervisor/orders", True)
    for language, count in (("node", 4), ("go", 4)):
        [turn] = sessions[language].bodies("lookup", "agent_turn")
        assert len(json.loads(turn.messages)) == count
    assert json.loads(turn.metadata)["model"] == "lookup"
