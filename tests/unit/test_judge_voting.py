"""What several samples of one verdict come to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.judge.evaluators.criteria import Judgement
from services.judge.voting import flipped, majority

pytestmark = pytest.mark.req("S03")


def votes(given: Sequence[bool | None]) -> list[Judgement]:
    """One vote each, with a rationale that tells which it was."""
    return [
        Judgement(one, f"vote {number}", (f"a{number}",) if one is not None else ())
        for number, one in enumerate(given, start=1)
    ]


@pytest.mark.parametrize(
    ("said", "agreement", "passed", "value", "outcome"),
    [
        ([True], 0.66, True, None, "unanimous"),
        ([None], 0.66, None, None, "no_verdict"),
        ([True, True, True], 1.0, True, 1.0, "unanimous"),
        ([False, True, True], 0.66, True, 2 / 3, "majority"),
        ([False, True, False], 0.66, False, 1 / 3, "majority"),
        ([False, True, True], 0.67, None, 2 / 3, "disagree"),
        ([True, True, True, False, False], 0.66, None, 3 / 5, "disagree"),
        # A sample without a verdict agrees with nobody.
        ([True, True, None], 0.66, True, 1.0, "majority"),
        ([True, None, None], 0.66, None, 1.0, "disagree"),
        ([True, False, None], 0.66, None, 0.5, "disagree"),
        ([None, None, None], 0.66, None, None, "no_verdict"),
    ],
)
def test_the_majority_counts_when_enough_samples_agree(
    said: list[bool | None], agreement: float, passed: bool | None, value: float, outcome: str
) -> None:
    result, how = majority(votes(said), agreement)
    assert (result.passed, how) == (passed, outcome)
    assert result.value == (None if value is None else pytest.approx(value))


def test_the_verdict_carries_the_winners_words_and_the_agreement() -> None:
    result, _ = majority(votes([False, True, True]), 0.66)
    assert result.rationale == "vote 2 (2 of 3 samples agree)"
    assert result.citations == ("a2",)


def test_a_disagreement_tells_both_sides_the_order_and_what_is_missing() -> None:
    said = [*votes([False, True]), Judgement(None, "the model refused")]
    result, _ = majority(said, 0.66)
    assert result.citations == ()
    for words in ("1 of 3 samples say pass, 1 fail", "opposite order", "vote 1", "vote 2",
                  "the model refused", "0.66 have to agree"):  # fmt: skip
        assert words in result.rationale


@given(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=25), st.floats(0.51, 1))
def test_a_verdict_is_never_against_the_majority_nor_below_the_agreement(
    said: list[bool | None], agreement: float
) -> None:
    result, how = majority(votes(said), agreement)
    mirrored, _ = majority(votes([None if v is None else not v for v in said]), agreement)
    assert mirrored.passed == (None if result.passed is None else not result.passed)
    if result.passed is not None:
        same = said.count(result.passed)
        assert same > said.count(not result.passed)
        assert len(said) == 1 or same >= agreement * len(said)
        assert (how == "unanimous") == (same == len(said))


@pytest.mark.parametrize(
    ("said", "pairs"),
    [([True, False, True], 1), ([True, True, False], 0), ([False, True, True, False, True], 2),
     ([True, None, False], 0), ([True], 0)],
)  # fmt: skip
def test_pairs_that_saw_opposite_orders_and_contradict_each_other(
    said: list[bool | None], pairs: int
) -> None:
    assert flipped(votes(said)) == pairs
