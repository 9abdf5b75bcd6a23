"""Which rule applies to a call. Pure: decided by the brief and by the calls that matched before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.briefs import ToolBrief
from schemas.faults import CallSelector, Failure
from schemas.injection_plan import as_struck, key_of
from schemas.selection import Moment, counts_calls, fits, in_time, strikes

EXECUTING = frozenset({"content", "partial", "slow"})
"""Failures that alter or delay what the tool answers; the others come in its stead."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What applies to one call. Indexes count the failures first, then the response rules."""

    matching: tuple[int, ...]
    failure: int | None = None
    rule: int | None = None


def selectors(brief: ToolBrief) -> tuple[CallSelector, ...]:
    """Every rule of a brief, in the order in which their indexes count."""
    return (*brief.failures, *brief.rules)


def select(
    brief: ToolBrief,
    matched: Sequence[int],
    struck: Sequence[int],
    tool: str,
    arguments: Mapping[str, Any],
    moment: Moment,
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
        if not (fits(selector, tool, arguments) and in_time(selector, brief, moment)):
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
    before it. Where calls decide when a failure begins or is over, it depends on all of them."""
    return any(
        fits(failure, tool, arguments) or counts_calls(failure, brief) for failure in brief.failures
    )


def striking(brief: ToolBrief, matched: Sequence[int], index: int) -> Failure:
    """The failure of this index as it strikes the next call that it matches."""
    return as_struck(brief.failures[index], brief.seed, matched[index] + 1)


def uses_rule(brief: ToolBrief, selection: Selection) -> bool:
    """Whether the selected response rule is what the call is answered with or from."""
    if selection.rule is None:
        return False
    return selection.failure is None or brief.failures[selection.failure].kind in EXECUTING


def _strikes(
    brief: ToolBrief, selector: CallSelector, index: int, ordinal: int, struck: int
) -> bool:
    if selector.times and struck >= selector.times:
        return False
    key = (
        key_of(selector) if isinstance(selector, Failure) else f"rule:{index - len(brief.failures)}"
    )
    return strikes(selector, key, brief.seed, brief.failure_multiplier, ordinal)
