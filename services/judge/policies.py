"""Policies as rules over time, and where a trajectory breaks them.

What a rule restricts counts as soon as it is attempted, and what it demands counts only when it
was done; a pattern's own `ok` overrides both. In full:

- `never.call`: each matching call, attempted, breaks it. `never.says`: each agent turn in which
  anything the agent says matches breaks it.
- `requires`: a call matching `call`, attempted, breaks it unless an earlier call of the session
  matches `first`, succeeded, and has the same value for every argument in `same`. An argument
  that either call lacks agrees with nothing.
- `at_most`: among the succeeded calls matching `call`, those with equal values for the arguments
  in `per` (one that is lacking equals another that is lacking) form a group; in each group,
  every call after the first `times` breaks it.
- `follows`: a succeeded call matching `call` breaks it unless one of the next `within` tool calls
  of the session, of whatever tool, matches `then`; without `within`, any later one will do. The
  attempt is enough: whether it succeeds is not in the agent's hands.

All turns and all calls of the session count, in every conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from schemas.expectations import AtMost, Follows, Never, Policy, Requires
from services.judge.outcomes import canonical, matches, same
from services.judge.trajectory import AgentStep, Call, Trajectory


@dataclass(frozen=True)
class Violation:
    """One breach: of which rule, in which turn, and the step that is it."""

    policy: str
    turn: int
    step: str
    words: str


def violations(trajectory: Trajectory, policies: Iterable[Policy]) -> list[Violation]:
    """Every breach of the given policies, in the order in which they happened.

    Raises:
        MalformedBrief: a pattern cannot be looked up.
    """
    found: list[tuple[int, Violation]] = []
    for policy in policies:
        for step, words in _breaches(trajectory, policy):
            told = f"{policy.id}: {words} ({step.step})"
            found.append((step.position, Violation(policy.id, step.turn, step.step, told)))
    return [violation for _, violation in sorted(found, key=lambda item: item[0])]


def _breaches(trajectory: Trajectory, policy: Policy) -> Iterator[tuple[Call | AgentStep, str]]:
    if policy.never:
        yield from _never(trajectory, policy.never)
    if policy.requires:
        yield from _requires(trajectory, policy.requires)
    if policy.at_most:
        yield from _at_most(trajectory, policy.at_most)
    if policy.follows:
        yield from _follows(trajectory, policy.follows)


def _never(trajectory: Trajectory, rule: Never) -> Iterator[tuple[Call | AgentStep, str]]:
    if rule.call:
        for call in trajectory.calls:
            if matches(call, rule.call):
                yield call, f"{call.tool} was called"
    if rule.says:
        for turn in trajectory.agent_turns:
            if any(rule.says.found_in(text) for text in turn.said):
                yield turn, f"the agent says {str(rule.says)!r}"


def _requires(trajectory: Trajectory, rule: Requires) -> Iterator[tuple[Call, str]]:
    done: list[Call] = []
    for call in trajectory.calls:
        if matches(call, rule.call) and not any(_agree(call, first, rule.same) for first in done):
            same_values = f" for the same {', '.join(rule.same)}" if rule.same else ""
            yield call, f"{call.tool} was called without {rule.first.tool} before it{same_values}"
        if matches(call, rule.first, ok=True):
            done.append(call)


def _agree(call: Call, other: Call, names: Iterable[str]) -> bool:
    return all(
        name in call.arguments
        and name in other.arguments
        and same(call.arguments[name], other.arguments[name])
        for name in names
    )


def _at_most(trajectory: Trajectory, rule: AtMost) -> Iterator[tuple[Call, str]]:
    succeeded: Counter[tuple[str, ...]] = Counter()
    for call in trajectory.calls:
        if not matches(call, rule.call, ok=True):
            continue
        group = tuple(
            canonical(call.arguments[name]) if name in call.arguments else "" for name in rule.per
        )
        succeeded[group] += 1
        if succeeded[group] > rule.times:
            values = f" for {', '.join(rule.per)} {', '.join(group)}" if rule.per else ""
            yield call, f"{call.tool} was done {succeeded[group]} times{values}"


def _follows(trajectory: Trajectory, rule: Follows) -> Iterator[tuple[Call, str]]:
    calls = trajectory.calls
    for index, call in enumerate(calls):
        if not matches(call, rule.call, ok=True):
            continue
        end = len(calls) if rule.within is None else index + 1 + rule.within
        if not any(matches(later, rule.then) for later in calls[index + 1 : end]):
            bound = f" within {rule.within} calls" if rule.within else ""
            yield call, f"{call.tool} was not followed by {rule.then.tool}{bound}"
