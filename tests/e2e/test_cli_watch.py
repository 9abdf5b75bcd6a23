"""D07: a real run is watched on a terminal and in a pipe, and its stack from outside."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from schemas.runs import RunRequest
from schemas.trajectory import EndReason
from services.cli.errors import VERDICT_EXIT
from services.cli.stack.services import SERVICES
from tests.support.running_stack import ROOT, RunningStack
from tests.support.terminal import terminal

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("D07")]
FEW = (
    "adversarial-address-hijack", "happy-order-status", "failure-order-lookup-outage",
    "long-address-then-delivery",
)  # fmt: skip


def arguments(run_id: str) -> list[str]:
    few = [part for name in FEW for part in ("--scenario", name)]
    return [
        "run", "order-support", "--agent", "regressed", "--baseline", "none", "--run-id", run_id,
        "--trials", "2", "--watch", *few,
    ]  # fmt: skip


def test_in_a_pipe_a_run_is_told_in_lines_and_ends_with_its_verdict(stack: RunningStack) -> None:
    done = stack.cli(*arguments("watch-piped"), timeout_s=200)
    verdict = stack.verdict("watch-piped")
    assert done.returncode == VERDICT_EXIT[verdict.verdict]
    assert done.stdout.startswith(f"{verdict.verdict}  watch-piped, ")
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stderr.splitlines()
    assert lines[0] == "requested watch-piped"
    failed = [line for line in lines if line.startswith("failed: ")]
    scores = stack.scores("watch-piped").values()
    sessions = {score.session_id for score in scores if score.valid and score.passed is False}
    assert sessions, "the regressed build fails some"
    told = [re.match(r"failed: (\S+) session (\w+): (\w+): .", line) for line in failed]
    assert {match[2] for match in told if match} == sessions
    progress = [line for line in lines if line.startswith("watch-piped running: ")]
    assert progress
    assert all(" active" in line and " left" in line for line in progress)
    assert len(progress) < 40


def test_on_a_terminal_a_panel_is_replaced_by_the_verdict(
    stack: RunningStack, tmp_path: Path
) -> None:
    command = [
        sys.executable, "-m", "services.cli", *arguments("watch-shown"), "--dir",
        str(stack.directory),
    ]  # fmt: skip
    environ = {**stack.environ, "PYTHONPATH": str(ROOT)}
    with terminal(command, environ, tmp_path, columns=100, lines=30) as shown:
        shown.wait_for("Latest failures", 120)
        shown.wait_for(" sessions/s", 60)
        code = shown.end(120)
        assert shown.is_restored
        raw, text = shown.raw, shown.text
    verdict = stack.verdict("watch-shown")
    assert code == VERDICT_EXIT[verdict.verdict]
    for word in ("adversarial", "failure-injection", "happy", "long-horizon", "time left unknown"):
        assert word in text
    assert f"Ended: {EndReason.GOAL_MET}" in text
    # The panel's lines are erased, and what follows is the verdict.
    after = raw[raw.rindex("\x1b[2K") :]
    assert f"{verdict.verdict}  watch-shown, " in after
    assert "Latest failures" not in after


def test_top_shows_the_stacks_runs_and_services(stack: RunningStack, tmp_path: Path) -> None:
    directory = ("--dir", str(stack.directory))
    done = stack.cli("top", "--once", "--json", *directory)
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    services = {one["service"]: one for one in document["services"]}
    assert set(services) == {"embedded_store", *(kind.name for kind in SERVICES)}
    assert all(one["ready"] == one["replicas"] == 1 for one in services.values())
    for name, what in (("dispatcher", "waiting"), ("dispatcher", "lag"), ("judge", "sessions")):
        assert services[name][what] is not None, f"{name}: {what}"
    ended = [run for run in document["runs"] if run["run_id"] == "watch-shown"]
    assert all(run["verdict"] and run["active"] == 0 for run in ended)

    command = [sys.executable, "-m", "services.cli", "top", "--interval", "0.3", *directory]
    environ = {**stack.environ, "PYTHONPATH": str(ROOT)}
    with terminal(command, environ, tmp_path, columns=80, lines=30) as shown:
        shown.wait_for("tool_proxy", drawn=True)
        stack.request(
            RunRequest(
                run_id="watch-top", suite="order-support", agent_id="good", baseline="none",
                scenarios=FEW, trials=2,
            )
        )  # fmt: skip
        shown.wait_for("watch-top", drawn=True)
        shown.wait_for("8/8", 60, drawn=True)
        shown.resize(200, 12)
        shown.wait_for("services: 8/8 ready", drawn=True)
        assert shown.interrupt() == 130
        assert shown.is_restored
