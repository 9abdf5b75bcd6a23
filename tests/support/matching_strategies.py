"""Random trajectories for trajectory matching, and the packages they are compared with.

Alphabets are small, and references are made by changing trajectories, so that calls collide,
partners are scarce, and about as many comparisons match as do not.
"""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

from agentevals.trajectory import match as agentevals
from hypothesis import strategies as st
from openevals.trajectory import match as openevals

from services.judge.matching import MatcherFailed, PackageRaises, match

MODES = ("strict", "unordered", "subset", "superset")
ARGUMENTS_MODES = ("exact", "ignore", "subset", "superset")
PACKAGES: dict[str, Callable[..., Any]] = {
    "openevals-0.2.2": openevals.create_trajectory_match_evaluator,
    "agentevals-0.0.9": agentevals.create_trajectory_match_evaluator,
}
RAISES = "raises"


def theirs(profile: str, actual: Any, reference: Any, mode: str, arguments: str, own: Any) -> Any:
    """What the package itself gives: true, false or RAISES. It may change its input: copies."""
    evaluator = PACKAGES[profile](
        trajectory_match_mode=mode, tool_args_match_mode=arguments, tool_args_match_overrides=own
    )
    outputs, references = pickle.loads(pickle.dumps((actual, reference)))
    try:
        found = evaluator(outputs=outputs, reference_outputs=references)
    except Exception:
        return RAISES
    assert found["key"] == f"trajectory_{mode}_match"
    return found["score"]


def ours(profile: Any, actual: Any, reference: Any, mode: Any, arguments: Any, own: Any) -> Any:
    """What the profile gives, put the same way. Any other error is a defect."""
    before = repr((actual, reference))
    try:
        found = match(
            actual, reference, mode=mode, arguments=arguments, overrides=own, profile=profile
        )
    except (PackageRaises, MatcherFailed):
        return RAISES
    finally:
        assert repr((actual, reference)) == before, "the input was changed"
    assert found.score == float(found.matched)
    return found.matched


NAMES = st.sampled_from(["get", "put"])
VALUES = st.sampled_from([1, 1, 2, 2, "1", None, True, 1.0, {"z": 1}, {"z": None}, [1]])
ARGUMENTS = st.dictionaries(st.sampled_from(["x", "y"]), VALUES, max_size=2)
CALLS = st.tuples(NAMES, ARGUMENTS)
STEPS = st.lists(st.lists(CALLS, max_size=3), max_size=4)
"""A trajectory: the calls of each assistant message."""


@st.composite
def changed(draw: Any, steps: list[list[tuple[str, Any]]]) -> list[list[tuple[str, Any]]]:
    """The same trajectory with some changes, or none."""
    steps = copy.deepcopy(steps)
    for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
        kind = draw(
            st.sampled_from(["swap", "flatten", "drop", "repeat", "narrow", "narrow", "value"])
        )
        flat = [call for step in steps for call in step]
        if not flat:
            break
        place = draw(st.integers(0, len(flat) - 1))
        name, arguments = flat[place]
        if kind == "swap":
            flat = draw(st.permutations(flat))
        elif kind == "drop":
            del flat[place]
        elif kind == "repeat":
            flat.insert(place, (name, arguments))
        elif kind == "narrow" and arguments:
            flat[place] = (name, dict(list(arguments.items())[1:]))
        elif kind == "value":
            flat[place] = (name, {**arguments, "x": draw(VALUES)})
        if kind == "flatten":
            steps = [[call] for call in flat]
        else:
            sizes = [len(step) for step in steps]
            steps = []
            for size in sizes:
                steps.append(flat[:size])
                flat = flat[size:]
            if flat:
                steps.append(flat)
    return steps


@st.composite
def step_pairs(draw: Any) -> tuple[Any, Any]:
    actual = draw(STEPS)
    reference = draw(st.one_of(changed(actual), changed(actual), changed(actual), STEPS))
    return actual, reference


def openai(steps: list[list[tuple[str, Any]]]) -> list[dict[str, Any]]:
    """A trajectory as plain OpenAI messages."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello."}]
    for number, step in enumerate(steps):
        calls = [
            {
                "id": f"c{number}.{place}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for place, (name, arguments) in enumerate(step)
        ]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in calls]
    return messages


def _at_most(actual: dict[str, Any], reference: dict[str, Any]) -> bool:
    return bool(actual.get("x", 0) <= reference["x"])  # raises for some, and is one-sided


def _has_x(actual: dict[str, Any], reference: dict[str, Any]) -> Any:
    return actual.get("x")


_PLAIN = [*ARGUMENTS_MODES, ["x"], ["x", "y"], ["x.z"], ["nowhere"], _at_most, _has_x]
_MORE = [*_PLAIN, [], None, "", "exakt", ("x",), 7, [3]]
OVERRIDES = st.none() | st.dictionaries(NAMES, st.sampled_from(_MORE), min_size=1, max_size=2)
