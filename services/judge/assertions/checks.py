"""Assertions about flows, actions, slots and clarifications. Pure functions over facts."""

from __future__ import annotations

from schemas.assertions import FlowEnd, Flows, Slot
from services.judge.assertions import facts as f
from services.judge.assertions.facts import Fact, Facts, quoted
from services.judge.assertions.outcome import (
    Outcome,
    absent,
    all_of,
    any_of,
    fails,
    holds,
    missing,
    not_applicable,
)
from services.judge.outcomes import same


def flow_started(body: Flows, facts: Facts) -> Outcome:
    """Each of the flows, or one of them, was started at some time."""
    parts = [
        _occurred(facts, f.FLOW_STARTED, flow, f"flow {quoted(flow)} was", "started")
        for flow in body.flow_ids
    ]
    return any_of(parts) if body.operator == "any" else all_of(parts)


def flow_ended(kind: str, body: FlowEnd, facts: Facts) -> Outcome:
    """The flow was completed or cancelled, at the given step if one is given."""
    verb = "completed" if kind == f.FLOW_COMPLETED else "cancelled"
    flow = f"flow {quoted(body.flow_id)}"
    if body.flow_step_id is None:
        return _occurred(facts, kind, body.flow_id, f"{flow} was", verb)
    ends = facts.of(kind, body.flow_id)
    there = [end for end in ends if end.flow_step == body.flow_step_id]
    if there:
        return holds(f"{flow} was {verb} at {quoted(body.flow_step_id)}", _steps(there))
    wanted = f"{flow} was not {verb} at {quoted(body.flow_step_id)}"
    if not ends:
        return missing(wanted, facts.blind(kind, body.flow_id))
    known = [end.flow_step for end in ends if end.flow_step is not None]
    if len(known) < len(ends):
        return not_applicable(f"{wanted}, but it was {verb} at a step not reported", _steps(ends))
    at = ", ".join(quoted(one) for one in dict.fromkeys(known))
    return missing(f"{wanted} but at {at}", facts.gaps[0] if facts.gaps else "", _steps(ends))


def action_executed(name: str, facts: Facts) -> Outcome:
    """The action was run: reported as such, or a tool of that name called."""
    return _occurred(facts, f.ACTION_EXECUTED, name, f"action {quoted(name)} was", "executed")


def slots_were_set(slots: tuple[Slot, ...], facts: Facts) -> Outcome:
    """Each of the slots was given a value at some time: the stated one, or any but null."""
    return all_of(_slot_was_set(slot, facts) for slot in slots)


def slots_were_not_set(slots: tuple[Slot, ...], facts: Facts) -> Outcome:
    """None of the slots was ever given a value: the stated one, or any but null."""
    return all_of(_slot_was_not_set(slot, facts) for slot in slots)


def clarification_contains(body: Flows, facts: Facts) -> Outcome:
    """One clarification suggested all of the flows, or one of them."""
    asked = [fact for fact in facts.events if fact.kind == f.CLARIFICATION]
    wanted, every = set(body.flow_ids), body.operator == "all"
    words = f"{body.operator} of {', '.join(quoted(flow) for flow in body.flow_ids)}"
    fitting = [
        fact
        for fact in asked
        if (wanted <= set(fact.flow_ids) if every else wanted & set(fact.flow_ids))
    ]
    if fitting:
        return holds(f"a clarification suggested {words}", _steps(fitting))
    suggested = ", ".join(dict.fromkeys(quoted(flow) for fact in asked for flow in fact.flow_ids))
    seen = f"; suggested were {suggested}" if asked else ""
    return missing(
        f"no clarification suggested {words}{seen}", facts.blind(f.CLARIFICATION), _steps(asked)
    )


def _occurred(facts: Facts, kind: str, name: str, subject: str, verb: str) -> Outcome:
    found = facts.of(kind, name)
    if found:
        return holds(f"{subject} {verb}", _steps(found))
    return missing(f"{subject} not {verb}", facts.blind(kind, name))


def _slot_was_set(slot: Slot, facts: Facts) -> Outcome:
    given = facts.of(f.SLOT_WAS_SET, slot.name)
    fitting = [fact for fact in given if _gives(fact, slot)]
    if fitting:
        return holds(f"slot {_wanted(slot)} was set", _steps(fitting))
    values = ", ".join(dict.fromkeys(quoted(fact.value) for fact in given[:5]))
    seen = f"; its values were {values}" if given else ""
    blind = facts.blind(f.SLOT_WAS_SET, slot.name)
    return missing(f"slot {_wanted(slot)} was not set{seen}", blind, _steps(given))


def _slot_was_not_set(slot: Slot, facts: Facts) -> Outcome:
    fitting = [fact for fact in facts.of(f.SLOT_WAS_SET, slot.name) if _gives(fact, slot)]
    if fitting:
        value = "" if slot.valued else f" to {quoted(fitting[0].value)}"
        return fails(f"slot {_wanted(slot)} was set{value}", _steps(fitting))
    return absent(f"slot {_wanted(slot)} was not set", facts.blind(f.SLOT_WAS_SET, slot.name))


def _gives(fact: Fact, slot: Slot) -> bool:
    return same(fact.value, slot.value) if slot.valued else fact.value is not None


def _wanted(slot: Slot) -> str:
    return quoted(slot.name) + (f" = {quoted(slot.value)}" if slot.valued else "")


def _steps(found: list[Fact]) -> tuple[str, ...]:
    return tuple(fact.step for fact in found)
