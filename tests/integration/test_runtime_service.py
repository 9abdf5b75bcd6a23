"""The life of a service process: exit codes, readiness, and what a person is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.cli.stack.broker import EmbeddedBroker
from services.cli.topics import create_all
from services.runtime.bus.settings import BusSettings
from tests.support.running_stack import ROOT, free_port, wait_until


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    broker = EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", free_port())
    bootstrap = broker.start()
    create_all(BusSettings(bootstrap, **broker.bus_options), 2)
    options = ",".join(f"{name}={value}" for name, value in broker.bus_options.items())
    try:
        yield {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WINDTUNNEL_BOOTSTRAP": bootstrap,
            "WINDTUNNEL_BUS_OPTIONS": options,
        }
    finally:
        broker.stop()


def start(environ: dict[str, str], **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "services.gate"],
        env={**environ, **{f"WINDTUNNEL_{name}": value for name, value in settings.items()}},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.req("D01", "D07")
def test_a_service_becomes_ready_shows_its_metrics_and_stops_when_told(
    environ: dict[str, str],
) -> None:
    port = free_port()
    process = start(environ, HTTP_PORT=str(port))
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    try:
        wait_until(ready, 30, "the gate")
        assert httpx.get(f"{url}/readyz").json() == {"ready": True, "waiting_for": []}
        assert httpx.get(f"{url}/healthz").text == "ok\n"
        assert "windtunnel_ready 1.0" in httpx.get(f"{url}/metrics").text
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_a_port_in_use_is_one_clear_line(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(environ, HTTP_PORT=str(taken.getsockname()[1]))
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    lines = [line for line in output.splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert "WINDTUNNEL_HTTP_PORT" in lines[0]


def test_a_broker_that_is_not_there_ends_the_service_with_its_address(
    environ: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "w.toml"
    config.write_text('bootstrap = "127.0.0.1:9"\n')
    without = {k: v for k, v in environ.items() if k != "WINDTUNNEL_BOOTSTRAP"}
    process = start(without, CONFIG=str(config))
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "127.0.0.1:9" in output
    assert "Traceback" not in output


def test_a_wrong_setting_is_named(environ: dict[str, str]) -> None:
    process = start(environ, LOG_LEVEL="loud")
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert output.startswith("WINDTUNNEL_LOG_LEVEL: ")
