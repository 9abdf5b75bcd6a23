"""The comparison that both packages make, step by step, and where they differ.

The first call that fits is taken, whatever a later one would need. The packages stop at the
first call that has no partner, and look at overrides only when two calls of that tool meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from services.judge.matching.arguments import ask
from services.judge.matching.calls import Call
from services.judge.matching.errors import PackageRaises
from services.judge.matching.packages.messages import ERRORS, Refused, openai_messages
from services.judge.matching.result import Extra, Match, Missing, Pair

Matcher = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class Package:
    """In what the two packages differ."""

    profile: str
    keeps_sides: bool
    """Whether a matcher gets the actual arguments first also when the trajectories are compared
    the other way round, which `subset` and the second half of `unordered` do."""
    absent_is_null: bool
    """Whether a list of names takes an absent argument for null, so that a name that is on
    neither side agrees; otherwise absent agrees with nothing."""


OPENEVALS = Package("openevals-0.2.2", keeps_sides=True, absent_is_null=False)
AGENTEVALS = Package("agentevals-0.0.9", keeps_sides=False, absent_is_null=True)


def match_messages(
    package: Package,
    actual: object,
    reference: object,
    *,
    mode: str,
    arguments: str,
    overrides: Mapping[str, Any] | None,
) -> Match:
    """What the package's `create_trajectory_match_evaluator` gives for two lists of messages.

    Raises:
        PackageRaises: the package raises.
        MatcherFailed: a function given as an override raised, and so does the package.
    """

    def matcher_of(tool: str) -> Matcher:
        return _matcher(package, tool, arguments, overrides)

    try:
        ours, theirs = openai_messages(actual), openai_messages(reference)
        if mode == "strict":
            # The package rewrites its messages a second time here, and here alone.
            found = _strict(openai_messages(ours), openai_messages(theirs), matcher_of)
        else:
            found = _contained(package, _calls(ours), _calls(theirs), mode, matcher_of)
    except ERRORS as error:
        reason = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        raise PackageRaises(package.profile, reason) from error
    verdict = "it matches" if found.matched else "it does not match"
    return Match(
        matched=found.matched,
        score=float(found.matched),
        explanation=f"{package.profile}, {mode}: {found.reason or verdict}.",
        pairs=tuple(sorted(found.pairs, key=lambda pair: (pair.reference, pair.actual))),
        missing=found.missing,
        extra=found.extra,
        mode=mode,
        profile=package.profile,
    )


@dataclass(frozen=True)
class _Found:
    pairs: tuple[Pair, ...]
    reason: str = ""
    missing: tuple[Missing, ...] = ()
    extra: tuple[Extra, ...] = ()

    @property
    def matched(self) -> bool:
        return not self.reason


def _calls(messages: Sequence[Mapping[str, Any]]) -> list[Call]:
    return [
        Call(call["function"]["name"], json.loads(call["function"]["arguments"]), label=where)
        for number, message in enumerate(messages, 1)
        for where in (f"message {number}",)
        for call in message.get("tool_calls") or ()
    ]


def _contained(
    package: Package,
    actual: list[Call],
    reference: list[Call],
    mode: str,
    matcher_of: Callable[[str], Matcher],
) -> _Found:
    pairs: list[tuple[int, int]] = []
    if mode in ("superset", "unordered"):
        pairs, lonely = _find_each(reference, actual, matcher_of, turned=False)
        found = tuple(Pair(inside, wanted) for wanted, inside in pairs)
        if lonely is not None:
            call = reference[lonely]
            reason = f"no call is left for reference call {lonely + 1}, {call}"
            return _Found(found, reason, missing=(Missing(lonely, call),))
        if mode == "superset":
            return _Found(found)
    # From here on the actual calls are what is looked for, among those of the reference.
    turned = package.keeps_sides
    pairs, lonely = _find_each(actual, reference, matcher_of, turned=turned)
    found = tuple(Pair(wanted, inside) for wanted, inside in pairs)
    if lonely is not None:
        call = actual[lonely]
        reason = f"no reference call is left for call {lonely + 1}, {call}"
        return _Found(found, reason, extra=(Extra(lonely, call),))
    return _Found(found)


def _find_each(
    wanted: list[Call], inside: list[Call], matcher_of: Callable[[str], Matcher], *, turned: bool
) -> tuple[list[tuple[int, int]], int | None]:
    """Pairs (wanted, inside) up to the first wanted call that has none, which is also given.

    A matcher gets the arguments of `inside` first, those of `wanted` first when `turned`.
    """
    pairs: list[tuple[int, int]] = []
    used: set[int] = set()
    for number, want in enumerate(wanted):
        for index, option in enumerate(inside):
            if want.tool != option.tool or index in used:
                continue
            fits = matcher_of(want.tool)
            one, other = option.arguments, want.arguments
            if fits(other, one) if turned else fits(one, other):
                used.add(index)
                pairs.append((number, index))
                break
        else:
            return pairs, number
    return pairs, None


def _strict(
    actual: list[dict[str, Any]],
    reference: list[dict[str, Any]],
    matcher_of: Callable[[str], Matcher],
) -> _Found:
    if len(actual) != len(reference):
        return _Found((), f"{len(actual)} messages, and {len(reference)} in the reference")
    pairs: list[Pair] = []
    actual_before = reference_before = 0
    for number, (ours, theirs) in enumerate(zip(actual, reference, strict=True), 1):
        if ours["role"] != theirs["role"]:
            reason = f"message {number} is of {ours['role']}, not of {theirs['role']}"
            return _Found(tuple(pairs), reason)
        our_calls, their_calls = ours.get("tool_calls", []), theirs.get("tool_calls", [])
        if len(our_calls) != len(their_calls):
            reason = f"message {number} has {len(our_calls)} calls, not {len(their_calls)}"
            return _Found(tuple(pairs), reason)
        used: set[int] = set()
        for place, call in enumerate(our_calls):
            partner = _partner(call["function"], their_calls, used, matcher_of)
            if partner is None:
                arguments = json.loads(call["function"]["arguments"])
                lonely = Call(call["function"]["name"], arguments, label=f"message {number}")
                extra = (Extra(actual_before + place, lonely),)
                reason = f"no reference call is left in message {number} for {lonely}"
                return _Found(tuple(pairs), reason, extra=extra)
            used.add(partner)
            pairs.append(Pair(actual_before + place, reference_before + partner))
        actual_before += len(our_calls)
        reference_before += len(their_calls)
    return _Found(tuple(pairs))


def _partner(
    function: Mapping[str, Any],
    options: Sequence[Mapping[str, Any]],
    used: set[int],
    matcher_of: Callable[[str], Matcher],
) -> int | None:
    name = function["name"]
    for index, option in enumerate(options):
        if index in used or option["function"]["name"] != name:
            continue
        fits = matcher_of(name)
        # Both are read anew each time, so a matcher that changes them changes nothing.
        actual = json.loads(function["arguments"])
        if fits(actual, json.loads(option["function"]["arguments"])):
            return index
    return None


def _matcher(
    package: Package, tool: str, arguments: str, overrides: Mapping[str, Any] | None
) -> Matcher:
    override = overrides.get(tool) if overrides is not None else None
    if not override:
        return _by_mode(arguments)  # an empty override is none
    if isinstance(override, str):
        return _by_mode(override)
    if callable(override):
        return lambda actual, expected: ask(override, tool, actual, expected)
    if isinstance(override, list):
        return lambda actual, expected: _agree(package, override, actual, expected)
    raise Refused(f"the override of {tool} is of an unknown kind")


def _by_mode(mode: str) -> Matcher:
    """Compared as Python values: 1 equals true, and a NaN only as a part of equal wholes."""
    if mode == "exact":
        return lambda actual, expected: bool(actual == expected)
    if mode == "subset":
        return lambda actual, expected: _has(expected, actual)
    if mode == "superset":
        return _has
    return lambda actual, expected: True  # whatever else the mode says


def _has(whole: Any, part: Any) -> bool:
    return all(name in whole and whole[name] == value for name, value in part.items())


def _agree(package: Package, names: list[str], actual: Any, expected: Any) -> bool:
    absent = None if package.absent_is_null else _ABSENT
    for name in names:
        ours, theirs = _at(actual, name, absent), _at(expected, name, absent)
        if ours is _ABSENT or theirs is _ABSENT or ours != theirs:
            return False
    return True


_ABSENT = object()


def _at(arguments: Any, path: str, absent: object) -> Any:
    value = arguments
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return absent
        value = value[part]
    return value
