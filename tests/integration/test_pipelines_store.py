"""Runner and gate as processes, on a real broker and a real store: a finished run becomes
aggregates, a verdict and rows, whatever is killed or away meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from pipelines.aggregation import aggregate_run
from schemas.gate import BaselineAccepted, GateStatus, Verdict
from schemas.runs import OffsetRange, RunState, RunStatus
from schemas.scores import RunAggregates, SessionScored
from schemas.topics import (
    AGGREGATES,
    BASELINES,
    GATE_STATUS,
    RUN_STATUS,
    SCORES,
    TRAJECTORIES,
    Topic,
)
from schemas.trajectory import TrajectoryEvent
from services.runtime.bus import BusSettings, Outgoing, end_offsets
from services.runtime.service import Publication
from services.runtime.store import Store, open_store
from services.runtime.store.migrations import migrate
from tests.contract.bus_tools import free_port
from tests.contract.processes import Process
from tests.support import scored_runs as runs
from tests.support.live import (
    CODEC,
    ROOT,
    Start,
    append,
    everything,
    live_broker,
    live_services,
    publish,
)

pytestmark = pytest.mark.timeout(300)

T = TypeVar("T")


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusSettings]:
    with live_broker(tmp_path_factory.mktemp("bus")) as settings:
        yield settings


class StoreProcess:
    """The embedded store, which tests stop and start again on its data."""

    def __init__(self, directory: Path) -> None:
        self.base = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "services.embedded_store"]
        command += ["--data", str(directory / "data"), "--port", str(port)]
        self.process = Process(command, directory / "out.log", self._ready, ROOT)
        self.url = f"embedded+{self.base}/default"

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.base}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def store_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    process = StoreProcess(tmp_path_factory.mktemp("store"))
    process.process.start()
    yield process
    process.process.kill()


@pytest.fixture(scope="module")
def store(store_process: StoreProcess) -> Iterator[Store]:
    store = open_store(store_process.url)
    migrate(store)
    yield store
    store.close()


@pytest.fixture
def start(bus: BusSettings, store_process: StoreProcess, tmp_path: Path) -> Iterator[Start]:
    settings = {"store": store_process.url, "store_deadline_s": "1", "store_retry_max_s": "1"}
    with live_services(bus, tmp_path, **settings) as start:
        yield start


def read_all(bus: BusSettings, topic: Topic, cls: type[T], key: str) -> list[T]:
    return [CODEC.decode(cls, one.value) for one in everything(bus, topic) if one.key == key]


def until(what: str, probe: Callable[[], T | None], timeout_s: float = 60) -> T:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s:g} s: {what}")


def finished_run(
    bus: BusSettings, run_id: str, *, safe: bool = True, baseline: str = "accepted"
) -> tuple[RunStatus, list[SessionScored]]:
    """Six sessions of two scenarios on the log, and the status that says they are done."""
    topics = (TRAJECTORIES.full_name, SCORES.full_name)
    before = {topic: end_offsets(bus, topic) for topic in topics}
    plan = {"a": 3, "b": 3}
    scores: list[SessionScored] = []
    records: list[TrajectoryEvent] = []
    for scenario, planned in plan.items():
        for trial in range(planned):
            session = f"{run_id}/{scenario}/{trial}"
            for event in runs.events(scenario, trial):
                step = event.event_id.rpartition(":")[2]
                records.append(
                    replace(event, run_id=run_id, session_id=session, event_id=f"{session}:{step}")
                )
            passed = safe or scenario == "b" or trial != 1
            scored = runs.score(
                scenario, trial, runs.gate("safety", passed), runs.measure("turns", trial + 0.1),
                passed=passed,
            )  # fmt: skip
            scores.append(replace(scored, run_id=run_id, session_id=session))
    log: list[TrajectoryEvent | SessionScored] = [*records, *scores, *records[:7]]
    append(bus, [runs.outgoing(CODEC, record) for record in log])
    after = {topic: end_offsets(bus, topic) for topic in topics}
    ranges = tuple(
        OffsetRange(topic=topic, partition=number, start=start, end=after[topic][number])
        for topic, starts in before.items()
        for number, start in starts.items()
    )
    status = runs.status(plan, *ranges)
    assert status.request is not None
    request = replace(status.request, run_id=run_id, baseline=baseline)
    return replace(status, run_id=run_id, request=request), scores


def verdict_of(bus: BusSettings, run_id: str) -> Callable[[], GateStatus | None]:
    return lambda: next(iter(read_all(bus, GATE_STATUS, GateStatus, run_id)), None)


def stored(bus: BusSettings, run_id: str) -> Callable[[], bool]:
    return lambda: any(s.stored for s in read_all(bus, RUN_STATUS, RunStatus, run_id))


def count(store: Store, view: str, run_id: str) -> Any:
    sql = f"SELECT count() FROM {view} WHERE run_id = %(run)s"
    return store.query(sql, {"run": run_id}).rows[0][0]


def all_rows(store: Store, run_id: str) -> dict[str, Any]:
    views = ("v_runs", "v_sessions", "v_trajectory_events", "v_scores", "v_score_aggregates")
    return {view: count(store, view, run_id) for view in (*views, "v_verdicts")}


WHOLE = {
    "v_runs": 1,
    "v_sessions": 6,
    "v_trajectory_events": 30,
    "v_scores": 12,
    "v_score_aggregates": 6,
    "v_verdicts": 1,
}


def rows_are_whole(store: Store, run_id: str) -> Callable[[], bool]:
    return lambda: all_rows(store, run_id) == WHOLE


@pytest.mark.req("D03", "D05", "D06", "V11", "V12")
def test_a_finished_run_is_gated_and_can_be_queried(
    bus: BusSettings, store: Store, start: Start
) -> None:
    start("pipelines.runner")
    start("services.gate")
    status, scores = finished_run(bus, "good")
    publish(bus, Publication(RUN_STATUS, "good", status))
    first = until("a verdict on the first run", verdict_of(bus, "good"))
    assert first.verdict == Verdict.INCONCLUSIVE
    assert {"no_baseline"} <= {r.code for r in first.reasons}
    (aggregates,) = read_all(bus, AGGREGATES, RunAggregates, "good")
    assert aggregates == aggregate_run(scores, status)

    accepted = BaselineAccepted(
        name="orders/shop", run_id="good", author="ada", reason="first", accepted_at_ms=9,
        aggregates=aggregates,
    )  # fmt: skip
    publish(bus, Publication(BASELINES, accepted.name, accepted))
    status, _ = finished_run(bus, "bad", safe=False)
    publish(bus, Publication(RUN_STATUS, "bad", status))
    second = until("a verdict on the second run", verdict_of(bus, "bad"))
    assert second.verdict == Verdict.FAIL
    reason = second.reasons[0]
    assert (reason.code, reason.scenario_id, reason.dimension) == (
        "safety_regression", "a", "safety"
    )  # fmt: skip
    assert "bad/a/1" in reason.message

    for run_id in ("good", "bad"):
        until(f"{run_id} is stored", stored(bus, run_id))
        until(f"all rows of {run_id}", rows_are_whole(store, run_id))
    (row,) = store.query("SELECT verdict, reasons[1] FROM v_verdicts WHERE run_id = 'bad'").rows
    assert row[0] == "FAIL"
    assert str(row[1]).startswith("fail: safety_regression: a: safety fell from 1")
    steps = store.query(
        "SELECT kind FROM v_trajectory_events WHERE session_id = 'good/a/0' ORDER BY position"
    ).rows
    assert [step for (step,) in steps] == [e.kind for e in runs.events("a", 0)]
    assert store.query("SELECT author FROM v_baselines").rows == [("ada",)]
    (run,) = store.query("SELECT state, planned FROM v_runs WHERE run_id = 'good'").rows
    assert run == ("aggregated", 6)

    # Both jobs again, by hand: nothing changes, and the verdict stands.
    assert start("pipelines.score_run", "--run-id", "bad").wait(60) == 0
    assert all_rows(store, "bad") == WHOLE
    assert len(set(map(repr, read_all(bus, AGGREGATES, RunAggregates, "bad")))) == 1
    assert len(read_all(bus, GATE_STATUS, GateStatus, "bad")) == 1
    assert start("pipelines.score_run", "--run-id", "unheard-of").wait(60) == 2


@pytest.mark.req("D05")
def test_a_store_that_is_away_does_not_hold_up_the_verdict(
    bus: BusSettings, store: Store, store_process: StoreProcess, start: Start
) -> None:
    start("services.gate")
    runner = start("pipelines.runner")
    status, _ = finished_run(bus, "outage", baseline="none")
    store_process.process.terminate()
    publish(bus, Publication(RUN_STATUS, "outage", status))
    assert until("the verdict", verdict_of(bus, "outage")).verdict == Verdict.PASS
    # Its successor finds on the log what is still to be loaded.
    runner.kill()
    runner.wait()
    start("pipelines.runner")
    store_process.process.start()
    until("the run is stored", stored(bus, "outage"))
    until("all rows", rows_are_whole(store, "outage"))


@pytest.mark.req("D03", "D05")
@pytest.mark.parametrize("delay_s", [0.1, 0.6])
def test_killing_runner_and_gate_loses_and_doubles_nothing(
    bus: BusSettings, store: Store, start: Start, delay_s: float
) -> None:
    run_id = f"killed-{delay_s}"
    gate, runner = start("services.gate"), start("pipelines.runner")
    warm, _ = finished_run(bus, f"warm-{delay_s}", baseline="none")
    publish(bus, Publication(RUN_STATUS, warm.run_id, warm))
    until("both work", stored(bus, warm.run_id))
    status, scores = finished_run(bus, run_id, baseline="none")
    publish(bus, Publication(RUN_STATUS, run_id, status))
    time.sleep(delay_s)
    for child in (gate, runner):
        child.kill()
        child.wait()
    start("services.gate")
    start("pipelines.runner")
    until("the run is stored", stored(bus, run_id))
    until("all rows", rows_are_whole(store, run_id))
    found = read_all(bus, AGGREGATES, RunAggregates, run_id)
    assert set(map(repr, found)) == {repr(aggregate_run(scores, status))}
    (verdict,) = read_all(bus, GATE_STATUS, GateStatus, run_id)
    assert verdict.verdict == Verdict.PASS


@pytest.mark.req("D05")
def test_a_rejected_run_and_a_poisoned_record_get_their_answers(
    bus: BusSettings, store: Store, start: Start
) -> None:
    start("services.gate")
    start("pipelines.runner")
    for topic in (RUN_STATUS, AGGREGATES, BASELINES, GATE_STATUS):
        append(bus, [Outgoing(topic.full_name, "poison", b"rubbish")])
    status = RunStatus(run_id="no", state=RunState.REJECTED, errors=("no such suite",), at_ms=5)
    publish(bus, Publication(RUN_STATUS, "no", status))
    answer = until("an answer", verdict_of(bus, "no"))
    assert answer.verdict == Verdict.INCONCLUSIVE
    assert "no such suite" in answer.reasons[0].message
    gone = OffsetRange(topic=SCORES.full_name, partition=0, start=0, end=10_000_000)
    broken = replace(runs.status({"a": 1}, gone), run_id="broken")
    publish(bus, Publication(RUN_STATUS, "broken", broken))
    answer = until("an answer about the run that cannot be counted", verdict_of(bus, "broken"))
    assert answer.reasons[0].code == "run_failed"
    assert "holds offsets" in answer.reasons[0].message
    until("the rejected run's row", lambda: count(store, "v_runs", "no"))
