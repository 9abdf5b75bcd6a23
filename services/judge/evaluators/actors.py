"""Actors: whether the sub-agents of a multi-agent system kept to their roles, and what each did.

The gate `actors` is there where the scenario says something of `actors`. It looks at

- each **tool call** that is attributed to a sub-agent with a role that lists `tools`: it must be
  one of them, whatever came of the call;
- each **hand-off** by a sub-agent whose role says `hands_to`: it must be to one of those;
- with `others: false`, each sub-agent that does something and has no role;
- `handoffs`: they must occur in this order, anything in between. Where the agent reports no
  hand-offs at all, and the sub-agent that should be handed to acted, nobody can say.

A role is meant by a call path that is its name or ends with it; of several the longest. A call
that is attributed to nobody is the agent's own, and no sub-agent's. The value is the fraction of
what was looked at that is as it should be.

Not applicable: the agent reports nothing of sub-agents. Where hand-offs are expected, that is
unscored instead, since what is expected was not shown.

What each sub-agent did is told apart from that by two figures each: `tool_calls.NAME`, its calls,
and `tool_use.NAME`, which part of them was made correctly (see `tool_use`). Names are those of
roles and of the agent's registered catalogue, at most twenty; `others` stands for all the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from schemas.briefs import JudgeBrief
from schemas.moments import HandoffMatch
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators import tool_use
from services.judge.evaluators.scoring import (
    Finding,
    cited,
    count,
    gate_of,
    not_applicable,
    unscored,
)
from services.judge.moments import Timeline, fits_handoff, named_handoff
from services.judge.outcomes import MalformedBrief, is_actor
from services.judge.trajectory import Call, Trajectory, UnreadableTrajectory

NAME = "actors/1"
OTHERS = "others"
NOBODY = "the agent reports nothing of sub-agents: no call is attributed to one, and no hand-off"

_NAMED = 20


def evaluate(trajectory: Trajectory, brief: JudgeBrief) -> tuple[DimensionScore, ...]:
    """The gate, where the scenario asks for it, and the figures of each sub-agent."""
    timeline = Timeline(trajectory)
    return (*_gate(trajectory, timeline, brief), *_figures(trajectory, timeline, brief))


def _gate(
    trajectory: Trajectory, timeline: Timeline, brief: JudgeBrief
) -> Iterator[DimensionScore]:
    actors = brief.actors
    if not (actors.roles or actors.handoffs or not actors.others):
        return
    if not timeline.actors:
        settle = unscored if actors.handoffs else not_applicable
        yield settle(Dimension.ACTORS, NAME, NOBODY)
        return
    findings = [
        *_calls(trajectory, brief),
        *_handed(timeline, brief),
        *_strangers(timeline, brief),
    ]
    expected = _in_order(timeline, actors.handoffs)
    failing = any(not finding.holds for finding in findings)
    if isinstance(expected, str):
        if not failing:
            yield unscored(Dimension.ACTORS, NAME, expected)
            return
    elif expected is not None:
        findings.append(expected)
    own = sum(1 for call in trajectory.calls if not call.body.actor)
    told = f", and {count(own, 'call')} attributed to none" if own else ""
    if not findings:
        yield not_applicable(Dimension.ACTORS, NAME, f"no sub-agent with a role did anything{told}")
        return
    kept = f"{count(len(timeline.actors), 'sub-agent')} kept to their roles{told}"
    yield gate_of(Dimension.ACTORS, NAME, findings, when_all_hold=kept)


def _calls(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    for call in trajectory.calls:
        name = _role(call.body.actor, brief.actors.roles)
        tools = brief.actors.roles[name].tools if name else None
        if tools is not None:
            words = f"{call.body.actor} called {call.tool} ({call.step}), which is not for {name}"
            yield Finding(call.tool in tools, words, (call.step,))


def _handed(timeline: Timeline, brief: JudgeBrief) -> Iterator[Finding]:
    for handoff in timeline.handoffs:
        name = _role(handoff.by, brief.actors.roles)
        allowed = brief.actors.roles[name].hands_to if name else None
        if allowed is not None:
            step = handoff.point.step
            words = f"{handoff.by} handed over to {handoff.to} ({step}), "
            words += f"and may only to {' or '.join(allowed) or 'nobody'}"
            yield Finding(any(is_actor(handoff.to, one) for one in allowed), words, (step,))


def _strangers(timeline: Timeline, brief: JudgeBrief) -> Iterator[Finding]:
    if brief.actors.others:
        return
    for path, points in timeline.actors.items():
        step = points[0].step
        words = f"{path} acted ({step}), and has no role"
        yield Finding(bool(_role(path, brief.actors.roles)), words, (step,))


def _in_order(timeline: Timeline, expected: Sequence[HandoffMatch]) -> Finding | str | None:
    """Whether the hand-offs occurred in this order; or why nobody can say; None: none expected."""
    if not expected:
        return None
    matched: list[str] = []
    for handoff in timeline.handoffs:
        if len(matched) < len(expected) and fits_handoff(handoff, expected[len(matched)]):
            matched.append(handoff.point.step)
    if len(matched) == len(expected):
        return Finding(True, "every expected hand-off occurred", tuple(matched))
    missing = expected[len(matched)]
    if why := timeline.blind_to_handoff(missing):
        return why
    earlier = [h.point.step for h in timeline.handoffs if fits_handoff(h, missing)]
    where = f" after {matched[-1]}" if matched else ""
    only = f" (only at {', '.join(earlier[:5])})" if earlier else ""
    words = (
        f"{named_handoff(missing)} does not occur{where}{only}: "
        f"{len(matched)} of {len(expected)} expected hand-offs in order"
    )
    return Finding(False, words, tuple(matched))


def _figures(
    trajectory: Trajectory, timeline: Timeline, brief: JudgeBrief
) -> Iterator[DimensionScore]:
    names = list(dict.fromkeys([*brief.actors.roles, *_catalogue(trajectory)]))[:_NAMED]
    if not names and not timeline.actors:
        return
    made: dict[str, list[int]] = {name: [] for name in [*names, OTHERS]}
    for index, call in enumerate(trajectory.calls):
        if call.body.actor:
            made[_role(call.body.actor, names) or OTHERS].append(index)
    for name, calls in made.items():
        if name == OTHERS and not calls:
            continue
        yield from _of_actor(name, trajectory.calls, calls, brief, seen=bool(timeline.actors))


def _of_actor(
    name: str, calls: Sequence[Call], own: Sequence[int], brief: JudgeBrief, *, seen: bool
) -> Iterator[DimensionScore]:
    dimensions = (f"{Dimension.TOOL_CALLS}.{name}", f"{Dimension.TOOL_USE}.{name}")
    if not seen:
        for dimension, kind in zip(dimensions, ("measure", "quality"), strict=True):
            yield not_applicable(dimension, NAME, NOBODY, kind=kind)
        return
    steps = cited(calls[index].step for index in own)
    yield DimensionScore(
        dimension=dimensions[0], kind="measure", value=float(len(own)), evaluator=NAME,
        reason=f"calls attributed to {name}", citations=steps,
    )  # fmt: skip
    if not own:
        yield not_applicable(dimensions[1], NAME, f"{name} called no tool", kind="quality")
        return
    try:
        findings = [tool_use.finding(calls, index, brief) for index in own]
    except (UnreadableTrajectory, MalformedBrief) as error:
        yield replace(unscored(dimensions[1], NAME, str(error)), kind="quality")
        return
    wrong = [finding for finding in findings if not finding.holds]
    yield DimensionScore(
        dimension=dimensions[1], kind="quality", evaluator=NAME,
        value=(len(findings) - len(wrong)) / len(findings),
        reason=wrong[0].words if wrong else f"all {count(len(own), 'call')} made correctly",
        citations=cited(step for finding in wrong or findings for step in finding.steps),
    )  # fmt: skip


def _role(path: str | None, names: Iterable[str]) -> str:
    """The name that a call path goes by, or an empty one."""
    return max((name for name in names if is_actor(path, name)), key=len, default="")


def _catalogue(trajectory: Trajectory) -> list[str]:
    """The sub-agents that the agent is registered with."""
    try:
        actors = json.loads(trajectory.start.tool_brief).get("actors", [])
    except (ValueError, AttributeError, RecursionError):
        return []
    return [one for one in actors if isinstance(one, str)] if isinstance(actors, list) else []
