"""V15: what a load scenario's sessions took, from the log to the aggregates."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.aggregation import ScenarioAccumulator, aggregate_run
from pipelines.load import LoadAccumulator
from pipelines.score_run import aggregate
from schemas.codec import Codec
from schemas.runs import ScenarioObjectives
from schemas.scores import LoadFigures, RunAggregates, SessionScored, SessionTiming
from schemas.topics import AGGREGATES
from schemas.trajectory import AgentTurn, TrajectoryEvent
from services.judge.timing import timing_of
from tests.support import scored_runs as runs
from tests.support.scored_runs import LOGS, gate, parts_on, score

pytestmark = pytest.mark.req("V15")
CODEC = Codec()


def logged(*turns: tuple[str, int], category: str = "load", late_ms: int = 0) -> (
    list[TrajectoryEvent]
):  # fmt: skip
    """A session with agent turns of these (outcome, latency)."""
    start, *_, end = runs.events("a", 0)
    assert start.session_started is not None
    begun = replace(
        start.session_started, category=category, planned_at_ms=start.at_ms - late_ms
    )  # fmt: skip
    return [
        replace(start, session_started=begun),
        *(
            replace(
                end, event_id=f"{end.session_id}:a{number}", kind="agent_turn", session_ended=None,
                agent_turn=AgentTurn(outcome=outcome, latency_ms=latency),
            )
            for number, (outcome, latency) in enumerate(turns, 1)
        ),
        end,
    ]  # fmt: skip


def timing(*turns: tuple[str, int], **more: int) -> SessionTiming:
    found = timing_of(logged(*turns, **more))  # type: ignore[arg-type]
    assert found is not None
    return found


def test_waiting_to_be_let_in_is_part_of_the_first_turn_and_of_no_other() -> None:
    found = timing(("ok", 40), ("ok", 50), late_ms=300)
    assert found.turn_ms == (340, 50)
    assert found.started_at_ms - found.planned_at_ms == 300


def test_a_quick_error_is_no_quick_answer_and_a_timeout_took_so_long() -> None:
    found = timing(("ok", 40), ("error", 1), late_ms=9)
    assert (found.turn_ms, found.turns, found.failed_turns) == ((49,), 2, 1)
    found = timing(("timeout", 30_000))
    assert (found.turn_ms, found.turns, found.failed_turns) == ((30_000,), 1, 1)
    found = timing(("infrastructure", 5))
    assert (found.turn_ms, found.turns, found.failed_turns) == ((), 0, 0)


def test_a_turn_that_is_in_the_log_twice_counts_once() -> None:
    events = logged(("ok", 40))
    assert timing_of([*events[:2], events[1], events[-1]]) == timing_of(events)


@pytest.mark.parametrize("category", ["happy", "long-horizon"])
def test_other_sessions_are_not_timed(category: str) -> None:
    assert timing_of(logged(("ok", 40), category=category)) is None


def took(trial: int, *turn_ms: int, begin: int = 0, late: int = 0, failed: int = 0,
         lasts: int = 1000, attempt: int = 0) -> SessionScored:  # fmt: skip
    """A load session, as it is scored."""
    return replace(
        score("a", trial, gate("safety", True), category="load"),
        attempt=attempt,
        session_id=f"s-{trial}-{attempt}",
        timing=SessionTiming(
            planned_at_ms=begin, started_at_ms=begin + late, ended_at_ms=begin + lasts,
            turn_ms=turn_ms, failed_turns=failed, turns=len(turn_ms) + failed,
        ),
    )  # fmt: skip


def figures(*sessions: SessionScored, copies: int = 1) -> LoadFigures:
    load = LoadAccumulator()
    for session in sessions:
        load.add(session)
    found = load.result(copies)
    assert found is not None
    return found


def test_percentiles_are_exact_over_all_turns() -> None:
    found = figures(*(took(n, 10 * n + 1, 10 * n + 2) for n in range(50)))
    assert (found.sessions, found.turns, found.timed_turns) == (50, 100, 100)
    assert found.turn_p50_ms == 242
    assert found.turn_p95_ms == 471
    assert found.turn_p99_ms == 491
    assert found.turn_max_ms == 492


def test_repetitions_are_timed_apart() -> None:
    """Two trials of two sessions each; what lies between the trials is no part of either."""
    sessions = [
        took(0, 5, begin=0), took(1, 5, begin=500), took(2, 5, begin=90_000),
        took(3, 5, begin=90_100),
    ]  # fmt: skip
    assert figures(*sessions, copies=2).duration_ms == 1500 + 1100


def test_late_sessions_are_counted_and_one_that_is_played_again_has_no_say() -> None:
    found = figures(took(0, 5, late=100), took(1, 5, late=101), took(2, 9999, attempt=1))
    assert (found.sessions, found.late_sessions, found.late_max_ms) == (2, 1, 101)
    assert found.turn_max_ms == 5


SESSIONS = st.lists(
    st.builds(
        took, st.integers(0, 5), st.integers(0, 2000), st.integers(0, 2000),
        begin=st.integers(0, 5000), late=st.integers(0, 300), failed=st.integers(0, 2),
    ),
    max_size=12, unique_by=lambda session: session.trial,
)  # fmt: skip


@given(SESSIONS, st.randoms(use_true_random=False), st.integers(0, 12))
def test_pieces_and_their_order_change_nothing(
    sessions: list[SessionScored], order: random.Random, cut: int
) -> None:
    status = runs.status({"a": 6}, category="load")
    shuffled = sessions[:]
    order.shuffle(shuffled)
    one, left, right = ScenarioAccumulator(), ScenarioAccumulator(), ScenarioAccumulator()
    for session in sessions:
        one.add(session)
    for part, some in ((left, shuffled[:cut]), (right, shuffled[cut:])):
        for session in some:
            part.add(session)
    right.merge(left)
    assert right.result("a", status) == one.result("a", status)


def many() -> Iterator[SessionScored]:
    draw = random.Random(5)
    for trial in range(12):
        yield took(trial, *(draw.randrange(900) for _ in range(3)), late=draw.randrange(300))


def test_beam_counts_load_and_last_attempts_as_the_oracle_does() -> None:
    parts = parts_on("load")
    scores = list(many())
    spoilt = replace(scores[3], valid=False, passed=None, session_id="before", dimensions=())
    again = replace(scores[3], attempt=1)
    scores = [*scores[:3], again, *scores[4:], spoilt]
    for record in scores:
        LOGS["load"].append(runs.outgoing(CODEC, record))
    status = replace(
        runs.status({"a": 13}, *LOGS["load"].ranges(), category="load"),
        objectives=(ScenarioObjectives(scenario_id="a", bounds={"turn_p95_ms": 700.0}),),
    )
    aggregate(status, parts)
    records = LOGS["load"].records[AGGREGATES.full_name]
    (found,) = (CODEC.decode(RunAggregates, record.value) for record in records)
    assert repr(found) == repr(aggregate_run(scores, status))
    (scenario,) = found.scenarios
    assert (scenario.passed, scenario.invalid, scenario.lost, scenario.retried) == (12, 0, 1, 1)
    assert scenario.objectives == {"turn_p95_ms": 700.0}
    assert scenario.load is not None
    assert (scenario.load.sessions, scenario.load.turns) == (11, 33)


def test_a_trial_whose_repetition_never_ended_is_invalid_as_it_was() -> None:
    spoilt = replace(score("a", 0, valid=False, passed=None), end_reason="simulator_invalid")
    (scenario,) = aggregate_run([spoilt], runs.status({"a": 1})).scenarios
    assert (scenario.invalid, scenario.lost, scenario.retried) == (1, 0, 0)
