"""Expectations turned into their opposites. Pure.

Where an agent passes a scenario, it must fail each mutant: its one expectation is what the passing
session was not. A mutant that passes has an expectation that decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.expectations import Expect, ExpectedCall
from schemas.moments import CallMatch
from schemas.scenario import Scenario
from schemas.trajectory import EndReason
from services.cli.lint.model import Path

_NOT_THIS = "The opposite of the following is true of this conversation: "


@dataclass(frozen=True, slots=True)
class Mutant:
    """A scenario with one expectation reversed."""

    path: Path
    """Where the expectation stands."""
    what: str
    scenario: Scenario


def mutants(scenario: Scenario) -> tuple[Mutant, ...]:
    """Every mutant, in the order of the language's reference."""
    return (*_outcomes(scenario), *_criteria(scenario))


def _outcomes(scenario: Scenario) -> Iterator[Mutant]:
    expect = scenario.expect

    def mutant(path: Path, what: str, **changed: Any) -> Mutant:
        changes: dict[str, Any] = {"expect": expect.model_copy(update=changed)}
        return Mutant(("expect", *path), what, scenario.model_copy(update=changes))

    for pointer, value in expect.state.items():
        state = {**expect.state, pointer: other_value(value)}
        yield mutant(("state", pointer), f"{pointer} is expected to be another value", state=state)
    for number, call in enumerate(expect.calls):
        yield mutant(
            ("calls", number), f"{call.tool} is forbidden instead of expected",
            calls=_without(expect.calls, number), no_calls=(*expect.no_calls, _forbidden(call)),
        )  # fmt: skip
    for number, forbidden in enumerate(expect.no_calls):
        needed = ExpectedCall(**_fields(forbidden))
        yield mutant(
            ("no_calls", number), f"{forbidden.tool} is expected instead of forbidden",
            no_calls=_without(expect.no_calls, number), calls=(*expect.calls, needed),
        )  # fmt: skip
    for one, opposite in (("says", "does_not_say"), ("does_not_say", "says")):
        patterns = getattr(expect, one)
        for number, pattern in enumerate(patterns):
            changed = {
                one: _without(patterns, number), opposite: (*getattr(expect, opposite), pattern)
            }  # fmt: skip
            yield mutant((one, number), f"{str(pattern)!r} moves to {opposite}", **changed)
    if set(expect.end) != set(Expect().end):
        others = tuple(reason for reason in EndReason.ALL if reason not in expect.end)
        yield mutant(("end",), "any other end is expected", end=others)


def _criteria(scenario: Scenario) -> Iterator[Mutant]:
    goals = scenario.goals
    for number, criterion in enumerate(goals.criteria):
        criteria = list(goals.criteria)
        criteria[number] = _NOT_THIS + criterion
        changes = {"goals": goals.model_copy(update={"criteria": tuple(criteria)})}
        yield Mutant(
            ("goals", "criteria", number), "the criterion is negated",
            scenario.model_copy(update=changes),
        )  # fmt: skip


def other_value(value: Any) -> Any:
    """A JSON value of the same kind that is another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value} (not)"
    if isinstance(value, list):
        return [*value, "one more"]
    if isinstance(value, Mapping):
        return {**value, "one more": True}
    return "something"


def _without(items: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    return items[:number] + items[number + 1 :]


def _forbidden(call: ExpectedCall) -> CallMatch:
    return CallMatch(**{name: value for name, value in _fields(call).items() if name != "times"})


def _fields(call: CallMatch) -> dict[str, Any]:
    return {name: getattr(call, name) for name in type(call).model_fields}
