"""`match`: whether the tool calls of a session are those that a reference trajectory has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from services.judge.matching.arguments import (
    ARGUMENTS_MODES,
    ArgumentsMode,
    Overrides,
    rules,
)
from services.judge.matching.calls import Call, messages_of_calls
from services.judge.matching.errors import InvalidOptions, UnreadableMessages
from services.judge.matching.messages import calls_of_messages
from services.judge.matching.optimal import match_calls
from services.judge.matching.packages.greedy import AGENTEVALS, OPENEVALS, match_messages
from services.judge.matching.result import Match

Mode: TypeAlias = Literal["strict", "unordered", "subset", "superset"]
"""strict: the same calls in the same order. unordered: the same calls in any order. subset: no
calls but those of the reference. superset: at least those of the reference."""

Profile: TypeAlias = Literal["windtunnel", "openevals-0.2.2", "agentevals-0.0.9"]

MODES: tuple[str, ...] = get_args(Mode)
PROFILES: tuple[str, ...] = get_args(Profile)
_PACKAGES = {package.profile: package for package in (OPENEVALS, AGENTEVALS)}


def match(
    actual: object,
    reference: object,
    *,
    mode: Mode,
    arguments: ArgumentsMode = "exact",
    overrides: Overrides | None = None,
    profile: Profile = "windtunnel",
) -> Match:
    """Compare an actual trajectory with a reference.

    Args:
        actual: calls (of `calls_of_events`), or chat messages in any form that
            `calls_of_messages` reads; None is the empty trajectory.
        reference: likewise.
        mode: what must be there, and whether order counts.
        arguments: how the arguments of two calls of one tool are compared.
        overrides: what holds instead for single tools.
        profile: `windtunnel` pairs as many calls as can be paired. The others give what that
            package gives for these messages; calls are put into one assistant message each.

    Raises:
        InvalidOptions: an unknown mode, profile or (windtunnel) override.
        UnreadableMessages: a trajectory is neither calls nor messages.
        TooManyCalls: see `optimal.MAX_COMPARISONS`.
        MatcherFailed: a function given as an override raised.
        PackageRaises: the profile's package raises on this input.
    """
    if mode not in MODES:
        raise InvalidOptions(f"mode: {mode!r} is none of {', '.join(MODES)}")
    if arguments not in ARGUMENTS_MODES:
        raise InvalidOptions(f"arguments: {arguments!r} is none of {', '.join(ARGUMENTS_MODES)}")
    if profile not in PROFILES:
        raise InvalidOptions(f"profile: {profile!r} is none of {', '.join(PROFILES)}")
    ours, theirs = _as_calls(actual), _as_calls(reference)
    if profile == "windtunnel":
        return match_calls(
            calls_of_messages(actual) if ours is None else ours,
            calls_of_messages(reference) if theirs is None else theirs,
            mode,
            rules(arguments, overrides),
        )
    return match_messages(
        _PACKAGES[profile],
        actual if ours is None else messages_of_calls(ours),
        reference if theirs is None else messages_of_calls(theirs),
        mode=mode,
        arguments=arguments,
        overrides=overrides,
    )


def _as_calls(trajectory: object) -> Sequence[Call] | None:
    """The trajectory if it is one of calls, None if it is one of messages."""
    if not isinstance(trajectory, list | tuple):
        return None
    calls = [item for item in trajectory if isinstance(item, Call)]
    if calls and len(calls) < len(trajectory):
        raise UnreadableMessages("a trajectory has both calls and messages")
    return calls or None
