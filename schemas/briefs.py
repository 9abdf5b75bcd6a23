"""Who may know what: a scenario is split once, at the edge, into briefs of different types.

The user simulator gets a `UserBrief`, the tool proxy a `ToolBrief`, both inside *session
started*. The `JudgeBrief` never travels on a topic that either of them reads: the judge makes
it from the suite. `split` is the only function that sees all three.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import Field, JsonValue

from schemas import canaries
from schemas.expectations import Actors, Budgets, Expect, Goals, Recovery
from schemas.faults import Failure, ResponseRule
from schemas.latency import Latency
from schemas.merge_patch import patched
from schemas.model import Model
from schemas.policies import Policy
from schemas.registry import AgentRegistration
from schemas.scenario import Category, Scenario, Variation
from schemas.user import Conversation, Fact, Persona, RecordedLine, User, UserAction, UserTool
from schemas.world_setup import WorldSetup
from schemas.world_time import seconds


class UserBrief(Model):
    """All that the user simulator knows: goal, persona, partial knowledge."""

    narrative: str = ""
    persona: Persona
    facts: Mapping[str, Fact] = Field(default_factory=dict)
    conversations: tuple[Conversation, ...] = ()
    think_ms: int = 0
    think: Latency | None = None
    tools: tuple[UserTool, ...] = ()
    actions: tuple[UserAction, ...] = ()
    recording: tuple[RecordedLine, ...] = ()
    seed: int


class ToolBrief(Model):
    """All that the tool proxy knows: the world, the rules, the failures to inject."""

    world: WorldSetup | None = None
    failures: tuple[Failure, ...] = ()
    rules: tuple[ResponseRule, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    user_tools: tuple[str, ...] = Field(
        default=(), description="The world's tools that only the simulated user may call."
    )
    actors: tuple[str, ...] = ()
    seed: int
    failure_multiplier: float = 1.0
    calls_per_minute: int = 60
    max_calls: int = 40
    elapsed_s: tuple[int, ...] = Field(
        default=(0,), description="World seconds since the start, by conversation."
    )


class ToolSpec(Model):
    """A registered tool, as the proxy needs it."""

    name: str
    description: str = ""
    input_schema: Mapping[str, JsonValue]
    output_schema: Mapping[str, JsonValue] | None = None
    mode: str = "sandbox"
    target: str | None = None
    target_kind: str = "http"
    target_tool: str | None = None
    target_auth_header: str | None = None
    target_auth_ref: str | None = None
    target_timeout_s: int = 30


class JudgeBrief(Model):
    """What the judge measures a trajectory against. Nobody else may hold one."""

    scenario_id: str
    version: str
    category: Category
    outcome: str = Field(default="", description="The user's aim, in words.")
    expect: Expect
    policies: tuple[Policy, ...] = ()
    recovery: Recovery = Recovery()
    budgets: Budgets = Budgets()
    failures: tuple[Failure, ...] = ()
    goals: Goals = Goals()
    actors: Actors = Field(default=Actors(), description="How sub-agents are to work together.")
    canaries: Mapping[str, str] = Field(
        default_factory=dict, description="What each canary looks like; the seed tells the value."
    )


@dataclass(frozen=True, slots=True)
class Briefs:
    """A scenario, split for one session."""

    user: UserBrief
    tool: ToolBrief
    task_input: Mapping[str, JsonValue]
    variation: str = ""


def split(
    scenario: Scenario,
    agent: AgentRegistration,
    seed: int,
    *,
    failure_multiplier: float = 1.0,
    calls_per_minute: int = 60,
) -> Briefs:
    """The briefs of one session; persona and variation are drawn from the session's seed."""

    variation = _variation(scenario, seed)
    user = scenario.user
    personas = user.personas if user else (Persona(name="plain"),)
    draw = random.Random(f"{seed}:persona")
    persona = draw.choices(personas, weights=[p.weight for p in personas])[0]
    conversations = scenario.all_conversations()
    elapsed, total = [], 0
    for conversation in conversations:
        total += seconds(conversation.after)
        elapsed.append(total)
    briefs = Briefs(
        user=UserBrief(
            narrative=scenario.simulation_context,
            persona=persona,
            facts=_facts(user, variation),
            conversations=conversations,
            think_ms=user.think_ms if user else 0,
            think=user.think if user else None,
            tools=user.tools if user else (),
            actions=user.actions if user else (),
            recording=user.recording if user else (),
            seed=seed,
        ),
        tool=ToolBrief(
            world=_world(scenario.world, variation),
            user_tools=tuple(tool.name for tool in user.tools) if user else (),
            failures=scenario.failures,
            rules=scenario.rules,
            tools=tuple(
                ToolSpec(
                    name=tool.name,
                    description=tool.description,
                    input_schema=json.loads(tool.input_schema),
                    output_schema=json.loads(tool.output_schema) if tool.output_schema else None,
                    mode=tool.mode,
                    target=tool.target,
                    target_kind=tool.target_kind,
                    target_tool=tool.target_tool,
                    target_auth_header=tool.target_auth_header,
                    target_auth_ref=tool.target_auth_ref,
                    target_timeout_s=tool.target_timeout_s,
                )
                for tool in agent.tools
            ),
            actors=agent.actors,
            seed=seed,
            failure_multiplier=failure_multiplier,
            calls_per_minute=calls_per_minute,
            max_calls=scenario.limits.tool_calls,
            elapsed_s=tuple(elapsed) or (0,),
        ),
        task_input=patched(scenario.setup.initial_slots, variation.initial_slots)
        if variation
        else scenario.setup.initial_slots,
        variation=variation.name if variation else "",
    )
    if not scenario.canaries:
        return briefs
    known = canaries.values(seed, scenario.canaries)
    return replace(
        briefs,
        user=canaries.planted(briefs.user, known),
        tool=canaries.planted(briefs.tool, known),
        task_input=canaries.planted(briefs.task_input, known),
    )


def _variation(scenario: Scenario, seed: int) -> Variation | None:
    if not scenario.variations:
        return None
    weights = [variation.weight for variation in scenario.variations]
    return random.Random(f"{seed}:variation").choices(scenario.variations, weights=weights)[0]


def _facts(user: User | None, variation: Variation | None) -> Mapping[str, Fact]:
    facts = dict(user.facts) if user else {}
    for name, value in (variation.facts if variation else {}).items():
        facts[name] = facts.get(name, Fact(value=value)).model_copy(update={"value": value})
    return facts


def _world(world: WorldSetup | None, variation: Variation | None) -> WorldSetup | None:
    if world is None or variation is None:
        return world
    return world.model_copy(
        update={
            "state": patched(world.state, variation.state, keep_nulls=True),
            "now": variation.now or world.now,
        }
    )


def judge_brief(scenario: Scenario) -> JudgeBrief:
    """The judge's part of a scenario."""
    goals = [goal.say[0] for c in scenario.all_conversations() for goal in c.goals]
    return JudgeBrief(
        scenario_id=scenario.id,
        version=scenario.version,
        category=scenario.category,
        outcome=scenario.simulation_context or " / ".join(goals),
        expect=scenario.expect,
        policies=scenario.policies,
        recovery=scenario.recovery,
        budgets=scenario.budgets,
        failures=scenario.failures,
        goals=scenario.goals,
        actors=scenario.actors,
        canaries=scenario.canaries,
    )


UserBrief.model_rebuild()
ToolBrief.model_rebuild()
