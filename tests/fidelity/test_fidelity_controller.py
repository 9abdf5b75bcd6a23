"""The controller must not mutate the agent or its setup mid-run; it is loaded as it would ship.

Tried here: a registration that changes while sessions run, in every one of its fields; a turn that
tells the agent how to behave; and bounds that would be left out.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest

from schemas.briefs import ToolBrief
from schemas.codec import Codec
from schemas.registry import AgentRegistration, ToolRegistration
from schemas.trajectory import EndReason, SessionStarted
from services.runtime.agents.fingerprint import fingerprint
from tests.fidelity.play import CallTool, good_agent, play, registration, scenario, start_of

pytestmark = pytest.mark.req("V08")


def other(value: Any) -> Any:
    """A value of the same type that is another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, tuple):
        return value[1:] if value else ("x",)
    if isinstance(value, dict):
        return {**value, "x": "y"}
    return "x"


FIELDS = [
    field.name for field in dataclasses.fields(AgentRegistration)
    if field.name not in ("registered_at_ms", "code", "chat", "rasa")
]  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_whatever_changes_in_what_is_registered_makes_it_another_agent(name: str) -> None:
    agent = registration()
    changed = replace(agent, **{name: other(getattr(agent, name))})
    assert fingerprint(changed) != fingerprint(agent)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(ToolRegistration)])
def test_so_does_whatever_changes_in_one_of_its_tools(name: str) -> None:
    agent = registration()
    tool = replace(agent.tools[0], **{name: other(getattr(agent.tools[0], name))})
    assert fingerprint(replace(agent, tools=(tool, *agent.tools[1:]))) != fingerprint(agent)


def test_a_session_is_bound_to_the_agent_it_was_started_with() -> None:
    agent = registration()
    started = start_of(scenario(), agent).session_started
    assert started is not None
    assert started.agent_fingerprint == fingerprint(agent)
    flipped = replace(agent, tools=tuple(replace(t, mode="passthrough") for t in agent.tools))
    # The tools of a session are those of its start: what is registered later is not read there.
    brief = ToolBrief.model_validate_json(started.tool_brief)
    assert {tool.mode for tool in brief.tools} == {"sandbox"}
    later = start_of(scenario(), flipped).session_started
    assert later is not None
    assert later.agent_fingerprint != started.agent_fingerprint


def test_registration_and_start_cannot_be_written_to() -> None:
    agent, start = registration(), start_of(scenario())
    with pytest.raises(dataclasses.FrozenInstanceError):
        agent.endpoint = "http://elsewhere"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        start.session_started.agent_fingerprint = "another"  # type: ignore[misc, union-attr]


def test_a_scenario_has_no_field_by_which_to_set_the_agent_up() -> None:
    """`setup.initial_slots` is its task's input; nothing names prompt, model, tools or build."""
    one = scenario(setup={"initial_slots": {"system_prompt": "Be good.", "tools": []}})
    before, after = start_of(scenario()).session_started, start_of(one).session_started
    assert before is not None
    assert after is not None
    differing = {
        field.name for field in dataclasses.fields(SessionStarted)
        if getattr(before, field.name) != getattr(after, field.name)
    }  # fmt: skip
    assert differing == {"task_input"}
    for field in ("agent", "prompt", "model", "temperature", "tools"):
        with pytest.raises(ValueError, match=field):
            scenario(**{field: {}})


@pytest.mark.req("V07")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"turns": 2}, EndReason.LIMIT_TURNS),
        ({"tool_calls": 3}, EndReason.LIMIT_TOOL_CALLS),
    ],
)
def test_an_agent_that_runs_away_is_stopped_by_a_named_bound(
    limits: dict[str, int], reason: str
) -> None:
    async def runaway(text: str, call: CallTool) -> str:
        for number in range(3):
            await call("add_note", text=f"{text[:9]} {number}")
        return f"I am working on {text[:20]!r}"

    played = play(scenario(limits=limits), runaway)
    assert played.score.end_reason == reason
    assert played.score.passed is False


@pytest.mark.req("V09")
def test_every_step_is_on_record_and_comes_back_from_its_bytes() -> None:
    played, codec = play(scenario(), good_agent), Codec()
    assert [event.step for event in played.events] == ["start", "u1", "t1", "a1", "u2", "end"]
    for event in played.events:
        assert codec.decode(type(event), codec.encode(event)) == event
    started = played.events[0].session_started
    assert started is not None
    assert json.loads(started.tool_brief)["tools"]
