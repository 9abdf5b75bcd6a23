"""Which calls a failure strikes: once, in bursts, for a while, from and until a time; and what the
judge makes of a session in which the agent called at those times."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from schemas.coherence import incoherences
from schemas.faults import Failure
from schemas.places import can_cut, can_plant
from schemas.selection import fits
from schemas.world_setup import WorldSetup
from services.tool_proxy import injection
from services.tool_proxy.rules import may_fail
from tests.support.injected import (
    LOOKUP,
    brief_with,
    play,
    why_invalid,
)

pytestmark = pytest.mark.req("V05", "V06")

OTHER = ("add_note", {"text": "x"})
HOURLY = WorldSetup(name="desk", turn_takes="1h")
BUSY = WorldSetup(name="desk", call_takes="10m")


def struck(*, seed: int = 7, count: int = 12, **failure: Any) -> list[int]:
    """The numbers, from 1, of the calls into which something was injected; three calls a turn."""
    brief = brief_with([{"id": "f", "kind": "outage", **failure}], seed=seed)
    return _struck(brief, [LOOKUP] * count)


def _struck(
    brief: Any, calls: Any, conversation_of: Callable[[int], int] = lambda n: 1 + n // 6
) -> list[int]:
    failures = [f.model_dump(mode="json", exclude_defaults=True) for f in brief.failures]
    played = play(brief, calls, turn_of=lambda n: 1 + n // 3, conversation_of=conversation_of)
    assert why_invalid(played, failures, brief) == ""
    return [number for number, was in enumerate(played.injected, start=1) if was]


@pytest.mark.parametrize(
    ("selector", "numbers"),
    [
        ({"times": 1}, [1]),
        ({"calls": [4]}, [4]),
        ({"calls": [2, 9], "burst": 3}, [2, 3, 4, 9, 10, 11]),
        ({"calls": [2, 3], "burst": 3}, [2, 3, 4, 5]),
        ({"calls": [2], "burst": 5, "times": 2}, [2, 3]),
        ({"conversations": [2]}, [7, 8, 9, 10, 11, 12]),
        ({"conversations": [2], "calls": [2]}, [8]),
        ({"after": "2 turns"}, [7, 8, 9, 10, 11, 12]),
        ({"until": "1 turn"}, [1, 2, 3]),
        ({"after": "1 turn", "until": "2 turns"}, [4, 5, 6]),
        ({"after": "4 calls", "until": "6 calls"}, [5, 6]),
        ({"after": "4 calls", "times": 1}, [5]),
        ({"after": "1 turn", "until": "5 calls"}, [4, 5]),
        ({"like": {"order_id": "[0-9]"}, "until": "2 calls"}, [1, 2]),
        ({"like": {"order_id": "x*"}, "required": False}, []),
    ],
)
def test_selected_calls(selector: dict[str, Any], numbers: list[int]) -> None:
    assert struck(**selector) == numbers


@pytest.mark.parametrize(
    ("world", "selector", "numbers"),
    [
        (HOURLY, {"after": "2h"}, [7, 8, 9, 10, 11, 12]),
        (HOURLY, {"until": "90m"}, [1, 2, 3, 4, 5, 6]),
        (BUSY, {"after": "30m", "until": "1h"}, [4, 5, 6]),
        (BUSY, {"after": "30m", "until": "1h", "times": 1}, [4]),
    ],
)
def test_a_time_of_the_world(
    world: WorldSetup, selector: dict[str, Any], numbers: list[int]
) -> None:
    brief = brief_with([{"id": "f", "kind": "outage", **selector}])
    assert _struck(brief.model_copy(update={"world": world}), [LOOKUP] * 12) == numbers


def test_the_time_between_conversations_counts() -> None:
    brief = brief_with(
        [{"id": "f", "kind": "outage", "after": "1d", "until": "3d"}], elapsed_s=(0, 86400, 864000)
    )
    assert _struck(brief, [LOOKUP] * 12, lambda n: 1 + n // 4) == [5, 6, 7, 8]


def test_calls_of_other_tools_pass_the_time_but_are_not_numbered() -> None:
    brief = brief_with([{"id": "f", "kind": "outage", "tool": "get_order", "after": "4 calls",
                         "calls": [2]}])  # fmt: skip
    calls = [OTHER, LOOKUP] * 5
    assert _struck(brief, calls) == [8]
    assert may_fail(brief, "add_note", {})
    calls_only = brief_with([{"id": "f", "kind": "outage", "tool": "get_order"}])
    assert not may_fail(calls_only, "add_note", {})


def test_random_bursts_are_of_their_length_and_from_the_seed() -> None:
    found = struck(seed=3, count=200, probability=0.05, burst=4)
    assert found == struck(seed=3, count=200, probability=0.05, burst=4)
    assert found != struck(seed=4, count=200, probability=0.05, burst=4)
    runs = [list(g) for _, g in itertools.groupby(enumerate(found), lambda x: x[1] - x[0])]
    assert len(runs) > 2
    assert all(len(run) >= 4 for run in runs[:-1])


def test_globs_are_for_arguments_as_text() -> None:
    failure = Failure(id="f", kind="outage", like={"id": "ORD-9*", "n": "1?"})
    assert fits(failure, "any", {"id": "ORD-91", "n": 12})
    assert not fits(failure, "any", {"id": "ORD-81", "n": 12})
    assert not fits(failure, "any", {"id": "ORD-91"})


@pytest.mark.parametrize(
    ("fields", "where", "why"),
    [
        ({"after": "2 turns", "until": "1 turn"}, "until", "before it begins"),
        ({"after": "2h"}, "after", "no world time passes"),
        ({"conversations": [2]}, "conversations", "there is no conversation 2"),
    ],
)
def test_windows_in_which_nothing_can_happen_are_errors(
    fields: dict[str, Any], where: str, why: str
) -> None:
    scenario = {"failures": [{"id": "f", "kind": "outage", **fields}]}
    found = [(place, message) for place, message in incoherences(scenario) if why in message]
    assert [place[:3] for place, _ in found] == [("failures", 0, where)]
    timed = {**scenario, "world": {"name": "desk", "turn_takes": "10m"}}
    still = [message for _, message in incoherences(timed) if "no world time" in message]
    assert still == []


@pytest.mark.parametrize("span", ["2 hours", "turns", "-1 turns", "1turn", "1  turn", ""])
def test_what_is_no_span_is_refused(span: str) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        Failure(id="f", kind="outage", after=span)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "a b", "x y z"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "note", "a/b", "c~d", "items"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(json_values, st.sampled_from(["", "note", "items", "/note", "/a~1b", "a/b", "/0"]))
def test_the_judge_knows_where_something_can_be_planted_or_left_out(
    answer: JsonValue, field: str
) -> None:
    content = Failure(id="f", kind="content", content="X", field=field)
    partial = Failure(id="f", kind="partial", field=field)
    assert can_plant(field, answer) == (injection.altering(content, answer) is not None)
    assert can_cut(field, answer) == (injection.altering(partial, answer) is not None)


@settings(max_examples=60, deadline=None)
@given(json_values, st.sampled_from(["", "note", "items", "a/b"]), st.integers(0, 50))
def test_whatever_a_tool_answers_the_record_is_reconciled(
    respond: JsonValue, field: str, seed: int
) -> None:
    failures: list[dict[str, Any]] = [
        {"id": "p", "kind": "partial", "field": field, "probability": 0.4},
        {"id": "c", "kind": "content", "content": "X", "field": field, "probability": 0.4},
        {"id": "m", "kind": "malformed", "probability": 0.4},
    ]
    brief = brief_with(failures, world=None, rules=[{"respond": respond}], seed=seed)
    played = play(brief, [LOOKUP] * 4)
    assert why_invalid(played, failures, brief) == ""
    for reply, was in zip(played.replies, played.injected, strict=True):
        assert was == (reply["source"] == "injected")
        if not was:
            response = reply["response"]
            # A bare value reaches the agent as the text that JSON has for it.
            as_text = isinstance(response, str) and not isinstance(respond, str)
            assert (orjson.loads(response) if as_text else response) == respond
