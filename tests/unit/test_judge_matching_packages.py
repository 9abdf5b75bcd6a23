"""The profiles give what the two installed packages give, result by result, and raise likewise."""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.matching_messages import odd_messages, single_oddities
from tests.support.matching_strategies import (
    ARGUMENTS_MODES,
    MODES,
    OVERRIDES,
    PACKAGES,
    RAISES,
    openai,
    ours,
    step_pairs,
    theirs,
)

pytestmark = pytest.mark.req("P07")
FIXED = settings(
    derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def test_the_packages_are_those_that_the_profiles_are_named_after() -> None:
    assert {f"{name}-{version(name)}" for name in ("openevals", "agentevals")} == set(PACKAGES)


def test_thousands_of_plain_trajectories_give_the_same_results() -> None:
    seen: Counter[Any] = Counter()
    apart = Counter[str]()

    @settings(FIXED, max_examples=1000)
    @given(step_pairs(), st.sampled_from([*ARGUMENTS_MODES, "subset", "superset"]), OVERRIDES)
    def compare(pair: Any, arguments: str, own: Any) -> None:
        actual, reference = openai(pair[0]), openai(pair[1])
        for mode in MODES:
            results = [
                theirs(profile, actual, reference, mode, arguments, own) for profile in PACKAGES
            ]
            assert results == [
                ours(profile, actual, reference, mode, arguments, own) for profile in PACKAGES
            ]
            seen.update(results)
            apart[mode] += results[0] != results[1]

    compare()
    # The comparison means something only if every outcome is frequent, and the packages differ.
    assert min(seen[True], seen[False]) > 1500, seen
    assert seen[RAISES] > 100, seen
    assert apart["subset"] > 50, apart
    assert apart["unordered"] > 30, apart


def test_messages_of_every_form_give_the_same_results_and_errors() -> None:
    seen: Counter[Any] = Counter()

    @settings(FIXED, max_examples=1000)
    @given(odd_messages(), odd_messages(), st.booleans(), st.sampled_from(ARGUMENTS_MODES))
    def compare(actual: Any, other: Any, itself: bool, arguments: str) -> None:
        reference = actual if itself else other
        for mode in MODES:
            for profile in PACKAGES:
                expected = theirs(profile, actual, reference, mode, arguments, None)
                assert ours(profile, actual, reference, mode, arguments, None) == expected
                seen[expected] += 1

    compare()
    assert min(seen[True], seen[False], seen[RAISES]) > 500, seen


def test_every_single_oddity_of_a_message_gives_the_same_result() -> None:
    seen: Counter[Any] = Counter()
    reference = openai([[("get", {})]])[1:2]
    for actual in single_oddities():
        for mode in ("strict", "unordered"):
            # The two packages read messages alike; one of them is enough here.
            expected = theirs("openevals-0.2.2", actual, reference, mode, "exact", None)
            found = ours("openevals-0.2.2", actual, reference, mode, "exact", None)
            assert found == expected, (actual, mode)
            seen[expected] += 1
    assert min(seen[True], seen[False], seen[RAISES]) > 100, seen
