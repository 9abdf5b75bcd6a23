"""`sequencing` against a brute-force reference, and what it tells."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.assertions import Step
from services.judge.assertions.facts import Fact, Facts
from services.judge.assertions.outcome import Verdict
from services.judge.assertions.sequences import earliest, in_sequence
from tests.support.assertions import TRACKER, action, flow, judged, slot, states

pytestmark = pytest.mark.req("S05")

KINDS = (
    "flow_started", "flow_completed", "flow_cancelled", "flow_interrupted", "action_executed",
    "slot_was_set",
)  # fmt: skip
FAMILY = {"action_executed": "actions", "slot_was_set": "slots"}
pairs = st.tuples(st.sampled_from(KINDS), st.sampled_from("ab"))
histories = st.lists(pairs, max_size=9)
sequences = st.lists(pairs, min_size=1, max_size=4)
families = st.frozensets(st.sampled_from(["flows", "actions", "slots"]))


def family(kind: str) -> str:
    return FAMILY.get(kind, "flows")


def steps_of(sequence: list[tuple[str, str]]) -> list[Step]:
    return [Step.model_validate({kind: name}) for kind, name in sequence]


def facts_of(history: list[tuple[str, str]], reported: frozenset[str]) -> Facts:
    events = (Fact(kind, name, f"x{n}") for n, (kind, name) in enumerate(history, start=1))
    return Facts(events=tuple(events), utterances=(), reported=reported)


def occurs(sequence: list[tuple[str, str]], history: list[tuple[str, str]]) -> bool:
    """Whether any choice of that many events, in their order, is the sequence."""
    return any(list(chosen) == sequence for chosen in combinations(history, len(sequence)))


ALL = frozenset({"flows", "actions", "slots"})


@settings(max_examples=1000)
@given(sequences, histories)
def test_it_holds_just_when_some_choice_of_events_is_the_sequence(
    sequence: list[tuple[str, str]], history: list[tuple[str, str]]
) -> None:
    outcome = in_sequence(steps_of(sequence), facts_of(history, ALL))
    assert (outcome.verdict is Verdict.HOLDS) is occurs(sequence, history)
    assert outcome.decided


@settings(max_examples=500)
@given(sequences, histories)
def test_the_citations_are_the_longest_beginning_that_occurs_each_after_the_one_before(
    sequence: list[tuple[str, str]], history: list[tuple[str, str]]
) -> None:
    outcome = in_sequence(steps_of(sequence), facts_of(history, ALL))
    places = [int(step[1:]) for step in outcome.steps]
    assert places == sorted(set(places))
    assert [history[place - 1] for place in places] == sequence[: len(places)]
    assert not occurs(sequence[: len(places) + 1], history) or len(places) == len(sequence)


@settings(max_examples=1000)
@given(sequences, histories, families)
def test_what_is_not_reported_opens_a_verdict_and_never_turns_it(
    sequence: list[tuple[str, str]], history: list[tuple[str, str]], reported: frozenset[str]
) -> None:
    visible = [event for event in history if family(event[0]) in reported]
    outcome = in_sequence(steps_of(sequence), facts_of(visible, reported))
    truth = occurs(sequence, history)
    if outcome.verdict is Verdict.HOLDS:
        assert truth
    if outcome.verdict is Verdict.FAILS:
        assert not truth
    if outcome.verdict is Verdict.NOT_APPLICABLE:
        assert any(family(kind) not in reported for kind, _ in sequence)
        assert occurs([s for s in sequence if family(s[0]) in reported], visible)


@given(sequences, histories, histories)
def test_more_events_in_between_change_nothing(
    sequence: list[tuple[str, str]], history: list[tuple[str, str]], more: list[tuple[str, str]]
) -> None:
    steps = steps_of(sequence)
    before = len(earliest(steps, facts_of(history, ALL).events))
    assert len(earliest(steps, facts_of(history + more, ALL).events)) >= before
    assert len(earliest(steps, facts_of(more + history, ALL).events)) >= before


ORDER: list[dict[str, Any]] = [
    {"flow_started": "verify"},
    {"action_executed": "look"},
    {"slot_was_set": "ok"},
    {"flow_interrupted": "verify"},
    {"flow_cancelled": "verify"},
    {"flow_completed": "order"},
]
SAID = [
    flow("started", "verify"), action("look"), slot("ok", True), flow("interrupted", "verify"),
    flow("cancelled", "verify"), flow("completed", "order"),
]  # fmt: skip


def test_all_six_kinds_in_order() -> None:
    result = judged(states(*SAID), {"sequencing": ORDER})
    assert (result.passed, len(result.citations)) == (True, 6)
    assert "all 6 steps in order (x1, x2, x3, x4, x5, x6)" in result.reason


@pytest.mark.parametrize("gone", range(6))
def test_any_step_missing_fails_and_is_named(gone: int) -> None:
    said = [TRACKER, *SAID[:gone], *SAID[gone + 1 :]]
    result = judged(states(*said), {"sequencing": ORDER})
    ((kind, name),) = ORDER[gone].items()
    assert result.passed is False
    assert f'stopped at step {gone + 1} of 6: {kind} "{name}" does not occur' in result.reason
    assert len(result.citations) == gone


def test_the_explanation_tells_what_matched_and_that_the_step_came_too_early() -> None:
    said = [slot("ok", True), flow("started", "verify"), action("look"), flow("completed", "x")]
    result = judged(states(*said), {"sequencing": ORDER[:4]})
    assert result.reason.endswith(
        'stopped at step 3 of 4: slot_was_set "ok" does not occur after x3 (only before: x1), '
        'after flow_started "verify" (x2), action_executed "look" (x3)'
    )
    assert result.citations == ("x2", "x3")


def test_one_event_matches_one_step() -> None:
    twice = {"sequencing": [{"flow_started": "a"}, {"flow_started": "a"}]}
    assert judged(states(flow("started", "a")), twice).passed is False
    assert judged(states(flow("started", "a"), flow("started", "a")), twice).passed is True


def test_emptying_a_slot_is_setting_it() -> None:
    steps = {"sequencing": [{"slot_was_set": "a"}]}
    assert judged(states(slot("a", None)), steps).passed is True


def test_steps_that_nobody_reports_leave_it_open_unless_the_others_fail() -> None:
    steps = {"sequencing": [{"flow_started": "a"}, {"slot_was_set": "x"}, {"flow_completed": "a"}]}
    started, completed = flow("started", "a"), flow("completed", "a")
    open_ = judged(states(started, completed), steps)
    assert (open_.passed, open_.status, open_.citations) == (None, "unscored", ("x1",))
    assert "reported no slots" in open_.reason
    assert judged(states(completed, started), steps).passed is False
