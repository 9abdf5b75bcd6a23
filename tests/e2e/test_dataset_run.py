"""A dataset, imported, published and run; and the doctor's word on the stack that ran it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from schemas.runs import RunRequest
from tests.support.running_stack import AGENT_TOKEN, RunningStack, read_suite

pytestmark = pytest.mark.timeout(240)

ROWS = [
    {
        "user_instruction": "Where is ORD-1002?",
        "initial_state": json.dumps({"customer_id": "cus_1001"}),
        "behavior_instructions": "Be brief;\nsay nothing twice.",
    },
    {
        "user_instruction": "=Can you tell {me} when ORD-1001 arrives",
        "initial_state": "",
        "behavior_instructions": "",
    },
]


@pytest.mark.req("R23")
def test_a_dataset_runs(stack: RunningStack, tmp_path: Path) -> None:
    path, folder = tmp_path / "orders.csv", tmp_path / "orders"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]), delimiter=";")
        writer.writeheader()
        writer.writerows(ROWS)
    made = stack.cli(
        "scenarios", "import-csv", str(path), "--out", str(folder), "--owner", "team",
        "--world", "order-support",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    published = stack.cli("scenarios", "publish", str(folder))
    assert published.returncode == 0, published.stderr
    status = stack.run(
        RunRequest(run_id="dataset", suite="orders", agent_id="good", baseline="none", seed=3)
    )
    assert (status.state, status.errors, status.ended) == ("aggregated", (), 2)
    assert len(read_suite(folder).scenarios) == 2
    trajectories = stack.trajectories("dataset")
    by_row = {int(name.rpartition("-")[2]): events for (name, _), events in trajectories.items()}
    for number, row in enumerate(ROWS, 1):
        events = by_row[number]
        started = next(e.session_started for e in events if e.session_started)
        assert json.loads(started.task_input) == json.loads(row["initial_state"] or "{}")
        first = next(e.user_turn for e in events if e.user_turn)
        assert row["user_instruction"] in first.text
        assert any(e.agent_turn and e.agent_turn.outcome == "ok" for e in events)
        assert next(e for e in events if e.session_ended).session_ended is not None


@pytest.mark.req("R24", "R21")
def test_the_doctor_finds_the_stack_well(stack: RunningStack) -> None:
    said = stack.cli("doctor", "--dir", str(stack.directory), "--json")
    found = {check["check"]: check for check in json.loads(said.stdout)["checks"]}
    for name in ("broker", "topics", "store", "services"):
        assert found[name]["outcome"] == "ok", found[name]
    assert said.returncode == 0
    stack.environ["THE_AGENT_AUTH"] = f"Bearer {AGENT_TOKEN}"
    said = stack.cli(
        "doctor", "--dir", str(stack.directory), "--url", stack.agent_urls["good"], "--json",
        "--auth-header", "Authorization", "--auth-value-ref", "env:THE_AGENT_AUTH",
    )  # fmt: skip
    found = {check["check"]: check for check in json.loads(said.stdout)["checks"]}
    assert said.returncode == 0, found
    for name in ("ping", "ping_wrong_auth", "ping_no_auth", "proxy"):
        assert found[name]["outcome"] == "ok", found[name]
    assert AGENT_TOKEN not in said.stdout + said.stderr
