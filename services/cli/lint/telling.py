"""Patterns, policies and roles of sub-agents as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.expectations import Actors
from schemas.loader import canonical_json
from schemas.moments import CallMatch, CustomMatch, HandoffMatch, Moments, SlotMatch
from schemas.policies import Policy, Within


def told_call(call: CallMatch) -> str:
    """`refund(id="7") succeeding`, with all else that the pattern asks for."""
    asked = [f"{name}={_json(value)}" for name, value in call.arguments.items()]
    asked += [
        f"{key} {_json(like.model_dump(mode='json', exclude_defaults=True))}"
        for key, like in call.where.items()
    ]
    text = f"{call.tool}({', '.join(asked)})"
    if call.ok is not None:
        text += " succeeding" if call.ok else " failing"
    text += f" answering {_json(call.response)}" if call.response else ""
    return text + (f" by {call.actor}" if call.actor else "")


def told_moment(pattern: Moments | CallMatch, kind: str = "") -> str:
    """What a pattern is about. `kind`: of several fields, the one that is meant."""
    if isinstance(pattern, CallMatch):
        return told_call(pattern)
    kind = kind or pattern.kinds[0]
    wanted = getattr(pattern, kind)
    if isinstance(wanted, CallMatch):
        return told_call(wanted)
    if isinstance(wanted, HandoffMatch):
        return _handoff(wanted)
    if isinstance(wanted, SlotMatch) and wanted.value is not None:
        return f"{kind} {wanted.name}={_json(wanted.value)}"
    if isinstance(wanted, CustomMatch) and wanted.data:
        return f"{kind} {wanted.name} with {_json(wanted.data)}"
    if kind in ("says", "user_says"):
        return f"{'the agent' if kind == 'says' else 'the user'} saying /{wanted}/"
    return f"{kind} {wanted if isinstance(wanted, str) else wanted.name}"


def told_policy(policy: Policy) -> str:
    """A rule, in the scenario's words and in ours."""
    words = _form(policy)
    words += f", once {told_moment(policy.after)}" if policy.after else ""
    words += f", until {told_moment(policy.until)}" if policy.until else ""
    if policy.unless is not None:
        words += f", unless {told_moment(policy.unless)}{_same(policy.unless.same)}"
    return f"{policy.description.strip()} ({words})" if policy.description else words


def _form(policy: Policy) -> str:
    if policy.never is not None:
        never = policy.never
        return ", ".join(
            f"never says /{never.says}/" if kind == "says" else f"no {told_moment(never, kind)}"
            for kind in never.kinds
        )
    if policy.always is not None:
        return f"always {told_moment(policy.always)}"
    if (rule := policy.requires) is not None:
        words = f"{told_moment(rule)} only after {told_moment(rule.first)}"
        return words + _same(rule.same) + _within(rule.within)
    if (most := policy.at_most) is not None:
        times = "once" if most.times == 1 else f"{most.times} times"
        each = f" for each {', '.join(most.per)}" if most.per else ""
        return f"{told_moment(most)} at most {times}{each}"
    assert policy.follows is not None
    then = policy.follows
    words = f"{told_moment(then)} is followed by {told_moment(then.then)}"
    return words + _same(then.same) + _within(then.within)


def told_actors(actors: Actors) -> Iterator[str]:
    """What each sub-agent may do, and the hand-offs that are expected."""
    for name, role in actors.roles.items():
        may = []
        if role.tools is not None:
            may.append(f"may call {', '.join(role.tools) or 'no tool'}")
        if role.hands_to is not None:
            may.append(f"may hand over to {' or '.join(role.hands_to) or 'nobody'}")
        yield f"sub-agent {name} {' and '.join(may) or 'may do anything'}"
    if not actors.others:
        yield "no other sub-agent acts"
    for number, handoff in enumerate(actors.handoffs):
        yield f"{'then ' if number else ''}{_handoff(handoff)}"


def _handoff(handoff: HandoffMatch) -> str:
    return f"hand-off by {handoff.by or 'anybody'} to {handoff.to or 'anybody'}"


def _same(names: tuple[str, ...]) -> str:
    return f", same {', '.join(names)}" if names else ""


def _within(within: int | Within | None) -> str:
    if within is None:
        return ""
    bounds = {"calls": within} if isinstance(within, int) else within.model_dump(exclude_none=True)
    return " within " + " and ".join(f"{value} {name}" for name, value in bounds.items())


def _json(value: Any) -> str:
    return canonical_json(dict(value) if isinstance(value, Mapping) else value)
