"""Whether the session's tool calls match the reference trajectory that the scenario gives."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.briefs import JudgeBrief
from schemas.expectations import ExpectedTrajectory, Together
from services.judge.evaluators.scoring import Finding
from services.judge.matching import Call, Match, MatchingError, calls_of_events, match
from services.judge.outcomes import MalformedBrief, succeeded
from services.judge.trajectory import Trajectory


def reference_findings(trajectory: Trajectory, brief: JudgeBrief) -> Iterator[Finding]:
    """One finding where there is a reference, none else.

    Raises:
        MalformedBrief: the two cannot be compared; there are too many calls, for example.
    """
    expected = brief.expect.trajectory
    if expected is None:
        return
    actual = calls_of_events(trajectory.events)
    if expected.attempts == "succeeded":
        done = {call.step for call in trajectory.calls if succeeded(call)}
        actual = tuple(call for call in actual if call.label in done)
    overrides = {
        tool: rule if isinstance(rule, str) else list(rule)
        for tool, rule in expected.overrides.items()
    }
    try:
        found = match(
            actual,
            _reference(expected),
            mode=expected.mode,
            arguments=expected.arguments,
            overrides=overrides,
        )
    except MatchingError as error:
        raise MalformedBrief(f"the calls cannot be matched with the reference: {error}") from None
    yield Finding(found.matched, found.explanation, tuple(_cited(found)))


def _reference(expected: ExpectedTrajectory) -> list[Call]:
    calls = []
    for group, entry in enumerate(expected.calls):
        members = entry.together if isinstance(entry, Together) else (entry,)
        calls += [Call(one.tool, dict(one.arguments), group=group) for one in members]
    return calls


def _cited(found: Match) -> Iterator[str]:
    yield from (extra.call.label for extra in found.extra)
    yield from (one.nearest.call.label for one in found.missing if one.nearest is not None)
    if found.divergence is not None and found.divergence.found is not None:
        yield found.divergence.found.label
