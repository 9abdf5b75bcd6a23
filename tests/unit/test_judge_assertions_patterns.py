"""Patterns of people on texts of agents: what is found, and at what cost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.patterns import PatternTooCostly, check_pattern, clean, found

pytestmark = pytest.mark.req("S05")


@settings(max_examples=300)
@given(st.from_regex(r"[abc.]([abc.]|[abc][*+?]|\[[abc]\]|\([abc]\|[abc]\)){0,5}", fullmatch=True),
       st.text("abcx", max_size=12))  # fmt: skip
def test_what_is_found_is_what_pythons_engine_finds(pattern: str, text: str) -> None:
    assert found(pattern, text) is (re.search(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["(a|aa)+$", "(a*)*b", "(.*)(.*)(.*)(.*)[^a]$"])
@pytest.mark.timeout(20)
def test_patterns_that_ruin_other_engines_are_linear_here(pattern: str) -> None:
    assert found(pattern, "a" * 1_000_000 + "b") is (pattern != "(a|aa)+$")
    assert found(pattern, "a" * 1_000_000) is (pattern == "(a|aa)+$")


@pytest.mark.timeout(20)
def test_look_around_is_bounded_by_steps() -> None:
    assert found("^(?!.*sorry).*late", "It is late.")
    assert not found("^(?!.*sorry).*late", "sorry, it is late.")
    assert found(r"(\w+) \1", "the the")
    with pytest.raises(PatternTooCostly):
        found(r"^(a|a|(?=a)a)*\1c$", "a" * 60)


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a{1,1000}{1,1000}", "\ud800", "a" * 10_001])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        check_pattern(pattern)


@given(st.text(st.characters()))
def test_any_text_can_be_searched(text: str) -> None:
    clean(text).encode()
    assert found("a|[^a]|^$", text)
