"""`sequencing`: events in an order, each strictly after the one before, with anything in between.

Taking the earliest event for each step finds a match wherever there is one. When there is none and
the agent does not report what some steps are about, the others decide: they must be in order in any
history that has the whole sequence, so the sequence fails where they fail and is open where they do
not.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.assertions import Step
from services.judge.assertions.facts import Fact, Facts, quoted
from services.judge.assertions.outcome import Outcome, fails, holds, not_applicable


def earliest(steps: Sequence[Step], events: Sequence[Fact]) -> list[Fact]:
    """The earliest match of as many steps, from the first one on, as have one."""
    matched: list[Fact] = []
    for event in events:
        if len(matched) == len(steps):
            break
        step = steps[len(matched)]
        if (event.kind, event.name) == (step.kind, step.body):
            matched.append(event)
    return matched


def in_sequence(steps: Sequence[Step], facts: Facts) -> Outcome:
    """Whether the steps occurred in this order; if not, where it stopped."""
    matched = earliest(steps, facts.events)
    if len(matched) == len(steps):
        places = ", ".join(fact.step for fact in matched)
        return holds(f"all {len(steps)} steps in order ({places})", _places(matched))
    visible = [number for number, step in enumerate(steps) if not facts.blind(step.kind, step.body)]
    rest = earliest([steps[number] for number in visible], facts.events)
    if len(rest) < len(visible):
        return fails(_stopped(steps, visible, rest, facts), _places(rest))
    hidden = next(step for step in steps if (facts.blind(step.kind, step.body)))
    words = f"{_named(hidden)}: {facts.blind(hidden.kind, hidden.body)}"
    return not_applicable(
        f"{len(matched)} of {len(steps)} steps matched; {words}", _places(matched)
    )


def _stopped(
    steps: Sequence[Step], visible: Sequence[int], matched: Sequence[Fact], facts: Facts
) -> str:
    """Where a match of the visible steps stopped."""
    number = visible[len(matched)]
    step = steps[number]
    occurrences = [fact.step for fact in facts.of(step.kind, step.body)]
    where = f"after {matched[-1].step}" if matched else "at all"
    seen = f" (only before: {', '.join(occurrences[:5])})" if occurrences else ""
    done = [f"{_named(steps[visible[i]])} ({fact.step})" for i, fact in enumerate(matched)]
    told = f", after {', '.join(done)}" if done else ""
    return (
        f"stopped at step {number + 1} of {len(steps)}: {_named(step)} does not occur "
        f"{where}{seen}{told}"
    )


def _named(step: Step) -> str:
    return f"{step.kind} {quoted(step.body)}"


def _places(matched: Sequence[Fact]) -> tuple[str, ...]:
    return tuple(fact.step for fact in matched)
