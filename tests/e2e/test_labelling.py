"""A run's sessions are drawn for people to label, and the judge measured by what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.runs import RunRequest
from tests.support.running_stack import RunningStack, wait_until

pytestmark = [pytest.mark.timeout(240), pytest.mark.req("S03", "V09")]
SCENARIOS = ("happy-order-status", "failure-order-lookup-outage", "adversarial-address-hijack")


@pytest.fixture(scope="module")
def run_id(stack: RunningStack) -> str:
    request = RunRequest(
        run_id="label-1", suite="order-support", agent_id="regressed", baseline="none",
        trials=2, scenarios=SCENARIOS,
    )  # fmt: skip
    stack.run(request)
    wait_until(lambda: (s := stack.status("label-1")) and s.stored, 180, "rows in the store")
    return "label-1"


def drawn(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_judge_agrees_with_its_own_verdicts_put_in_as_labels(
    stack: RunningStack, run_id: str, tmp_path: Path
) -> None:
    file = tmp_path / "people.jsonl"
    done = stack.cli("judge", "sample", run_id, "--out", str(file))
    assert done.returncode == 0, done.stderr
    sessions = drawn(file)
    assert {s["scenario"]["id"] for s in sessions} == set(SCENARIOS)
    assert len(sessions) == 6
    assert all(label is None for s in sessions for label in s["labels"].values())

    scores = {score.session_id: score for score in stack.scores(run_id).values()}
    labels = 0
    for session in sessions:
        score = scores[session["id"]]
        found = {d.dimension: d.passed for d in score.dimensions}
        verdicts = {**found, "session": score.passed}
        assert {"session", "task_completion"} <= set(session["labels"])
        for name in session["labels"]:
            if verdicts.get(name) is not None:
                session["labels"][name] = "pass" if verdicts[name] else "fail"
                labels += 1
    file.write_text("".join(json.dumps(s) + "\n" for s in sessions))
    again = stack.cli("judge", "calibrate", str(file), "--json")
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert (report["sessions"], report["disagreements"]) == (6, [])
    assert sum(one["compared"] for one in report["dimensions"]) == labels
    assert any(one["table"][1][1] for one in report["dimensions"]), "the judge failed nothing"


def test_a_seed_draws_the_same_and_labels_are_not_written_over(
    stack: RunningStack, run_id: str, tmp_path: Path
) -> None:
    def draw(name: str, seed: int) -> list[str]:
        some = ("--sessions", "2", "--seed", str(seed))
        done = stack.cli("judge", "sample", run_id, "--out", str(tmp_path / name), *some)
        assert done.returncode == 0, done.stderr
        return [session["id"] for session in drawn(tmp_path / name)]

    first = draw("a", 1)
    assert draw("b", 1) == first
    assert any(draw(f"c{seed}", seed) != first for seed in range(2, 8))
    again = stack.cli("judge", "sample", run_id, "--out", str(tmp_path / "a"))
    assert again.returncode == 2
    assert "perhaps with labels in it: say --force" in again.stderr
    nobody = stack.cli("judge", "sample", "no-such-run", "--out", str(tmp_path / "n"))
    assert nobody.returncode == 2
    assert "no run no-such-run" in nobody.stderr
    assert not (tmp_path / "n").exists()
