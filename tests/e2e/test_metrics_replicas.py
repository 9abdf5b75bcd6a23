"""D07: every process counts for itself, and summed up they say what is in the log."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from schemas.gate import GateStatus
from schemas.runs import RunRequest
from schemas.scores import SessionScored
from schemas.topics import (
    AGGREGATES,
    GATE_STATUS,
    RUN_PROGRESS,
    RUN_STATUS,
    SCORES,
    TRAJECTORIES,
)
from schemas.trajectory import TrajectoryEvent
from services.runtime import metrics as m
from services.runtime.metrics import CATALOGUE, Metric
from services.runtime.store import open_store
from tests.e2e.test_watching import small_suite
from tests.lanes import require_lane
from tests.support.running_stack import RunningStack, running_stack, wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("D07")]
RUN = "counted"
REPLICATED = ("dispatcher", "tool_proxy", "user_simulator", "judge")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """Two of each service that keeps sessions, after a run."""
    replicas = [word for name in REPLICATED for word in ("--replicas", f"{name}=2")]
    with running_stack(tmp_path_factory.mktemp("replicas"), *replicas) as running:
        suite = running.publish_suite(small_suite(tmp_path_factory.mktemp("suite"))).suite_hash
        running.start_agent("good")
        request = RunRequest(run_id=RUN, suite=suite, agent_id="good", baseline="none", trials=4)
        running.run(request)
        running.verdict(RUN)
        wait_until(lambda: (s := running.status(RUN)) and s.stored, 120, "rows in the store")
        yield running


def samples(url: str) -> list[Sample]:
    """What a process shows."""
    text = httpx.get(f"{url}/metrics").text
    return [one for family in text_string_to_metric_families(text) for one in family.samples]


def everything(stack: RunningStack) -> list[Sample]:
    """What all processes show."""
    return [one for url in stack.endpoints.values() for one in samples(url)]


def summed(
    shown: list[Sample], metric: Metric, labels: tuple[str, ...], suffix: str = ""
) -> Counter[str]:
    """A metric's values over all processes, by some of its labels, what is not 0."""
    found: Counter[str] = Counter()
    for sample in shown:
        if sample.name == metric.name + suffix and sample.value:
            found["/".join(sample.labels[name] for name in labels)] += round(sample.value)
    return found


def test_sums_over_processes_are_what_is_in_the_log(stack: RunningStack) -> None:
    events = stack.records(TRAJECTORIES, TrajectoryEvent)
    category = {
        event.session_id: event.session_started.category
        for event in events
        if event.session_started is not None
    }
    ended = Counter(
        f"{category[event.session_id]}/{event.session_ended.reason}"
        for event in events
        if event.session_ended is not None
    )
    assert ended.total() == len(category) == 12
    calls = [event.tool_called for event in events if event.tool_called is not None]
    scores = stack.records(SCORES, SessionScored)
    topics = (TRAJECTORIES, SCORES, RUN_PROGRESS, RUN_STATUS, AGGREGATES, GATE_STATUS)
    logged: dict[tuple[Metric, tuple[str, ...], str], Counter[str]] = {
        (m.SESSIONS_STARTED, ("category",), ""): Counter(category.values()),
        (m.SESSIONS_ENDED, ("category", "reason"), ""): ended,
        (m.TURN_SECONDS, ("outcome",), "_count"): Counter(
            event.agent_turn.outcome for event in events if event.agent_turn is not None
        ),
        (m.USER_TURN_SECONDS, (), "_count"): Counter(
            "" for event in events if event.user_turn is not None or event.user_acted is not None
        ),
        (m.TOOL_CALLS, ("source", "injection"), ""): Counter(
            f"{one.source}/{one.injection.kind if one.injection else ''}" for one in calls
        ),
        (m.TOOL_OVERHEAD, ("source",), "_count"): Counter(one.source for one in calls),
        (m.SCORES, ("dimension", "status"), ""): Counter(
            f"{one.dimension.partition('.')[0]}/{one.status}"
            for score in scores
            for one in score.dimensions
        ),
        (m.VERDICTS, ("verdict",), ""): Counter(
            one.verdict for one in stack.records(GATE_STATUS, GateStatus)
        ),
        (m.EVENTS_PRODUCED, ("topic",), ""): Counter(
            {topic.name: sum(1 for _ in stack.read(topic)) for topic in topics}
        ),
    }

    def different() -> dict[str, object]:
        shown = everything(stack)
        sums = {key: summed(shown, *key) for key in logged}
        return {key[0].name: (sums[key], logged[key]) for key in logged if sums[key] != logged[key]}

    # What was acknowledged last may be counted a moment later.
    wait_until(lambda: not different(), 5, "the sums", different)


@pytest.mark.parametrize("service", ["dispatcher", "user_simulator", "judge"])
def test_both_replicas_had_their_share(stack: RunningStack, service: str) -> None:
    shares = [
        sum(one.value for one in samples(url) if one.name == f"{m.ACTION_SECONDS.name}_count")
        for name, url in stack.endpoints.items()
        if name.startswith(service)
    ]
    assert len(shares) == 2
    assert all(shares)


def test_rows_that_beams_workers_wrote_are_counted(stack: RunningStack) -> None:
    store = open_store(stack.environ["WINDTUNNEL_STORE"])
    try:
        written = summed(everything(stack), m.PIPELINE_ROWS, ("table",))
        for table in ("trajectory_events", "sessions", "scores", "score_aggregates"):
            rows = store.query(f"SELECT count() FROM {table} FINAL").rows
            assert written[table] == rows[0][0] > 0, table
    finally:
        store.close()


def test_expositions_are_as_prometheus_wants_them_and_as_the_catalogue_says(
    stack: RunningStack,
) -> None:
    promtool = shutil.which("promtool")
    require_lane("prometheus", promtool is not None, "none here: `make prometheus` installs it")
    names = {"pipelines_runner": "pipelines"}
    for process, url in stack.endpoints.items():
        service = names.get(process.partition("-")[0], process.partition("-")[0])
        text = httpx.get(f"{url}/metrics").text
        checked = subprocess.run(
            [str(promtool), "check", "metrics"], input=text, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert (checked.returncode, checked.stderr) == (0, ""), f"{process}: {checked.stderr}"
        found = samples(url)
        # What is done is done for many sessions and has few names.
        done = {(one.labels["action"],) for one in found if "action" in one.labels}
        assert done == set(m.ACTION_SECONDS.by.get(service, ())), process
        ours = {one.name for one in found if one.name.startswith("windtunnel_")}
        shown = {name.removesuffix("_count") for name in ours}
        shown = {name for name in shown if not name.endswith(("_bucket", "_sum"))}
        known = {metric.name for metric in CATALOGUE if service in metric.by}
        assert shown <= known, process
        # No model is configured, so there is none to count tokens of.
        assert known - shown <= {m.MODEL_TOKENS.name, m.MODEL_COST.name}, process
