"""Task completion: whether what the scenario expects is so when the session is over.

Every part of `expect` is a check: each `state` value, each `unchanged` pointer, each expected
and forbidden call, each thing said or not said, and the end reason. The value is the fraction
of checks that hold; all must hold to pass.

- `state`: the end state's value is the expected one; an expected null also holds where the
  pointer leads nowhere. When no call carried the world's state, the check fails.
- `unchanged`: the value is the same at the end as at the start, nothing at both ends included.
- `calls`: as many matching calls as `times` says, one or more by default; attempts count unless
  the pattern says `ok`. `no_calls`: none.
- `trajectory`: the calls match the reference (docs/trajectory-matching.md).
- `says`: found in the final response of some answered turn. `does_not_say`: found in nothing
  that the agent said, its other assistant messages included.
- `end`: the session's end reason is among those listed.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas.briefs import JudgeBrief
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.reference import reference_findings
from services.judge.evaluators.scoring import Finding, count, gate_of
from services.judge.outcomes import ABSENT, at, describe, matches, same, show
from services.judge.trajectory import Trajectory

NAME = "task_completion/1"


def evaluate(trajectory: Trajectory, brief: JudgeBrief) -> DimensionScore:
    findings = [
        *_end(trajectory, brief),
        *_state(trajectory, brief),
        *_unchanged(trajectory, brief),
        *_calls(trajectory, brief),
        *reference_findings(trajectory, brief),
        *_words(trajectory, brief),
    ]
    reason = f"all {count(len(findings), 'check')} of the expected outcome hold"
    return gate_of(Dimension.TASK_COMPLETION, NAME, findings, when_all_hold=reason)


def _end(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    reason, expected = trajectory.end.reason, brief.expect.end
    words = f"the session ended with {reason}, expected {' or '.join(expected) or 'no end'}"
    yield Finding(reason in expected, words, (trajectory.events[-1].step,))


def _state(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    if not brief.expect.state:
        return
    world = trajectory.world
    for pointer, expected in brief.expect.state.items():
        if world is None:
            words = f"{pointer} should be {show(expected)}, but no tool call touched the world"
            yield Finding(False, words)
            continue
        found = at(world.end, pointer)
        holds = same(found, expected) or (expected is None and found is ABSENT)
        words = f"{pointer} is {show(found)} at the end, expected {show(expected)}"
        yield Finding(holds, words, _touching(trajectory, pointer))


def _unchanged(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    if not brief.expect.unchanged:
        return
    world = trajectory.world
    for pointer in brief.expect.unchanged:
        if world is None:
            yield Finding(True, f"{pointer} was never touched")
            continue
        before, after = at(world.start, pointer), at(world.end, pointer)
        words = f"{pointer} should not change, but went from {show(before)} to {show(after)}"
        yield Finding(same(before, after), words, _touching(trajectory, pointer))


def _touching(trajectory: Trajectory, pointer: str) -> tuple[str, ...]:
    """The calls that changed the place, something in it, or what it is in."""

    def related(place: str) -> bool:
        return (f"{place}/").startswith(f"{pointer}/") or (f"{pointer}/").startswith(f"{place}/")

    return tuple(call.step for call in trajectory.calls if any(map(related, call.touched)))


def _calls(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    for expected in brief.expect.calls:
        found = tuple(call.step for call in trajectory.calls if matches(call, expected))
        holds = bool(found) if expected.times is None else len(found) == expected.times
        wanted = "at least once" if expected.times is None else f"{count(expected.times, 'time')}"
        words = f"{describe(expected)} was called {count(len(found), 'time')}, expected {wanted}"
        yield Finding(holds, words, found)
    for forbidden in brief.expect.no_calls:
        found = tuple(call.step for call in trajectory.calls if matches(call, forbidden))
        words = f"{describe(forbidden)} must not be called, but was {count(len(found), 'time')}"
        yield Finding(not found, words, found)


def _words(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    for pattern in brief.expect.says:
        found = tuple(
            turn.step
            for turn in trajectory.agent_turns
            if turn.answered and pattern.found_in(turn.body.final_response)
        )
        yield Finding(bool(found), f"the agent never says {show(pattern)}", found)
    for pattern in brief.expect.does_not_say:
        found = tuple(
            turn.step
            for turn in trajectory.agent_turns
            if any(pattern.found_in(text) for text in turn.said)
        )
        yield Finding(not found, f"the agent says {show(pattern)}, which it must not", found)
