"""When the sessions of an open-loop load scenario arrive, planned before the first one does.

Arrivals of a unit rate - evenly spaced, or of a Poisson process - are put through the inverse of
the rate summed up over time, so that one plan serves ramps, steps and pauses alike.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

from schemas.scenario import Arrival


def arrivals(arrival: Arrival, count: int, key: str) -> tuple[int, ...]:
    """Milliseconds from the start at which `count` sessions arrive, ascending; the same for the
    same key."""
    source, when = random.Random(key), _inverse(arrival)
    times: list[int] = []
    position = 0.0
    for group in range(-(-count // arrival.burst)):
        if arrival.spacing == "poisson":
            position += source.expovariate(1.0)
        else:
            position = float(group)
        times += [round(when(position * arrival.burst) * 1000)] * arrival.burst
    return tuple(times[:count])


def _inverse(arrival: Arrival) -> Callable[[float], float]:
    """From how many sessions are expected to have arrived to the second at which they have."""
    rate, ramp_s = arrival.per_s, arrival.ramp_s
    if ramp_s:
        risen = rate * ramp_s / 2

        def on_ramp(expected: float) -> float:
            if expected <= risen:
                return math.sqrt(2 * ramp_s * expected / rate)
            return ramp_s + (expected - risen) / rate

        return on_ramp
    begins = [0.0, *accumulate(step.for_s for step in arrival.steps)]
    before = [0.0, *accumulate(step.for_s * step.per_s for step in arrival.steps)]
    rates = [*(step.per_s for step in arrival.steps), rate]

    def on_steps(expected: float) -> float:
        # The last step that begins with no more than these: pauses add none and are passed over.
        at = bisect_right(before, expected) - 1
        return begins[at] + (expected - before[at]) / rates[at]

    return on_steps
