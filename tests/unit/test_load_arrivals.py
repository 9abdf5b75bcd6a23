"""V15: open-loop sessions arrive by a plan that is made from the seed, before the first does."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.scenario import Arrival
from services.dispatcher.arrivals import arrivals

pytestmark = pytest.mark.req("V15")

RATES = st.floats(0.1, 500)
ARRIVALS = st.one_of(
    st.builds(
        Arrival, per_s=RATES, ramp_s=st.floats(0, 100), burst=st.integers(1, 7),
        spacing=st.sampled_from(["poisson", "even"]),
    ),
    st.builds(
        lambda per_s, steps: Arrival.model_validate(
            {"per_s": per_s, "steps": [{"per_s": r, "for_s": s} for r, s in steps]}
        ),
        RATES,
        st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 60)), max_size=5),
    ),
)  # fmt: skip


def planned(count: int, **arrival: object) -> tuple[int, ...]:
    return arrivals(Arrival.model_validate(arrival), count, "k")


@given(ARRIVALS, st.integers(1, 300), st.text(max_size=5))
def test_every_session_has_its_time_in_order_and_the_same_for_the_same_key(
    arrival: Arrival, count: int, key: str
) -> None:
    times = arrivals(arrival, count, key)
    assert len(times) == count
    assert times[0] >= 0
    assert all(one <= other for one, other in pairwise(times))
    assert arrivals(arrival, count, key) == times
    assert arrivals(arrival, count + 20, key)[:count] == times


def test_a_constant_rate() -> None:
    assert planned(4, per_s=4, spacing="even") == (0, 250, 500, 750)


def test_a_ramp_from_nothing_to_the_full_rate() -> None:
    """At 2 a second after 4 s: n sessions in the first t seconds are t*t/4."""
    assert planned(7, per_s=2, ramp_s=4, spacing="even") == (
        0, 2000, 2828, 3464, 4000, 4500, 5000
    )  # fmt: skip


def test_steps_and_pauses() -> None:
    steps = [{"per_s": 2, "for_s": 1}, {"per_s": 0, "for_s": 3}, {"per_s": 4, "for_s": 0.5}]
    times = planned(7, per_s=1, steps=steps, spacing="even")
    assert times == (0, 500, 4000, 4250, 4500, 5500, 6500)


def test_bursts_keep_the_rate() -> None:
    assert planned(7, per_s=3, burst=3, spacing="even") == (0, 0, 0, 1000, 1000, 1000, 2000)


def test_independent_users_come_as_a_poisson_process() -> None:
    """Gaps are exponential: their mean is 1/rate, and 1/e of them are longer than it."""
    times = planned(20_000, per_s=10)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert fmean(gaps) == pytest.approx(100, rel=0.03)
    assert sum(gap > 100 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.015)
    assert arrivals(Arrival(per_s=10), 9, "other") != times[:9]


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_s": 0},
        {"per_s": 1, "ramp_s": 3, "steps": [{"per_s": 1, "for_s": 1}]},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Arrival.model_validate(wrong)
