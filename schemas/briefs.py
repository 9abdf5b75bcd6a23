"""Who may know what: a scenario is split once, at the edge, into briefs of different types.

The user simulator gets a `UserBrief`, the tool proxy a `ToolBrief`, both inside *session
started*. The `JudgeBrief` never travels on a topic that either of them reads: the judge makes
it from the suite. `split` is the only function that sees all three.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, JsonValue

from schemas.expectations import Budgets, Expect, Goals, Policy, Recovery
from schemas.model import Model
from schemas.registry import AgentRegistration
from schemas.scenario import (
    Category,
    Conversation,
    Fact,
    Failure,
    Persona,
    ResponseRule,
    Scenario,
    WorldSetup,
)

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class UserBrief(Model):
    """All that the user simulator knows: goal, persona, partial knowledge."""

    narrative: str = ""
    persona: Persona
    facts: Mapping[str, Fact] = Field(default_factory=dict)
    conversations: tuple[Conversation, ...] = ()
    think_ms: int = 0
    seed: int


class ToolBrief(Model):
    """All that the tool proxy knows: the world, the rules, the failures to inject."""

    world: WorldSetup | None = None
    failures: tuple[Failure, ...] = ()
    rules: tuple[ResponseRule, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
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


@dataclass(frozen=True, slots=True)
class Briefs:
    """A scenario, split for one session."""

    user: UserBrief
    tool: ToolBrief
    task_input: Mapping[str, JsonValue]


def split(
    scenario: Scenario,
    agent: AgentRegistration,
    seed: int,
    *,
    failure_multiplier: float = 1.0,
    calls_per_minute: int = 60,
) -> Briefs:
    """The briefs of one session; the persona is drawn from the session's seed."""

    user = scenario.user
    personas = user.personas if user else (Persona(name="plain"),)
    draw = random.Random(f"{seed}:persona")
    persona = draw.choices(personas, weights=[p.weight for p in personas])[0]
    conversations = scenario.all_conversations()
    elapsed, total = [], 0
    for conversation in conversations:
        total += seconds(conversation.after)
        elapsed.append(total)
    return Briefs(
        user=UserBrief(
            narrative=scenario.simulation_context,
            persona=persona,
            facts=user.facts if user else {},
            conversations=conversations,
            think_ms=user.think_ms if user else 0,
            seed=seed,
        ),
        tool=ToolBrief(
            world=scenario.world,
            failures=scenario.failures,
            rules=scenario.rules,
            tools=tuple(
                ToolSpec(
                    name=tool.name,
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
        task_input=scenario.setup.initial_slots,
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
    )


def seconds(duration: str) -> int:
    """`3d` in seconds."""
    match = re.fullmatch(r"(\d+)([smhd])", duration)
    if match is None:
        raise ValueError(f"{duration!r}: expected a number and s, m, h or d")
    return int(match[1]) * _UNITS[match[2]]


ToolBrief.model_rebuild()
