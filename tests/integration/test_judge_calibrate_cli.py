"""`windtunnel judge calibrate` as people call it: table, report, exit codes, with and without a
model.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import scripted_model
from tests.support.scripted_model import KEY, Reply, Request, completion, verdict
from tests.support.trajectories import Session

pytestmark = [pytest.mark.req("S03", "S04", "V09"), pytest.mark.timeout(180)]

SCENARIO = {
    "id": "case",
    "name": "A case",
    "category": "happy",
    "expect": {"says": ["refunded"]},
    "goals": {"criteria": ["It is polite."]},
}


def line(name: str, said: str, **labels: str | int) -> str:
    events = [dataclasses.asdict(e) for e in Session().user("Refund 7").agent(said).end()]
    named = {label.replace("criteria_", "criteria."): value for label, value in labels.items()}
    return json.dumps({"id": name, "scenario": SCENARIO, "events": events, "labels": named})


def labelled(folder: Path, *lines: str) -> Path:
    file = folder / "people.jsonl"
    file.write_text("\n".join(lines))
    return file


def windtunnel(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if "WINDTUNNEL" not in name}
    return subprocess.run(
        [sys.executable, "-m", "services.cli", "judge", "calibrate", *map(str, arguments)],
        env={**kept, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_a_model(tmp_path: Path) -> None:
    file = labelled(
        tmp_path,
        line("a", "It was refunded.", task_completion="pass", criteria_1="pass"),
        line("b", "No.", task_completion="fail"),
        line("c", "No.", task_completion="pass"),
    )
    done = windtunnel(file, "--min-kappa", "0.6")
    assert done.returncode == 3, done.stderr
    assert "task_completion: 3 compared, 30 are needed" in done.stderr
    row = next(x for x in done.stdout.splitlines() if x.startswith("task_completion"))
    assert "0.67 (0.21 to 0.94)" in row
    assert "too few labels: 3 compared, 30 are needed" in row
    assert "criteria: unscored:" in done.stderr
    report = json.loads((tmp_path / "people.calibration.json").read_text())
    assert (report["sessions"], report["invalid"]) == (3, 0)
    assert [one["dimension"] for one in report["dimensions"]] == ["criteria", "task_completion"]
    assert [one["session"] for one in report["disagreements"]] == ["c"]


def test_with_a_model_that_is_asked_repeatedly(tmp_path: Path) -> None:
    def reply(request: Request) -> Reply:
        if request["response_format"]["json_schema"]["name"] == "ratings":
            return completion(None, refusal="No.")
        polite = "please" in request["messages"][1]["content"]
        return completion(verdict("pass" if polite else "fail"))

    file = labelled(
        tmp_path,
        line("a", "Wait please.", criteria_1="pass", tone=4),
        line("b", "No.", criteria_1="fail"),
        line("c", "Nope.", criteria_1="pass"),
    )
    with scripted_model.provider() as provider:
        provider.replies = [reply]
        done = windtunnel(
            file, "--model", "openai/judge-1", "--api-base", provider.url, "--samples", 3,
            "--out", tmp_path / "report.json", "--json", WINDTUNNEL_JUDGE_MODEL_API_KEY=KEY,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert "3 samples" in report["judge"]
    found = {one["dimension"]: one for one in report["dimensions"]}
    assert found["criteria"]["table"] == [[1, 1], [0, 1]]
    assert (found["tone"]["unscored"], found["tone"]["compared"]) == (1, 0)
    questions = [r for r in provider.requests if "seed" in r]
    assert len(questions) == 9
    assert KEY not in done.stdout + done.stderr


def test_a_file_that_is_wrong_is_told_with_its_place(tmp_path: Path) -> None:
    file = labelled(tmp_path, line("a", "x", safety="pass"), "{")
    done = windtunnel(file)
    assert done.returncode == 2
    assert "windtunnel: " in done.stderr
    assert "people.jsonl:2: (top): it is not one JSON object" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "people.calibration.json").exists()
