"""tau2's reward: whether a session solved the task of tau2's that the scenario names.

The gate `tau2_reward` has tau2's reward as its value, 1 or 0, and passes with 1. What it rests on
is told in docs/tau2.md; `services.runtime.tau2.reward` computes it from the world's end state, the
calls of agent and user, and what the agent said.

Not applicable: never; a scenario that names no task has no such gate.
Unscored: tau2 is not installed here; it has no such task, or none with a reward of its own; the
world of the session was another one.
Cites: where something is missing, the session's calls or the agent's turns; else nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from schemas.briefs import JudgeBrief
from schemas.expectations import Tau2Task
from schemas.scores import Dimension, DimensionScore
from schemas.trajectory import EndReason
from services.judge.evaluators.scoring import Finding, count, gate_of, unscored
from services.judge.trajectory import Trajectory, UnreadableTrajectory
from services.runtime.tau2.domains import domain
from services.runtime.tau2.package import Tau2Missing
from services.runtime.tau2.reward import Check, Done, NotRewardable, reward

NAME = "tau2_reward/1"
STOPPED = frozenset({EndReason.GOAL_MET, EndReason.GAVE_UP, EndReason.AGENT_ENDED})
"""Ends by user or agent; tau2 knows no others that earn anything."""


async def evaluate_all(trajectory: Trajectory, brief: JudgeBrief) -> tuple[DimensionScore, ...]:
    """The gate, of a scenario that names a task. In a thread: databases may have to be read."""
    task = brief.expect.tau2
    if task is None:
        return ()
    return (await asyncio.to_thread(evaluate, trajectory, task),)


def evaluate(trajectory: Trajectory, named: Tau2Task) -> DimensionScore:
    """The gate of a session in which the task was to be solved."""
    try:
        done = _done(trajectory, named)
        of = domain(named.domain)
        found = reward(of, of.task(named.task), done)
    except (Tau2Missing, NotRewardable, UnreadableTrajectory, ValueError) as error:
        return unscored(Dimension.TAU2, NAME, str(error))
    findings = [
        Finding(check.holds, check.words, tuple(_cited(trajectory, check)))
        for check in found.checks
    ]
    if not findings:
        findings = [Finding(True, "the task asks for nothing")]
    reason = f"tau2's reward is 1: {count(len(findings), 'check')}, all of which hold"
    score = gate_of(Dimension.TAU2, NAME, findings, when_all_hold=reason)
    # tau2 multiplies: one check that fails takes it all.
    return replace(score, value=found.value)


def _done(trajectory: Trajectory, named: Tau2Task) -> Done:
    expected, found = f"tau2_{named.domain}", _world_name(trajectory.start.tool_brief)
    if found != expected:
        raise NotRewardable(f"the session's world is {found or 'none'}, not {expected}")
    calls = [event.tool_called for event in trajectory.events if event.tool_called is not None]
    world = trajectory.world
    return Done(
        state=None if world is None else world.end,
        calls=[(call.tool, _object(call.arguments)) for call in calls],
        said=[text for turn in trajectory.agent_turns for text in turn.said],
        stopped=trajectory.end.reason in STOPPED,
    )


def _world_name(tool_brief: str) -> str:
    world = _object(tool_brief).get("world")
    name = world.get("name") if isinstance(world, Mapping) else None
    return name if isinstance(name, str) else ""


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _cited(trajectory: Trajectory, check: Check) -> Iterable[str]:
    if check.holds:
        return ()
    if check.basis == "COMMUNICATE":
        return (turn.step for turn in trajectory.agent_turns)
    if check.basis == "END":
        return (trajectory.events[-1].step,)
    return (event.step for event in trajectory.events if event.tool_called is not None)
