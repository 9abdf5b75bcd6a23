"""The Beam jobs on the FnApiRunner, over an in-memory log and store."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pipelines.aggregation import aggregate_run
from pipelines.score_run import aggregate, load, run_pipeline
from schemas.codec import Codec
from schemas.registry import DeadLetter
from schemas.runs import OffsetRange, RunState
from schemas.scores import RunAggregates, SessionScored
from schemas.topics import AGGREGATES, DEAD_LETTERS, SCORES, TRAJECTORIES
from services.runtime.bus.records import Outgoing
from tests.support import scored_runs as runs
from tests.support.scored_runs import LOGS, STORES, gate, measure, parts_on, score

CODEC = Codec()
PLAN = {"a": 6, "b": 5, "c": 3}


def scores_of_plan() -> list[SessionScored]:
    draw = random.Random(3)
    return [
        score(
            scenario,
            trial,
            gate("safety", trial != 2),
            measure("turns", draw.choice([0.1, 0.2, 0.3]) * 3),
            measure("agent_latency_ms", draw.random() * 1e5),
            passed=trial != 2,
            valid=trial != 1,
        )
        for scenario, planned in PLAN.items()
        if scenario != "c"
        for trial in range(planned - 1)
    ]


def put(name: str, *records: object) -> None:
    for record in records:
        LOGS[name].append(runs.outgoing(CODEC, record))  # type: ignore[arg-type]


def published(name: str) -> list[RunAggregates]:
    found = LOGS[name].records.get(AGGREGATES.full_name, [])
    return [CODEC.decode(RunAggregates, record.value) for record in found]


@pytest.mark.req("D03", "V11")
@pytest.mark.parametrize(("seed", "piece"), [(1, 100_000), (2, 4), (3, 1)])
def test_beams_aggregates_equal_the_oracle_bit_for_bit(seed: int, piece: int) -> None:
    name = f"oracle-{seed}"
    parts = parts_on(name, piece=piece)
    scores = scores_of_plan()
    random.Random(seed).shuffle(scores)
    put(name, *scores)
    # A zombie's second score, and a session of another run that says so only inside.
    put(name, replace(scores[0], passed=False, dimensions=(gate("safety", False),)))
    stranger = runs.outgoing(CODEC, replace(scores[1], run_id="run-2", session_id="x"))
    LOGS[name].append(replace(stranger, headers=()))
    status = runs.status(PLAN, *LOGS[name].ranges())
    aggregate(status, parts)
    (found,) = published(name)
    assert repr(found) == repr(aggregate_run(scores, status))
    assert [s.lost for s in found.scenarios] == [1, 1, 3]
    assert found.at_ms == status.at_ms


@pytest.mark.req("V12")
def test_a_run_of_which_nothing_was_scored_has_aggregates_too() -> None:
    parts = parts_on("nothing")
    aggregate(runs.status(PLAN), parts)
    (found,) = published("nothing")
    assert [(s.scenario_id, s.lost) for s in found.scenarios] == list(PLAN.items())


@pytest.mark.req("D03")
def test_only_the_ranges_and_the_run_are_counted() -> None:
    name = "ranges"
    parts = parts_on(name)
    inside, before = score("a", 1), score("a", 0)
    put(name, before, inside, score("a", 2))
    other = replace(score("a", 3), run_id="run-2")
    LOGS[name].append(runs.outgoing(CODEC, other))
    stretch = OffsetRange(topic=SCORES.name, partition=0, start=1, end=2)
    aggregate(runs.status({"a": 4}, stretch), parts)
    assert published(name)[0].scored == 1


@pytest.mark.req("D03")
def test_a_poisoned_record_becomes_a_dead_letter_and_stops_nothing() -> None:
    name = "poison"
    parts = parts_on(name)
    put(name, score("a", 0))
    for topic in (SCORES, TRAJECTORIES):
        LOGS[name].append(Outgoing(topic.full_name, "k", b"\xff\x00rubbish", (("run", runs.RUN),)))
    status = runs.status({"a": 1}, *LOGS[name].ranges())
    assert aggregate(status, parts).counters["dead_letters"] == 1
    assert load(status, parts).counters["dead_letters"] == 2
    assert load(status, parts, letters=False).stored
    letters = [
        CODEC.decode(DeadLetter, record.value)
        for record in LOGS[name].records[DEAD_LETTERS.full_name]
    ]
    assert [(it.topic, it.value, it.service) for it in letters] == [
        (SCORES.full_name, b"\xff\x00rubbish", "pipelines"),
        (TRAJECTORIES.full_name, b"\xff\x00rubbish", "pipelines"),
    ]
    assert published(name)[0].scenarios[0].passed == 1


@pytest.mark.req("D06")
def test_every_event_and_score_becomes_a_row_once() -> None:
    name = "rows"
    parts = parts_on(name, batch_rows=4)
    first, second = runs.events("a", 0), runs.events("a", 1)
    # Interleaved, and with a replay of the first session's events behind them.
    for pair in zip(first, second, strict=True):
        put(name, *pair)
    put(name, *[replace(e, at_ms=e.at_ms + 999) for e in first])
    put(name, score("a", 0, gate("safety", True), measure("turns", 1.0)), score("a", 1))
    status = runs.status({"a": 2}, *LOGS[name].ranges())
    result = load(status, parts)
    assert (result.stored, result.complete) == (True, True)
    rows = STORES[name].rows
    assert result.rows("rows_written") == sum(map(len, rows.values()))
    ids = [row["event_id"] for row in rows["trajectory_events"]]
    assert sorted(map(str, ids)) == sorted(e.event_id for e in (*first, *second))
    assert all(row["at_ms"] != e.at_ms + 999 for row in rows["trajectory_events"] for e in first)
    by_id = {row["event_id"]: row for row in rows["trajectory_events"]}
    call = by_id[first[2].event_id]
    assert (call["tool"], call["source"], call["injection"]) == ("find_order", "injected", "outage")
    assert (call["text"], call["latency_ms"], call["scenario_id"]) == ("busy", 3.0, "a")
    assert '"arguments":"{\\"id\\": 4}"' in str(call["payload_json"])
    session = next(row for row in rows["sessions"] if row["trial"] == 0)
    assert session["persona"] == "hurried"
    assert (session["input_tokens"], session["cost_usd"]) == (11, 0.25)
    assert (session["ended_at_ms"], session["injected_failures"]) == (runs.AT_MS + 50, 1)
    assert (session["valid"], session["passed"], session["end_reason"]) == (1, 1, "goal_met")
    assert [(r["dimension"], r["value"], r["passed"]) for r in rows["scores"]] == [
        ("safety", 1.0, 1),
        ("turns", 1.0, None),
    ]
    assert {r["dimension"] for r in rows["score_aggregates"]} == {"all_gates", "safety", "turns"}


@pytest.mark.req("D06")
def test_loading_again_writes_the_same_rows() -> None:
    name = "again"
    parts = parts_on(name)
    put(name, *runs.events("a", 0), score("a", 0, gate("safety", False), passed=False))
    status = runs.status({"a": 1}, *LOGS[name].ranges())
    load(status, parts)
    once = {table: sorted(map(repr, rows)) for table, rows in STORES[name].rows.items()}
    STORES[name].rows.clear()
    load(status, parts)
    assert {t: sorted(map(repr, rows)) for t, rows in STORES[name].rows.items()} == once


@pytest.mark.req("D05")
def test_a_store_that_is_away_holds_up_no_aggregates_and_loses_no_row() -> None:
    name = "away"
    parts = parts_on(name)
    put(name, *runs.events("a", 0), score("a", 0, gate("safety", True)))
    status = runs.status({"a": 1}, *LOGS[name].ranges())
    STORES[name].down = True
    outcome = run_pipeline(status, parts)
    assert (outcome.state, outcome.stored) == (RunState.AGGREGATED, False)
    assert (outcome.at_ms, outcome.reporter) == (status.at_ms, "pipelines")
    assert len(published(name)) == 1
    # One attempt a bundle: each would take the store's whole deadline.
    assert STORES[name].inserts <= 2
    missed = load(status, parts)
    assert (missed.stored, missed.complete) == (False, False)
    assert missed.rows("rows_unavailable") == 9
    STORES[name].down = False
    assert load(status, parts).rows("rows_written") == 9
    assert run_pipeline(status, parts).stored


@pytest.mark.req("D06")
def test_a_row_that_the_store_refuses_takes_no_other_with_it() -> None:
    name = "refused"
    parts = parts_on(name)
    put(name, *runs.events("a", 0), *runs.events("a", 1), score("a", 0), score("a", 1))
    status = runs.status({"a": 2}, *LOGS[name].ranges())
    STORES[name].refuse = lambda table, row: row.get("kind") == "tool_called"
    result = load(status, parts)
    assert (result.stored, result.complete) == (False, True)
    assert result.counters["rows_rejected.trajectory_events"] == 2
    assert len(STORES[name].rows["trajectory_events"]) == 8


@pytest.mark.req("D05")
def test_aggregation_needs_no_store_at_all() -> None:
    parts = replace(parts_on("storeless"), make_store=None)
    put("storeless", score("a", 0))
    status = runs.status({"a": 1}, *LOGS["storeless"].ranges())
    assert run_pipeline(status, parts).stored is False
    assert len(published("storeless")) == 1
    with pytest.raises(ValueError, match="WINDTUNNEL_STORE"):
        load(status, parts)
