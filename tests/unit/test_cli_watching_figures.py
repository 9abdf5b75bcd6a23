"""D07: a run's figures are folded from its records, whichever of them are read twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.gate import GateStatus
from schemas.runs import RunStatus
from schemas.scores import SessionScored
from schemas.trajectory import EndReason
from services.cli.watching.figures import Known, RunFigures, planned_by_category
from services.cli.watching.fold import MAX_FAILURES, RunFold
from services.cli.watching.window import WINDOW_MS, Window
from tests.support.watched import CATEGORIES, NOW_MS, RUN, ended, scored, started, status, turn

pytestmark = pytest.mark.req("D07")


def fold(*records: Any, known: Known = Known.ALL, max_sessions: int = 1000) -> RunFold:
    made = RunFold(RUN, known, max_sessions=max_sessions)
    for record in records:
        take(made, record)
    return made


def take(made: RunFold, record: Any) -> None:
    if isinstance(record, RunStatus):
        made.status(record)
    elif isinstance(record, SessionScored):
        made.score(record)
    else:
        made.event(record)


times = st.integers(NOW_MS - 2 * WINDOW_MS, NOW_MS + 10_000)
names = st.integers(0, 12).map(str)
kinds = st.sampled_from(CATEGORIES[:3])
counts = st.integers(0, 30)
records = st.one_of(
    st.builds(started, names, kinds, times, st.integers(0, 2)),
    st.builds(turn, names, st.integers(1, 4), times),
    st.builds(ended, names, st.sampled_from(EndReason.ALL), times),
    st.builds(
        scored, names, kinds, st.sampled_from([True, False, None]), times,
        valid=st.booleans(), attempt=st.integers(0, 2), end_reason=st.sampled_from(EndReason.ALL),
    ),
    st.builds(
        status, each=st.integers(0, 10), started=counts, ended=counts, scored=counts, at_ms=times,
        state=st.sampled_from(["accepted", "running", "sessions_done", "aggregated", "rejected"]),
        categories=st.dictionaries(kinds, counts), reasons=st.dictionaries(kinds, counts),
    ),
)  # fmt: skip
histories = st.lists(records, max_size=40)


@given(histories, st.data(), st.sampled_from(Known), st.integers(1, 13))
def test_reading_records_again_changes_no_figure(
    history: list[Any], data: st.DataObject, known: Known, most: int
) -> None:
    once = fold(*history, known=known, max_sessions=most)
    again = fold(known=known, max_sessions=most)
    for number, record in enumerate(history):
        take(again, record)
        back = data.draw(st.integers(0, number), label="read again from")
        for repeated in history[back : number + 1]:
            take(again, repeated)
    for now_ms in (NOW_MS, NOW_MS + 1_000, NOW_MS + WINDOW_MS):
        assert again.figures(now_ms) == once.figures(now_ms)


@given(histories, st.sampled_from(Known), st.integers(1, 13))
def test_no_figure_is_negative_and_totals_add_up(
    history: list[Any], known: Known, most: int
) -> None:
    run = fold(*history, known=known, max_sessions=most).figures(NOW_MS)
    for one in run.categories:
        parts = (one.passed, one.failed, one.unscored, one.invalid, one.active or 0, one.planned)
        assert min(parts) >= 0
        assert one.judged <= one.ended
        assert one.started is None or one.ended <= one.started
        assert (one.started is None) == (one.active is None)
    assert run.ended == sum(one.ended for one in run.categories)
    judged = run.passed + run.failed + run.unscored + run.invalid
    assert judged == sum(one.judged for one in run.categories)
    assert run.scored == judged + run.outcomes_missing
    assert min(run.active, run.outcomes_missing) >= 0
    assert all(number > 0 for _, number in run.reasons)
    known = [one.started for one in run.categories if one.started is not None]
    if len(known) == len(run.categories) and known:
        assert run.started == sum(known)
    for rate in (run.sessions_per_s, run.turns_per_s, run.left_s, run.elapsed_s):
        assert rate is None or rate >= 0


def test_a_run_is_counted_by_category_as_its_sessions_go_on() -> None:
    run = fold(
        status(),
        started("a", "happy"), started("b", "happy"), started("c", "load"),
        ended("a"), scored("a", "happy"),
        ended("c", "agent_timeout"), scored("c", "load", passed=False),
    ).figures(NOW_MS)  # fmt: skip
    by_name = {one.category: one for one in run.categories}
    assert set(by_name) == set(CATEGORIES)
    happy, load = by_name["happy"], by_name["load"]
    assert (happy.planned, happy.started, happy.ended, happy.active) == (4, 2, 1, 1)
    assert (happy.passed, load.failed, load.active) == (1, 1, 0)
    assert (run.planned, run.started, run.ended, run.active) == (20, 3, 2, 1)
    assert dict(run.reasons) == {"goal_met": 1, "agent_timeout": 1}
    assert (run.suite, run.agent) == ("shop 3", "shop-2")
    (failure,) = run.failures
    assert (failure.session_id, failure.scenario_id) == ("c", "load-one")
    assert (failure.dimension, failure.reason) == ("safety", "told a stranger")


def test_a_status_alone_says_what_it_knows_and_no_more() -> None:
    said = status(started=9, ended=6, scored=5, categories={"happy": 4, "load": 2}, lost=1)
    run = fold(said, known=Known.NONE).figures(NOW_MS)
    assert (run.sessions_per_s, run.turns_per_s) == (None, None)
    assert (run.started, run.ended, run.scored, run.active, run.lost) == (9, 6, 5, 3, 1)
    assert run.outcomes_missing == 5
    assert all(one.active is None for one in run.categories)


def test_planned_sessions_of_scenarios_without_a_category_are_counted_too() -> None:
    plan = status(scenario_plan={"a": 2, "b": 1, "?": 3}, scenario_categories={"a": "x", "b": "x"})
    assert planned_by_category(plan) == {"other": 3, "x": 3}


def test_a_session_that_is_played_again_counts_once() -> None:
    spoilt = (
        status(), started("a"), ended("a", "simulator_invalid"),
        scored("a", valid=False, passed=None, end_reason="simulator_invalid"),
    )  # fmt: skip
    before = fold(*spoilt).figures(NOW_MS)
    assert (before.ended, before.invalid, before.active) == (1, 1, 0)
    during = fold(*spoilt, started("a2", attempt=1)).figures(NOW_MS)
    assert (during.started, during.ended, during.invalid, during.active) == (1, 0, 0, 1)
    assert during.reasons == ()
    after = fold(
        *spoilt, started("a2", attempt=1), ended("a2"), scored("a2", attempt=1)
    ).figures(NOW_MS)  # fmt: skip
    assert (after.started, after.ended, after.invalid, after.passed) == (1, 1, 0, 1)


def test_of_a_sessions_scores_the_first_counts() -> None:
    made = fold(status(), started("a"))
    assert made.score(scored("a")) is None
    assert made.score(scored("a", passed=False)) is None
    assert made.figures(NOW_MS).passed == 1


def test_an_old_status_does_not_set_a_run_back() -> None:
    late = status(state="aggregated", ended=20, scored=20, at_ms=NOW_MS)
    early = status(ended=3, at_ms=NOW_MS - 5_000)
    run = fold(late, early).figures(NOW_MS)
    assert (run.state, run.left_s) == ("aggregated", 0.0)


def test_failures_are_the_latest_and_bounded_in_number_and_length() -> None:
    made = fold(status(each=100))
    for number in range(3 * MAX_FAILURES):
        said = scored(f"s{number}", "x" * 5_000, passed=False, at_ms=NOW_MS + number)
        failure = made.score(said)
        assert failure is not None
    latest = made.figures(NOW_MS).failures
    newest_first = [f"s{n}" for n in reversed(range(2 * MAX_FAILURES, 3 * MAX_FAILURES))]
    assert [one.session_id for one in latest] == newest_first
    assert all(len(one.scenario_id) <= 100 and len(one.reason) <= 310 for one in latest)


def test_sessions_are_told_apart_up_to_a_bound_and_the_status_goes_on_counting() -> None:
    said = status(started=9, ended=7, categories={"happy": 7})
    run = fold(said, *(started(str(n)) for n in range(9)), max_sessions=5).figures(NOW_MS)
    assert run.has_more
    assert (run.started, run.ended) == (9, 7)
    assert all(one.started is None for one in run.categories)


def test_rates_are_over_the_window_and_unknown_before_it_says_something() -> None:
    began = NOW_MS - 60_000
    turns = [turn("a", n, NOW_MS - 1_000 * n) for n in range(60)]
    run = fold(status(requested_at_ms=began), *turns).figures(NOW_MS)
    assert run.turns_per_s == pytest.approx(1.0)
    assert run.sessions_per_s == 0.0
    new = fold(status(requested_at_ms=NOW_MS - 500), turn("a")).figures(NOW_MS)
    assert new.turns_per_s is None
    joined = fold(status(requested_at_ms=began), *turns, known=Known.SOME)
    joined.begin(NOW_MS - 10_000)
    # Ten seconds are known: the sixty turns are not thought to have happened in them.
    assert joined.figures(NOW_MS).turns_per_s == pytest.approx(1.0, rel=0.2)


def left(**said: Any) -> float | None:
    return fold(status(**said), known=Known.SOME).figures(NOW_MS).left_s


def test_the_time_left_is_unknown_until_enough_sessions_were_judged() -> None:
    assert left(scored=4) is None
    assert left(scored=5) == pytest.approx(15 / (5 / 60))
    assert left(scored=20) is None, "counting and deciding have no pace"
    assert left(state="rejected") == 0.0
    assert left(requested_at_ms=0, scored=5) is None


def test_the_time_left_goes_by_the_pace_of_late_and_ends_at_the_deadline() -> None:
    slow_start = [scored(str(n), at_ms=NOW_MS - n * 1_000) for n in range(10)]
    run = fold(status(each=8, requested_at_ms=NOW_MS - 600_000), *slow_start).figures(NOW_MS)
    assert run.left_s == pytest.approx(30 / (10 / 30))
    assert left(scored=5, each=100_000) == pytest.approx(3600 - 60)


def test_a_verdict_is_part_of_the_figures() -> None:
    made = fold(status())
    made.verdict(GateStatus(run_id=RUN, verdict="FAIL"))
    run: RunFigures = made.figures(NOW_MS)
    assert run.verdict == "FAIL"


@given(st.lists(st.tuples(st.integers(0, 30), times), max_size=60), st.integers(1, 20))
def test_a_window_is_bounded_and_counts_each_thing_once(
    happened: list[tuple[int, int]], most: int
) -> None:
    window = Window(most)
    first: dict[int, int] = {}
    for name, at_ms in happened:
        first.setdefault(name, at_ms)
        window.add(str(name), first[name])
        window.add(str(name), first[name])
        assert len(window) <= most
    recent = [at for at in first.values() if NOW_MS - WINDOW_MS < at <= NOW_MS + 5_000]
    assert window.count(NOW_MS) <= len(recent)
    if len(first) <= most:
        assert window.count(NOW_MS) == len(recent)
    assert Counter(str(name) for name in first).total() == len(first)


def test_a_window_that_overflows_counts_over_less_time() -> None:
    window = Window(100)
    for number in range(1_000):
        window.add(str(number), NOW_MS - 10_000 + number * 10)
    assert window.count(NOW_MS) == 100
    assert window.per_second(NOW_MS) is None, "a second is too short to tell"
    assert window.per_second(NOW_MS + 2_000) == pytest.approx(100 / 3, rel=0.05)
