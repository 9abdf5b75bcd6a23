"""`windtunnel doctor` without arguments: this machine, and the stack on it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.topics import ALL
from services.cli.app import app
from services.cli.doctor import environment
from services.cli.stack.broker import EmbeddedBroker
from services.cli.stack.ports import Ports
from services.cli.topics import create_all
from services.runtime.bus import BusSettings
from tests.lanes import require_lane

pytestmark = pytest.mark.req("R24")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("BOOTSTRAP", "STORE", "CONFIG", "BUS_OPTIONS"):
        monkeypatch.delenv(f"WINDTUNNEL_{name}", raising=False)


def checks(*arguments: str) -> dict[str, dict[str, Any]]:
    result = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert "Traceback" not in result.output
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if document["ok"] else 1)
    return {check["check"]: check for check in document["checks"]}


def outcomes(found: dict[str, dict[str, Any]], *names: str) -> tuple[str, ...]:
    return tuple(found[name]["outcome"] for name in names)


def test_without_a_stack_what_needs_one_is_skipped() -> None:
    found = checks()
    assert list(found) == [
        "python", "disk", "broker", "topics", "store", "services", "bubblewrap", "kafka",
    ]  # fmt: skip
    assert found["python"]["outcome"] == "ok"
    assert outcomes(found, "broker", "topics", "store", "services") == ("skipped",) * 4
    assert "windtunnel up" in found["broker"]["detail"]


def test_what_is_not_there_fails_soon() -> None:
    began = time.monotonic()
    store = "clickhouse://someone:hunter2@127.0.0.1:1/db"
    found = checks("--bootstrap", "127.0.0.1:1", "--store", store)
    assert time.monotonic() - began < 60
    assert outcomes(found, "broker", "topics", "store") == ("failed", "skipped", "failed")
    assert "127.0.0.1:1" in found["broker"]["detail"]
    assert found["broker"]["mend"]
    assert "hunter2" not in repr(found)


def test_settings_that_are_wrong_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDTUNNEL_BUS_OPTIONS", "nonsense=1")
    found = checks("--bootstrap", "127.0.0.1:1")
    assert found["broker"]["outcome"] == "failed"
    assert "WINDTUNNEL_BUS_OPTIONS" in found["broker"]["detail"]


def test_missing_topics_are_named_until_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    monkeypatch.setenv("WINDTUNNEL_BUS_OPTIONS", "poll_pause_max_ms=20")
    broker = EmbeddedBroker(tmp_path / "broker", Ports(tmp_path).take("the broker"))
    address = broker.start()
    try:
        found = checks("--bootstrap", address)
        assert outcomes(found, "broker", "topics") == ("ok", "failed")
        assert f"{len(ALL)} of {len(ALL)} are missing" in found["topics"]["detail"]
        assert "topics create" in found["topics"]["mend"]
        create_all(BusSettings(bootstrap=address), 2)
        assert outcomes(checks("--bootstrap", address), "broker", "topics") == ("ok", "ok")
    finally:
        broker.stop()


def test_little_space_is_a_warning_and_none_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, outcome in ((10 * 2**30, "ok"), (500 * 2**20, "warning"), (2**20, "failed")):
        usage = type("Usage", (), {"free": free})
        monkeypatch.setattr(environment.shutil, "disk_usage", lambda _, usage=usage: usage)
        assert checks()["disk"]["outcome"] == outcome


@pytest.mark.parametrize(
    ("program", "script", "check", "outcome", "words"),
    [
        ("bwrap", "exit 0", "bubblewrap", "ok", "makes sandboxes"),
        ("bwrap", "echo 'No permissions' >&2; exit 1", "bubblewrap", "warning", "No permissions"),
        ("java", "echo 'openjdk version \"11.0.2\"' >&2", "kafka", "warning", "not Java 17"),
        ("java", "exit 3", "kafka", "warning", "not Java 17"),
        ("java", "sleep 60", "kafka", "warning", "no end within 0.5 s"),
    ],
)
def test_programs_that_only_some_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, script: str, check: str,
    outcome: str, words: str,
) -> None:  # fmt: skip
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / program).write_text(f"#!/bin/sh\n{script}\n")
    (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(environment, "_PROGRAM_S", 0.5)
    found = checks()[check]
    assert found["outcome"] == outcome
    assert words in found["detail"]


def test_programs_that_are_missing_are_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = checks()
    assert outcomes(found, "bubblewrap", "kafka") == ("skipped", "skipped")
