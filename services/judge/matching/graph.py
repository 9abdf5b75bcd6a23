"""Trajectories of graph agents: for each run of the graph, the nodes it went through.

The form is AgentEvals': `{"steps": [["a", "b"], ...], "results": [...], "inputs": [...]}`, one
list of node names and one result for every run; inputs are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

from services.judge.matching.calls import canonical, show
from services.judge.matching.errors import InvalidOptions, PackageRaises, UnreadableMessages
from services.judge.matching.result import GraphMatch

AGENTEVALS = "agentevals-0.0.9"


def match_graph(
    actual: Any,
    reference: Any,
    *,
    results: Literal["compare", "ignore"] = "compare",
    profile: str = "windtunnel",
) -> GraphMatch:
    """Whether a graph agent took the steps of the reference, in order, with its results.

    Args:
        actual: the trajectory of the agent, in AgentEvals' form.
        reference: the expected one. Where it has no `results`, they are not compared.
        results: whether the runs' results must be the same JSON as well as their steps.
        profile: `windtunnel`, or `agentevals-0.0.9`, which compares steps alone.

    Raises:
        InvalidOptions: an unknown profile (openevals has no graph trajectories) or `results`.
        UnreadableMessages: something is not of that form.
        PackageRaises: agentevals raises on this input.
    """
    if results not in ("compare", "ignore"):
        raise InvalidOptions(f"results: {results!r} is neither compare nor ignore")
    if profile == AGENTEVALS:
        return _as_agentevals(actual, reference)
    if profile != "windtunnel":
        raise InvalidOptions(f"profile: {profile!r} is neither windtunnel nor {AGENTEVALS}")
    ours, theirs = _steps(actual, "the trajectory"), _steps(reference, "the reference")
    their_results = _results(reference, "the reference") if results == "compare" else None
    our_results = _results(actual, "the trajectory") or []
    same = 0
    first: tuple[int, int | None, str] | None = None
    for run, (went, wanted) in enumerate(zip_longest(ours, theirs)):
        step, words = _first_difference(went, wanted)
        if not words and their_results is not None:
            words = _result_difference(our_results[run : run + 1], their_results[run : run + 1])
        same += not words
        if words and first is None:
            first = run, step, words
    if first is None and their_results is not None and len(our_results) != len(their_results):
        words = f"it has {len(our_results)} results instead of {len(their_results)}"
        first = len(theirs), None, words
    if first is None:
        return GraphMatch(True, 1.0, f"all {len(theirs)} runs took the steps of the reference.")
    run, step, words = first
    runs = max(len(ours), len(theirs)) + (run == len(theirs) == len(ours))
    return GraphMatch(False, same / runs, f"run {run + 1}: {words}.", run, step)


def _first_difference(
    went: Sequence[str] | None, wanted: Sequence[str] | None
) -> tuple[int | None, str]:
    if wanted is None:
        return None, "it is not in the reference"
    if went is None:
        return None, "it did not take place"
    for step, (ours, theirs) in enumerate(zip_longest(went, wanted)):
        if ours != theirs:
            expected = "the end" if theirs is None else show(theirs)
            found = "the end" if ours is None else show(ours)
            return step, f"the steps diverge at step {step + 1}: expected {expected}, found {found}"
    return None, ""


def _result_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> str:
    if not theirs:
        return ""
    if not ours:
        return "it has no result"
    if canonical(ours[0]) == canonical(theirs[0]):
        return ""
    return f"its result is {show(ours[0])} instead of {show(theirs[0])}"


def _steps(trajectory: Any, what: str) -> list[list[str]]:
    steps = trajectory.get("steps") if isinstance(trajectory, Mapping) else None
    if not isinstance(steps, list | tuple) or not all(isinstance(s, list | tuple) for s in steps):
        raise UnreadableMessages(f"{what} has no `steps`, a list of lists of node names")
    if not all(isinstance(node, str) for run in steps for node in run):
        raise UnreadableMessages(f"{what}: a step is no node name")
    return [list(run) for run in steps]


def _results(trajectory: Mapping[str, Any], what: str) -> list[Any] | None:
    results = trajectory.get("results")
    if results is None:
        return None
    if not isinstance(results, list | tuple):
        raise UnreadableMessages(f"{what}: `results` is no list")
    return list(results)


def _as_agentevals(actual: Any, reference: Any) -> GraphMatch:
    """`graph_trajectory_strict_match`: the lists of steps are equal, as Python values."""
    if actual is None or reference is None:
        raise PackageRaises(AGENTEVALS, "a trajectory is None")
    try:
        ours, theirs = actual["steps"], reference["steps"]
        run = None if len(ours) == len(theirs) else min(len(ours), len(theirs))
        if run is None:
            pairs = zip(ours, theirs, strict=True)
            run = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    except (TypeError, KeyError, IndexError, ValueError) as error:
        raise PackageRaises(AGENTEVALS, f"{type(error).__name__}: {error}") from error
    if run is None:
        return GraphMatch(True, 1.0, f"{AGENTEVALS}: it matches.", profile=AGENTEVALS)
    words = f"{AGENTEVALS}: the steps of run {run + 1} differ."
    return GraphMatch(False, 0.0, words, run, profile=AGENTEVALS)
