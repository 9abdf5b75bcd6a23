"""The plan of a session: what it says, how long it gets, and what becomes of one that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.faults import Failure
from schemas.injection_plan import (
    HORIZON,
    MAX_CHARS,
    InjectionPlan,
    as_struck,
    departure,
    due,
    plan,
    ranges,
    recorded_plan,
)
from schemas.latency import Latency
from schemas.registry import AgentRegistration, Suite
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from services.dispatcher.expansion import make_plan, started_event
from services.judge.trajectory import read
from services.judge.validity import invalid_reason
from tests.support.injected import LOOKUP, brief_with, judge_brief_of, play, why_invalid
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("V06")

FLAKY: dict[str, Any] = {"id": "flaky", "kind": "outage", "probability": 0.3, "burst": 2}
TEXTS: dict[str, Any] = {"id": "says", "kind": "content", "contents": ["a", "b", "c"],
                         "calls": [1, 3, 4]}  # fmt: skip
SLOW: dict[str, Any] = {"id": "slow", "kind": "slow", "latency": {"mean_ms": 50}, "calls": [2]}


def numbers(text: str) -> list[int]:
    found = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**62), st.floats(0, 1), st.integers(1, 6), st.floats(0, 2),
    st.lists(st.integers(1, 30), max_size=3, unique=True),
)  # fmt: skip
def test_the_plan_says_what_is_due(
    seed: int, rate: float, burst: int, factor: float, calls: list[int]
) -> None:
    failure = Failure(id="f", kind="outage", probability=rate, burst=burst, calls=tuple(calls))
    [planned] = plan([failure], seed, factor, 40).failures
    assert numbers(planned.strikes) == [n for n in range(1, 41) if due(failure, seed, factor, n)]


def test_texts_and_delays_are_planned() -> None:
    failures = [Failure(**TEXTS), Failure(**SLOW)]
    says, slow = plan(failures, 5, 1.0, 10).failures
    assert [TEXTS["contents"][n - 1] for n in says.texts] == [
        as_struck(failures[0], 5, n).content for n in (1, 3, 4)
    ]
    assert slow.delays_ms == (as_struck(failures[1], 5, 2).delay_ms,)


@given(st.sets(st.integers(1, 60)))
def test_ranges_are_read_back(wanted: set[int]) -> None:
    assert numbers(ranges(sorted(wanted))) == sorted(wanted)


def test_the_record_is_bounded() -> None:
    many = [Failure(id=f"f{n}", kind="slow", latency=Latency(mean_ms=900)) for n in range(60)]
    text = recorded_plan(many, 1, 1.0, 10_000)
    assert len(text) <= MAX_CHARS
    assert 0 < InjectionPlan.model_validate_json(text).calls < HORIZON
    assert departure(text, many, 1, 1.0) == ""
    one = InjectionPlan.model_validate_json(recorded_plan([Failure(**FLAKY)], 1, 1.0, 10_000))
    assert one.calls == HORIZON
    assert recorded_plan([], 1, 1.0, 40) == ""


def test_the_start_of_a_session_carries_its_plan() -> None:
    user = {"goals": [{"say": ["a"], "done_when": ["b"]}]}
    scenario = Scenario.model_validate(
        {"id": "case", "name": "A", "user": user, "failures": [FLAKY]}
    )
    request = RunRequest(run_id="r", suite="s", agent_id="a", trials=1, failure_multiplier=0.5)
    found = make_plan(request, [scenario], can_improvise=False)
    suite = Suite(suite_hash="h", name="s", version="1", owner="o", scenarios=())
    agent = AgentRegistration(agent_id="a", name="a", endpoint="http://x")
    event = started_event(request, found, found.phases[0].sessions[0], suite, agent, 0)
    start = event.session_started
    assert start is not None
    told = InjectionPlan.model_validate_json(start.injection_plan)
    assert told == plan(scenario.failures, start.seed, 0.5, scenario.limits.tool_calls)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"failures": [{"id": "flaky", "strikes": "1"}]}, "not the one that the seed gives"),
        ({"multiplier": 3.0}, "not the one that the seed gives"),
        ({"specified": "0"}, "of other failures than the scenario's"),
        ({"surprise": 1}, "cannot be read"),
        ({"calls": 10**9}, "not the one that the seed gives"),
    ],
)
def test_a_session_with_another_plan_is_invalid(change: dict[str, Any], why: str) -> None:
    failures = [Failure(**FLAKY)]
    right = recorded_plan(failures, 7, 1.0, 40)
    assert departure(right, failures, 7, 1.0) == ""
    wrong = json.dumps({**json.loads(right), **change})
    assert why in departure(wrong, failures, 7, 1.0)
    for plan_text, reason in ((right, ""), (wrong, why)):
        events = Session(seed=7, injection_plan=plan_text).user().agent().end()
        found = invalid_reason(read(events), judge_brief_of([FLAKY]), ())
        assert (reason in found) if reason else found == ""


def test_a_multiplied_plan_is_kept_by_the_proxy() -> None:
    for factor in (0.25, 1.0, 3.0):
        brief = brief_with([FLAKY], failure_multiplier=factor)
        played = play(brief, [LOOKUP] * 40)
        assert why_invalid(played, [FLAKY], brief) == ""
        [planned] = plan(brief.failures, brief.seed, factor, 40).failures
        assert numbers(planned.strikes) == [n for n, was in enumerate(played.injected, 1) if was]
