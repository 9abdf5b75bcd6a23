"""D09: what compares runs sees every difference, and says where it is."""

from __future__ import annotations

import pytest

from schemas.trajectory import Limits
from tests.support.equality import assert_equal, differences

pytestmark = pytest.mark.req("D09")


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ({"a": 1}, {"a": 2}, "/a: 1 != 2"),
        ({"a": None}, {}, "/a: None != nothing"),
        ({}, {"a": None}, "/a: nothing != None"),
        ([1], [1, None], "[1]: nothing != None"),
        ([1], (1,), ""),
        ({"a": [Limits(turns=3)]}, {"a": [Limits(turns=4)]}, "/a[0]/turns: 3 != 4"),
        ({"a": "1"}, {"a": 1}, "/a: '1' != 1"),
    ],
)
def test_what_differs_is_told(one: object, other: object, told: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="the runs differ"):
        assert_equal(one, other)
    assert "".join(differences(one, other)) == told


def test_of_long_texts_the_place_is_shown() -> None:
    same = "x" * 5000
    (told,) = differences({"a": f"{same}one{same}"}, {"a": f"{same}other{same}"})
    assert "xone" in told
    assert "xother" in told
    assert len(told) < 700


def test_what_is_equal_is_equal() -> None:
    assert_equal({"a": [Limits(turns=3), None]}, {"a": [Limits(turns=3), None]})
