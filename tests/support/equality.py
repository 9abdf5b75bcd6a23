"""Whether two runs came to the same, and where they did not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

_SHOWN = 5
_ABSENT = object()


def assert_equal(one: Any, other: Any) -> None:
    """Fails with the first few places that differ: whole trajectories are too long to read."""
    if one != other:
        found = list(itertools.islice(differences(one, other), _SHOWN))
        pytest.fail("the runs differ:\n" + "\n".join(found), pytrace=False)


def differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """The places where two values differ, and what is there in each."""
    if one == other:
        return
    if type(one) is type(other) and is_dataclass(one):
        for field in fields(one):
            first, second = getattr(one, field.name), getattr(other, field.name)
            yield from differences(first, second, f"{place}/{field.name}")
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            first, second = one.get(key, _ABSENT), other.get(key, _ABSENT)
            yield from differences(first, second, f"{place}/{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = itertools.zip_longest(one, other, fillvalue=_ABSENT)
        for number, (first, second) in enumerate(pairs):
            yield from differences(first, second, f"{place}[{number}]")
    else:
        texts = ["nothing" if value is _ABSENT else repr(value) for value in (one, other)]
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
        start = max(0, sum(1 for _ in alike) - 80)
        yield f"{place}: " + " != ".join(text[start : start + 300] for text in texts)
