"""What matching two trajectories came to."""

from __future__ import annotations

from dataclasses import dataclass

from services.judge.matching.arguments import Difference
from services.judge.matching.calls import Call


@dataclass(frozen=True)
class Pair:
    """Two calls that fit, by their indexes in the two trajectories, from 0."""

    actual: int
    reference: int


@dataclass(frozen=True)
class Candidate:
    """The actual call that comes nearest to a reference call without a partner.

    `differences` is what keeps them apart. It is empty when they fit, but the actual call is
    already the partner of reference call `taken_by`: the call was expected more often.
    """

    actual: int
    call: Call
    differences: tuple[Difference, ...] = ()
    taken_by: int | None = None


@dataclass(frozen=True)
class Missing:
    """A reference call that found no partner; `nearest` is None if its tool was not called."""

    reference: int
    call: Call
    nearest: Candidate | None = None


@dataclass(frozen=True)
class Extra:
    """An actual call that found no partner."""

    actual: int
    call: Call


@dataclass(frozen=True)
class Divergence:
    """Where the order first differs: at index `position` of the actual calls, from 0.

    `expected` are the calls one of which should have come there, none where the reference was
    over; `found` is the call that did, None where the actual calls were over.
    """

    position: int
    expected: tuple[Call, ...]
    found: Call | None


@dataclass(frozen=True)
class Match:
    """Whether an actual trajectory matches a reference, and what sets them apart.

    `score` is from 0 to 1, and 1 exactly if `matched`: the share of calls that found their
    place. The profiles that reproduce a package give 0 or 1, as the packages do; they also stop
    at the first call that does not fit, so `missing` and `extra` hold that one at most.
    """

    matched: bool
    score: float
    explanation: str
    pairs: tuple[Pair, ...] = ()
    missing: tuple[Missing, ...] = ()
    extra: tuple[Extra, ...] = ()
    divergence: Divergence | None = None
    mode: str = "strict"
    profile: str = "windtunnel"


@dataclass(frozen=True)
class GraphMatch:
    """Whether the steps of a graph agent match a reference; `score` as in Match.

    `run` and `step` are where they first differ, indexes from 0; None when they match, `step`
    also when it is not the steps of the run that differ.
    """

    matched: bool
    score: float
    explanation: str
    run: int | None = None
    step: int | None = None
    profile: str = "windtunnel"
