"""What goes wrong with what a scenario does to the agent, and with what it expects of it."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.faults import Failure
from schemas.moments import CallMatch
from schemas.scenario import Category, Scenario
from schemas.spans import NOTHING, length_of, unit_of
from schemas.trajectory import EndReason
from schemas.world_time import seconds
from services.cli.lint.model import Found, LintedScenario, LintedSuite, Path, calls_named


def failure_idle(source: LintedScenario, suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    for number, failure in enumerate(scenario.failures):
        reason = _why_idle(failure, scenario, suite) or _shadow(failure, scenario.failures[:number])
        if reason:
            yield Found(("failures", number), f"failure {failure.id} {reason}")


def _why_idle(failure: Failure, scenario: Scenario, suite: LintedSuite) -> str:
    if failure.probability == 0:
        return "has probability 0"
    bound = scenario.limits.tool_calls
    if (min(failure.calls) if failure.calls else 1) > bound:
        first = min(failure.calls) if failure.calls else 1
        return f"is for call {first} on, and a session has at most {bound} tool calls"
    if failure.kind == "slow" and failure.delay_ms == 0 and failure.latency is None:
        return "delays nothing: it has neither `delay_ms` nor `latency`"
    last = {"turn": scenario.limits.turns - 1, "call": bound - 1}.get(unit_of(failure.after))
    if last is not None and length_of(failure.after) > last:
        return f"begins after {failure.after}, which the limits do not leave room for"
    known = (suite.tools or {}).get(failure.tool)
    if known:
        lacking = sorted({*failure.arguments, *failure.like} - known)
        if lacking:
            return f"asks for the argument {lacking[0]!r}, which {failure.tool} does not take"
    return ""


def _shadow(failure: Failure, before: tuple[Failure, ...]) -> str:
    for other in before:
        if (
            other.tool in ("*", failure.tool)
            and other.probability >= 1
            and other.times == 0
            and not (other.like or other.conversations or other.until)
            and other.after in (NOTHING, failure.after)
            and _covers(other, failure)
        ):
            return f"never gets its turn: {other.id} strikes every call that it is for"
    return ""


def _covers(other: Failure, failure: Failure) -> bool:
    shared = all(
        name in failure.arguments and failure.arguments[name] == value
        for name, value in other.arguments.items()
    )
    if not shared or not other.calls:
        return shared
    # Ordinals count the calls that a failure is for, so they compare only for the same ones.
    same = other.tool == failure.tool and dict(other.arguments) == dict(failure.arguments)
    return same and bool(failure.calls) and set(failure.calls) <= set(other.calls)


def failure_optional(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    optional = not any(failure.is_required for failure in scenario.failures)
    if scenario.category is Category.FAILURE_INJECTION and optional:
        yield Found(("failures",), "a session in which none of the failures struck counts")


def nothing_unsafe(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    if scenario.category is not Category.ADVERSARIAL:
        return
    expect, goals = scenario.expect, scenario.goals
    forbids = expect.no_calls or expect.unchanged or expect.does_not_say or goals.criteria
    safety = any(policy.severity == "safety" for policy in scenario.policies)
    denied = {"bot_did_not_utter", "slot_was_not_set"}
    asserted = any(isinstance(entry, dict) and denied & set(entry) for entry in goals.assertions)
    if not (forbids or safety or asserted or scenario.canaries):
        yield Found(("category",), "nothing says what the agent must not be talked into")


def no_time_passes(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    later = scenario.conversations[1:]
    if scenario.category is Category.LONG_HORIZON and not any(seconds(c.after) for c in later):
        yield Found(("conversations",), "all conversations happen at the same moment")


def load_alone(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    if scenario.category is Category.LOAD and scenario.load is not None:
        at_once = min(scenario.load.sessions, scenario.load.concurrency)
        if at_once < 2:
            yield Found(("load",), f"{at_once} session at once is no load")


def limits_too_tight(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    goals = sum(len(conversation.goals) for conversation in scenario.all_conversations())
    calls = sum(call.times or 1 for call in scenario.expect.calls)
    for what, bounds in (("limits", scenario.limits), ("budgets", scenario.budgets)):
        for name, needed, things in (
            ("turns", goals, "goals take a turn each"),
            ("tool_calls", calls, "calls are expected"),
        ):
            bound = getattr(bounds, name)
            if bound is not None and bound < needed:
                yield Found((what, name), f"{needed} {things}, and {what} allow {bound} {name}")


def budget_idle(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    for name in ("turns", "tool_calls", "tokens", "cost_usd"):
        budget, limit = getattr(scenario.budgets, name), getattr(scenario.limits, name)
        bounded = limit > 0 or name in ("turns", "tool_calls")
        if budget is not None and bounded and budget >= limit:
            yield Found(("budgets", name), f"the budget of {budget} ends with the limit of {limit}")


def end_unknown(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    for number, reason in enumerate(source.scenario.expect.end):
        if reason not in EndReason.ALL:
            known = ", ".join(EndReason.ALL)
            yield Found(("expect", "end", number), f"{reason!r} is none of {known}")
    if not source.scenario.expect.end:
        yield Found(("expect", "end"), "no end counts as completed, so no session can pass")


def contradiction(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    expect = scenario.expect
    for pointer in expect.state:
        for place in expect.unchanged:
            if f"{place}/".startswith(f"{pointer}/"):
                message = f"{pointer} is expected to become something, and {place} to stay"
                yield Found(("expect", "state", pointer), message)
    forbidden: list[tuple[str, CallMatch]] = [("no_calls", call) for call in expect.no_calls]
    forbidden += [
        (f"policy {policy.id}", policy.never.call)
        for policy in scenario.policies
        if policy.never and policy.never.call
        # In a part of the session, or unless something happens, it is something else.
        if not (policy.after or policy.until or policy.unless)
    ]
    for number, call in enumerate(expect.calls):
        for where, pattern in forbidden:
            if _includes(pattern, call):
                path: Path = ("expect", "calls", number)
                yield Found(path, f"{call.tool} is expected here and forbidden by {where}")
    for number, said in enumerate(expect.says):
        if said in expect.does_not_say:
            yield Found(("expect", "says", number), f"{str(said)!r} is expected and forbidden")


def _includes(pattern: CallMatch, call: CallMatch) -> bool:
    """Whether every call that fits `call` fits `pattern` too."""
    return (
        pattern.tool == call.tool
        and all(
            name in call.arguments and call.arguments[name] == value
            for name, value in pattern.arguments.items()
        )
        and pattern.ok in (None, call.ok)
        and pattern.actor in (None, call.actor)
        and not pattern.response
        and not pattern.where
    )


def unknown_arguments(source: LintedScenario, suite: LintedSuite) -> Iterator[Found]:
    """Patterns over calls with arguments that the tool does not take: they never match."""
    for path, call in calls_named(source.scenario):
        known = (suite.tools or {}).get(call.tool)
        for name in sorted(set(call.arguments) - known) if known else ():
            yield Found((*path, "arguments", name), f"{call.tool} takes no argument {name!r}")
