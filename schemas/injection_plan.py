"""What a session's seed has planned to go wrong, before the session begins.

The plan is recorded with the session's start. The tool proxy strikes by the same functions, and
the judge holds the recorded calls against them (V06). It says on which of a failure's matching
calls the dice fall; which calls those are depends on what the agent does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field, ValidationError

from schemas.faults import Failure
from schemas.model import Model
from schemas.selection import fraction, is_drawn, strikes

HORIZON = 1000
"""So many matching calls are planned at most; what follows is decided by the same functions."""
MAX_CHARS = 16_384
"""Fewer calls are planned where the record would be longer."""


class PlannedFailure(Model):
    """One failure of a session."""

    id: str
    strikes: str = Field(
        default="", description="Ordinals among its matching calls, such as 2,5-7; `times` apart."
    )
    texts: tuple[int, ...] = Field(
        default=(), description="For each of them, which of `contents` is planted, from 1."
    )
    delays_ms: tuple[int, ...] = Field(default=(), description="For each of them, as drawn.")


class InjectionPlan(Model):
    """All failures of a session, in the order in which they are asked."""

    specified: str = Field(description="A digest of the failures as the scenario has them.")
    multiplier: float = Field(description="The run's factor on probabilities.")
    calls: int = Field(description="How many matching calls were looked at.")
    failures: tuple[PlannedFailure, ...]


def plan(failures: Sequence[Failure], seed: int, multiplier: float, calls: int) -> InjectionPlan:
    """What happens to the first so many matching calls of each failure."""
    written = [failure.model_dump(mode="json", exclude_defaults=True) for failure in failures]
    text = json.dumps(written, sort_keys=True, ensure_ascii=False)
    return InjectionPlan(
        specified=hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
        multiplier=multiplier,
        calls=calls,
        failures=tuple(_planned(failure, seed, multiplier, calls) for failure in failures),
    )


def recorded_plan(
    failures: Sequence[Failure], seed: int, multiplier: float, tool_calls: int
) -> str:
    """The plan of a session that may make so many tool calls, as *session started* carries it;
    empty where nothing is to go wrong."""
    if not failures:
        return ""
    calls = min(tool_calls, HORIZON)
    while True:
        text = plan(failures, seed, multiplier, calls).model_dump_json(exclude_defaults=True)
        if len(text) <= MAX_CHARS or calls == 0:
            return text
        calls //= 2


def departure(recorded: str, failures: Sequence[Failure], seed: int, multiplier: float) -> str:
    """How a recorded plan differs from what the seed gives; empty where it does not.

    Sessions from before there were plans carry none, which is no difference.
    """
    if not recorded:
        return ""
    try:
        told = InjectionPlan.model_validate_json(recorded)
    except ValidationError:
        return "the recorded injection plan cannot be read"
    right = plan(failures, seed, multiplier, min(max(told.calls, 0), HORIZON))
    if told == right:
        return ""
    if told.specified != right.specified:
        return "the recorded injection plan is of other failures than the scenario's"
    return "the recorded injection plan is not the one that the seed gives"


def excessive(failures: Sequence[Failure], multiplier: float) -> Iterator[str]:
    """Which rates a multiplier would raise above 1, in words.

    A failure that is certain stays so under a multiplier above 1: it is no rate.
    """
    for failure in failures:
        rate = failure.probability * multiplier
        if failure.probability < 1 and rate > 1:
            yield (
                f"failure {failure.id}: its rate {failure.probability:g} times {multiplier:g} is "
                f"{rate:g}, above 1; multiply by at most {1 / failure.probability:g}"
            )


def key_of(failure: Failure) -> str:
    """What a failure's dice are thrown by, whatever its place in the list."""
    return f"failure:{failure.id}"


def due(failure: Failure, seed: int, multiplier: float, ordinal: int) -> bool:
    """Whether a failure is to strike its n-th matching call, unless `times` is used up."""
    return strikes(failure, key_of(failure), seed, multiplier, ordinal)


def as_struck(failure: Failure, seed: int, ordinal: int) -> Failure:
    """The failure as it strikes its n-th matching call: one text, one delay."""
    changes: dict[str, object] = {}
    if failure.contents:
        changes["content"] = failure.contents[_text(failure, seed, ordinal)]
    if failure.latency is not None:
        changes["delay_ms"] = failure.latency.draw(f"{seed}:latency:{failure.id}:{ordinal}")
    return failure.model_copy(update=changes) if changes else failure


def ranges(ordinals: Iterable[int]) -> str:
    """Ascending ordinals, written short.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3,7,9-10'
    """
    runs: list[list[int]] = []
    for number in ordinals:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _planned(failure: Failure, seed: int, multiplier: float, calls: int) -> PlannedFailure:
    ordinals, last = [], -failure.burst
    for number in range(1, calls + 1):
        if is_drawn(failure, key_of(failure), seed, multiplier, number):
            last = number
        if number - last < failure.burst:
            ordinals.append(number)
    texts = [_text(failure, seed, n) + 1 for n in ordinals] if failure.contents else []
    delays = [as_struck(failure, seed, n).delay_ms for n in ordinals] if failure.latency else []
    return PlannedFailure(
        id=failure.id, strikes=ranges(ordinals), texts=tuple(texts), delays_ms=tuple(delays)
    )


def _text(failure: Failure, seed: int, ordinal: int) -> int:
    count = len(failure.contents)
    return min(count - 1, int(fraction(seed, f"text:{failure.id}", ordinal) * count))
