"""Trajectories of graph agents, in both profiles."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from agentevals.graph_trajectory.strict import graph_trajectory_strict_match
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.judge.matching import InvalidOptions, PackageRaises, UnreadableMessages, match_graph

pytestmark = pytest.mark.req("P07")
AGENTEVALS = "agentevals-0.0.9"
REFERENCE = {"steps": [["plan", "act"], ["act"]], "results": [{"n": 1}, {"n": 2}]}


def graph(*steps: list[str], results: Any = None) -> dict[str, Any]:
    return {"steps": list(steps), "results": results, "inputs": []}


_STEPS = st.lists(st.lists(st.sampled_from("ab"), max_size=2), max_size=2)
_ODD = st.sampled_from([None, "ab", 7, ["ab", "a"], [None], [("a",)]])
_GRAPHS = st.one_of(
    st.fixed_dictionaries({"steps": _STEPS}, optional={"results": st.lists(st.integers(0, 1))}),
    st.fixed_dictionaries({"steps": st.one_of(_STEPS, _ODD)}),
    st.sampled_from([None, {}, [], "ab"]),
)


def test_the_profile_gives_what_agentevals_gives() -> None:
    seen: Counter[Any] = Counter()

    @settings(
        derandomize=True, max_examples=1000, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(_GRAPHS, _GRAPHS, st.booleans())
    def compare(actual: Any, other: Any, itself: bool) -> None:
        reference = actual if itself else other
        try:
            theirs: Any = graph_trajectory_strict_match(
                outputs=actual, reference_outputs=reference
            )["score"]
        except Exception:
            theirs = "raises"
        try:
            found = match_graph(actual, reference, profile=AGENTEVALS)
            ours: Any = found.matched
            assert found.score == float(found.matched)
        except PackageRaises:
            ours = "raises"
        assert ours == theirs
        seen[theirs] += 1

    compare()
    assert min(seen[True], seen[False], seen["raises"]) > 50, seen


def test_equal_steps_and_results_match() -> None:
    found = match_graph(REFERENCE, REFERENCE)
    assert (found.matched, found.score, found.run) == (True, 1.0, None)
    assert match_graph(graph(), graph()).score == 1.0


@pytest.mark.parametrize(
    ("steps", "run", "step", "score", "words"),
    [
        ([["plan", "ask"], ["act"]], 0, 1, 0.5, 'step 2: expected "act", found "ask"'),
        ([["plan"], ["act"]], 0, 1, 0.5, 'expected "act", found the end'),
        ([["plan", "act"], ["act", "act"]], 1, 1, 0.5, 'expected the end, found "act"'),
        ([["plan", "act"]], 1, None, 0.5, "run 2: it did not take place"),
        ([["plan", "act"], ["act"], []], 2, None, 2 / 3, "run 3: it is not in the reference"),
        ([["act", "plan"], []], 0, 0, 0.0, "run 1: the steps diverge at step 1"),
    ],
)
def test_the_first_difference_is_named(
    steps: Any, run: int, step: int | None, score: float, words: str
) -> None:
    found = match_graph(graph(*steps), {"steps": REFERENCE["steps"]})
    assert (found.matched, found.run, found.step) == (False, run, step)
    assert found.score == pytest.approx(score)
    assert words in found.explanation


def test_results_are_compared_where_the_reference_has_them() -> None:
    steps: Any = REFERENCE["steps"]
    other = graph(*steps, results=[{"n": 1.0}, {"n": True}])
    found = match_graph(other, REFERENCE)
    assert (found.matched, found.run, found.step, found.score) == (False, 1, None, 0.5)
    assert 'its result is {"n": true} instead of {"n": 2}' in found.explanation
    assert match_graph(other, REFERENCE, results="ignore").matched
    assert match_graph(other, {"steps": steps}).matched
    assert "it has no result" in match_graph(graph(*steps), REFERENCE).explanation
    # agentevals compares no results, whatever it is given.
    assert match_graph(other, REFERENCE, profile=AGENTEVALS).matched


def test_results_of_more_runs_than_there_are_do_not_pass() -> None:
    steps: Any = REFERENCE["steps"]
    found = match_graph(graph(*steps, results=[{"n": 1}, {"n": 2}, {"n": 3}]), REFERENCE)
    assert not found.matched
    assert found.score < 1.0
    assert "it has 3 results instead of 2" in found.explanation


@pytest.mark.parametrize(
    "trajectory",
    [None, {}, {"steps": "ab"}, {"steps": ["ab"]}, {"steps": [[1]]}, {"steps": [], "results": 7}],
)
def test_what_is_no_graph_trajectory_is_refused(trajectory: Any) -> None:
    with pytest.raises(UnreadableMessages):
        match_graph(graph(), trajectory)
    with pytest.raises(UnreadableMessages):
        match_graph(trajectory, graph(results=[]))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(InvalidOptions, match=r"openevals-0\.2\.2"):
        match_graph(graph(), graph(), profile="openevals-0.2.2")
    with pytest.raises(InvalidOptions, match="results"):
        match_graph(graph(), graph(), results="some")  # type: ignore[arg-type]
