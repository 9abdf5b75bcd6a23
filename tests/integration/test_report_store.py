"""`windtunnel report` and `windtunnel view` over a store with two runs in it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from pipelines.rows import (
    Logged,
    event_rows,
    events_in_order,
    run_row,
    score_rows,
    session_row,
    verdict_row,
)
from schemas.gate import DiffEntry, GateStatus, Reason, Stat
from schemas.scores import Example
from services.cli.app import app
from services.cli.errors import CliError
from services.cli.report.reading import RunReader
from services.cli.report.serving import viewer
from services.cli.report.writing import write_report
from services.runtime.store import Store, open_store
from services.runtime.store.migrations import migrate
from tests.contract.processes import Process
from tests.support import scored_runs as runs
from tests.support.live import ROOT
from tests.support.running_stack import free_port

pytestmark = [pytest.mark.timeout(120), pytest.mark.req("D07")]
SCENARIOS = {"a": 3, "b": 3}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory, port = tmp_path_factory.mktemp("store"), free_port()
    base = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        try:
            return httpx.get(f"{base}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False

    command = [sys.executable, "-m", "services.embedded_store"]
    command += ["--data", str(directory / "data"), "--port", str(port)]
    process = Process(command, directory / "out.log", ready, ROOT)
    process.start()
    try:
        store = open_store(f"embedded+{base}/default")
        migrate(store)
        fill(store)
        store.close()
        yield f"embedded+{base}/default"
    finally:
        process.kill()


@pytest.fixture
def reader(url: str) -> Iterator[RunReader]:
    store = open_store(url)
    yield RunReader(store)
    store.close()


def insert(store: Store, table: str, rows: list[dict[str, object]]) -> None:
    store.insert(table, list(rows[0]), [list(row.values()) for row in rows])


def fill(store: Store) -> None:
    """A baseline in which all is well, and a run in which one session of `a` is unsafe."""
    for name, at in (("before", 0), ("now", 60_000)):
        status = runs.status(SCENARIOS)
        insert(store, "runs", [run_row(replace(status, run_id=name, requested_at_ms=at))])
        for scenario, trials in SCENARIOS.items():
            for trial in range(trials):
                fill_session(store, name, scenario, trial)
    example = Example(session_id="now/a/1", trial=1, reason="because", citations=("a1",))
    insert(
        store,
        "verdicts",
        [
            verdict_row(
                GateStatus(
                    run_id="now",
                    verdict="FAIL",
                    baseline_run_id="before",
                    reasons=(Reason(code="safety_regression", effect="fail", message="it fell"),),
                    diff=(
                        DiffEntry(
                            scenario_id="a", category="happy", dimension="safety", kind="gate",
                            change="regressed", hard=True, baseline=Stat(sessions=3, value=1.0),
                            candidate=Stat(sessions=3, value=2 / 3), examples=(example,),
                        ),
                    ),
                )
            )
        ],
    )  # fmt: skip


def fill_session(store: Store, run: str, scenario: str, trial: int) -> None:
    session = f"{run}/{scenario}/{trial}"
    events = [
        replace(
            event,
            run_id=run,
            session_id=session,
            event_id=f"{session}:{event.step}",
        )
        for event in runs.events(scenario, trial)
    ]
    passed = (run, scenario, trial) != ("now", "a", 1)
    scored = replace(
        runs.score(scenario, trial, runs.gate("safety", passed), passed=passed),
        run_id=run,
        session_id=session,
    )
    logged = events_in_order([Logged(0, at, event) for at, event in enumerate(events)])
    insert(store, "trajectory_events", list(event_rows(logged, scenario)))
    row = session_row(events, scored, 1)
    assert row is not None
    insert(store, "sessions", [row])
    insert(store, "scores", list(score_rows(scored, 1)))


def unpacked(page: str, name: str) -> Any:
    packed = re.search(rf'id="{re.escape(name)}">([^<]*)</script>', page)
    assert packed is not None, name
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


def test_the_page_has_the_run_its_baseline_and_every_event_in_order(
    reader: RunReader, tmp_path: Path
) -> None:
    heard: list[tuple[int, int]] = []
    path = tmp_path / "deep" / "now.html"
    assert write_report(reader, "now", path, progress=lambda *done: heard.append(done)) == 0
    assert heard[-1] == (12, 12)
    page = path.read_text()
    index = unpacked(page, "index")
    assert (index["run"]["run_id"], index["baseline"]["run_id"]) == ("now", "before")
    assert index["verdict"]["verdict"] == "FAIL"
    assert index["verdict"]["reasons"] == ["fail: safety_regression: it fell"]
    assert index["verdict"]["diff"][0]["examples"][0]["session_id"] == "now/a/1"
    assert [(s["scenario_id"], s["run"]["passed"], s["before"]["passed"])
            for s in index["scenarios"]] == [("a", 2, 3), ("b", 3, 3)]  # fmt: skip
    # What somebody has to look at comes first.
    assert index["sessions"][0]["session_id"] == "now/a/1"
    assert sum(one["baseline"] for one in index["sessions"]) == 6
    detail = unpacked(page, "detail-now/a/1")
    steps = [event["step"] for event in detail["events"]]
    assert steps == ["start", "u1", "t1", "a1", "end"]
    assert detail["events"][2]["body"]["injection"]["kind"] == "outage"
    assert detail["scores"][0]["citations"] == ["a1"]
    assert list(tmp_path.rglob("*.part")) == []


def test_of_many_sessions_the_worst_are_in_the_file(reader: RunReader, tmp_path: Path) -> None:
    assert write_report(reader, "now", tmp_path / "few.html", limit=2) == 8
    index = unpacked((tmp_path / "few.html").read_text(), "index")
    own = [one["session_id"] for one in index["sessions"] if not one["baseline"]]
    assert own[0] == "now/a/1"
    assert len(own) == 2
    # The counts are of all of them.
    assert index["scenarios"][0]["run"]["sessions"] == 3


def test_a_file_of_before_stays_when_writing_fails(reader: RunReader, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text("the one before")

    def fails(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_report(reader, "now", path, progress=fails)
    with pytest.raises(CliError, match="has no run nowhere"):
        write_report(reader, "nowhere", path)
    assert path.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_command_writes_the_file_and_names_what_is_wrong(url: str, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    runner = CliRunner()
    done = runner.invoke(app, ["report", "now", "--store", url, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"run_id": "now", "file": str(out), "left_out": 0}
    for wrong, message in (
        (["report", "nowhere", "--store", url, "--out", str(out)], "has no run nowhere"),
        (["report", "now", "--store", url, "--out", str(tmp_path)], "is a folder"),
        (["view", "--store", url, "--host", "0.0.0.0"], "listens on this machine only"),
    ):
        failed = runner.invoke(app, wrong)
        assert failed.exit_code == 2
        assert message in failed.stderr


def test_the_viewer_serves_runs_and_sessions_under_its_own_names_only(reader: RunReader) -> None:
    async def ask() -> None:
        transport = httpx.ASGITransport(app=viewer(reader))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            listed = unpacked((await client.get("/")).text, "index")
            assert [run["run_id"] for run in listed["runs"]] == ["now", "before"]
            assert listed["runs"][0]["verdict"]["verdict"] == "FAIL"
            page = await client.get("/run", params={"run": "now"})
            assert unpacked(page.text, "index")["live"] is True
            assert "detail-" not in page.text.replace("`detail-", "")
            asked = {"run": "now", "session": "now/a/1"}
            detail = (await client.get("/api/session", params=asked)).json()
            assert [event["step"] for event in detail["events"]][:2] == ["start", "u1"]
            for path in ("/run?run=nowhere", "/api/session?run=now&session=none", "/run"):
                assert (await client.get(path)).status_code == 404, path
            elsewhere = await client.get("/", headers={"Host": "rebound.example"})
            assert elsewhere.status_code == 400

    asyncio.run(ask())


def test_a_store_that_is_gone_is_told(tmp_path: Path) -> None:
    url = f"embedded+http://127.0.0.1:{free_port()}/default"
    with_short_deadline = RunReader(open_store(url, deadline_s=0.2))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=viewer(with_short_deadline))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/")

    answer = asyncio.run(ask())
    assert answer.status_code == 503
    assert "the store failed" in answer.text
