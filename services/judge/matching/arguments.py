"""Whether the arguments of an actual call fit those of a reference call, and what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from services.judge.matching.calls import Call, canonical, show
from services.judge.matching.errors import InvalidOptions, MatcherFailed

ArgumentsMode: TypeAlias = Literal["exact", "ignore", "subset", "superset"]
"""exact: the same JSON. ignore: anything fits. subset: the actual call has none but arguments of
the reference, with equal values; superset: it has at least those. Top-level names are compared,
values whole."""

Override: TypeAlias = ArgumentsMode | Sequence[str] | Callable[[Any, Any], object]
"""What holds for one tool instead: a mode, the names of the arguments that must be there on both
sides and agree (`a.b` is b in a), or a function of the actual and the reference arguments that
says whether they fit. It must answer the same for the same arguments."""

Overrides: TypeAlias = Mapping[str, Override]
"""Overrides by the tool's name."""

ARGUMENTS_MODES: tuple[str, ...] = get_args(ArgumentsMode)

_ABSENT = object()


@dataclass(frozen=True)
class Difference:
    """One argument in which two calls do not fit.

    `kind`: `differs`, `missing` (the reference has it, the actual call has not), `unexpected`
    (the other way round), or `refused` by a function, when no argument is named.
    """

    kind: Literal["differs", "missing", "unexpected", "refused"]
    argument: str = ""
    actual: Any = None
    expected: Any = None

    def __str__(self) -> str:
        name = self.argument or "the whole of the arguments"
        if self.kind == "missing":
            return f"{name} is missing (expected {show(self.expected)})"
        if self.kind == "unexpected":
            return f"{name} should not be there (is {show(self.actual)})"
        if self.kind == "refused":
            return "the tool's own matcher says that the arguments do not fit"
        return f"{name} is {show(self.actual)} instead of {show(self.expected)}"


@dataclass(frozen=True)
class Rule:
    """How the arguments of one tool are compared. Made by `rules`."""

    mode: str = "exact"
    names: tuple[str, ...] = ()
    matcher: Callable[[Any, Any], object] | None = None

    @property
    def is_equivalence(self) -> bool:
        """Whether fitting means having the same `key`, so that no two calls need comparing."""
        return self.matcher is None and (bool(self.names) or self.mode in ("exact", "ignore"))

    def key(self, call: Call) -> tuple[str, ...] | None:
        """For an equivalence: calls fit exactly if their keys are equal; None fits nothing."""
        if self.names:
            found = [_at(call.arguments, name) for name in self.names]
            return None if _ABSENT in found else tuple(map(canonical, found))
        return () if self.mode == "ignore" else (call.canonical,)

    def fits(self, actual: Call, reference: Call) -> bool:
        """Whether the arguments fit. The tools are not looked at.

        Raises:
            MatcherFailed: the tool's own matcher raised.
        """
        return not self.differences(actual, reference)

    def differences(self, actual: Call, reference: Call) -> tuple[Difference, ...]:
        """In what the arguments do not fit; empty when they do.

        Raises:
            MatcherFailed: the tool's own matcher raised.
        """
        if self.matcher is not None:
            answer = ask(self.matcher, reference.tool, actual.arguments, reference.arguments)
            return () if answer else (Difference("refused"),)
        if self.names:
            return self._named(actual, reference)
        if self.mode == "ignore" or actual.canonical == reference.canonical:
            return ()
        ours, theirs = actual.parts, reference.parts
        if ours is None or theirs is None:
            whole = Difference("differs", "", actual.arguments, reference.arguments)
            return (whole,)
        found = [
            Difference("differs", name, actual.arguments[name], reference.arguments[name])
            for name in theirs
            if name in ours and ours[name] != theirs[name]
        ]
        if self.mode != "subset":
            found += [
                Difference("missing", name, None, reference.arguments[name])
                for name in theirs
                if name not in ours
            ]
        if self.mode != "superset":
            found += [
                Difference("unexpected", name, actual.arguments[name])
                for name in ours
                if name not in theirs
            ]
        return tuple(found)

    def _named(self, actual: Call, reference: Call) -> tuple[Difference, ...]:
        found: list[Difference] = []
        for name in self.names:
            ours, theirs = _at(actual.arguments, name), _at(reference.arguments, name)
            if theirs is _ABSENT:
                shown = None if ours is _ABSENT else ours
                found.append(Difference("unexpected", name, shown))
            elif ours is _ABSENT:
                found.append(Difference("missing", name, None, theirs))
            elif canonical(ours) != canonical(theirs):
                found.append(Difference("differs", name, ours, theirs))
        return tuple(found)


def rules(arguments: str, overrides: Overrides | None) -> Callable[[str], Rule]:
    """The rule for each tool, by its name.

    Raises:
        InvalidOptions: an unknown mode, or an override that is none. An override that could
            never say no by mistake (an unknown word, no names) is an error, never a pass.
    """
    if arguments not in ARGUMENTS_MODES:
        raise InvalidOptions(f"arguments: {arguments!r} is none of {', '.join(ARGUMENTS_MODES)}")
    default = Rule(arguments)
    own = {tool: _override(tool, override) for tool, override in (overrides or {}).items()}
    return lambda tool: own.get(tool, default)


def _override(tool: str, override: object) -> Rule:
    if isinstance(override, str) and override in ARGUMENTS_MODES:
        return Rule(override)
    if callable(override):
        return Rule(matcher=override)
    if isinstance(override, list | tuple) and override:
        names = tuple(override)
        if all(isinstance(name, str) and name for name in names):
            return Rule(names=names)
    raise InvalidOptions(
        f"override of {tool}: {override!r} is neither one of {', '.join(ARGUMENTS_MODES)} "
        "nor a list of argument names nor a function"
    )


def ask(matcher: Callable[[Any, Any], object], tool: str, actual: Any, expected: Any) -> bool:
    """What a function given as an override says.

    Raises:
        MatcherFailed: it raised.
    """
    try:
        return bool(matcher(actual, expected))
    except Exception as error:
        raise MatcherFailed(f"the matcher of {tool} raised {type(error).__name__}") from error


def _at(arguments: Any, path: str) -> Any:
    value = arguments
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value
