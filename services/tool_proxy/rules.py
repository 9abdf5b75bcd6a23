"""Which rule applies to a call. Pure: decided by the brief and by the calls that matched before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.briefs import ToolBrief
from schemas.faults import CallSelector, Failure
from services.tool_proxy.jsons import same

EXECUTING = frozenset({"content", "partial", "slow"})
"""Failures that alter or delay what the tool answers; the others come in its stead."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What applies to one call. Indexes count the failures first, then the response rules."""

    matching: tuple[int, ...]
    failure: int | None = None
    rule: int | None = None


def fraction(seed: int, rule: str, ordinal: int) -> float:
    """A number in [0, 1) for a rule's n-th matching call, whatever other rules have drawn."""
    data = hashlib.blake2b(f"{seed}\0{rule}\0{ordinal}".encode(), digest_size=8).digest()
    return (int.from_bytes(data, "big") >> 11) / (1 << 53)


def selectors(brief: ToolBrief) -> tuple[CallSelector, ...]:
    """Every rule of a brief, in the order in which their indexes count."""
    return (*brief.failures, *brief.rules)


def select(
    brief: ToolBrief,
    matched: Sequence[int],
    struck: Sequence[int],
    tool: str,
    arguments: Mapping[str, Any],
    *,
    real: bool = False,
) -> Selection:
    """The first failure that strikes and the first response rule that applies.

    `matched` and `struck` say, by index, how many calls each rule has matched and how often it
    was used, before this call. Response rules concern simulated tools only, not `real` ones.
    """
    matching = []
    failure = rule = None
    for index, selector in enumerate(brief.failures if real else selectors(brief)):
        if not _matches(selector, tool, arguments):
            continue
        matching.append(index)
        is_failure = index < len(brief.failures)
        if (failure if is_failure else rule) is not None:
            continue
        if _strikes(brief, selector, index, matched[index] + 1, struck[index]):
            if is_failure:
                failure = index
            else:
                rule = index
    return Selection(tuple(matching), failure, rule)


def may_fail(brief: ToolBrief, tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a failure is meant for such calls: then what one of them gets depends on the ones
    before it."""
    return any(_matches(failure, tool, arguments) for failure in brief.failures)


def uses_rule(brief: ToolBrief, selection: Selection) -> bool:
    """Whether the selected response rule is what the call is answered with or from."""
    if selection.rule is None:
        return False
    return selection.failure is None or brief.failures[selection.failure].kind in EXECUTING


def _matches(selector: CallSelector, tool: str, arguments: Mapping[str, Any]) -> bool:
    return selector.tool in ("*", tool) and all(
        name in arguments and same(arguments[name], value)
        for name, value in selector.arguments.items()
    )


def _strikes(
    brief: ToolBrief, selector: CallSelector, index: int, ordinal: int, struck: int
) -> bool:
    if selector.calls and ordinal not in selector.calls:
        return False
    if selector.times and struck >= selector.times:
        return False
    if isinstance(selector, Failure):
        name, factor = f"failure:{selector.id}", brief.failure_multiplier
    else:
        name, factor = f"rule:{index - len(brief.failures)}", 1.0
    return fraction(brief.seed, name, ordinal) < selector.probability * factor
