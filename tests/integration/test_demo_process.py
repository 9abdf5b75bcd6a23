"""The demo agent as users start it: a process on a port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

COMMAND = [sys.executable, "-m", "deploy.demo.agent"]


@pytest.fixture
def url() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [*COMMAND, "--port", str(port), "--build", "regressed"],
        env={**os.environ, "AGENT_TOKEN": "secret"},
        stderr=subprocess.PIPE,
    )
    try:
        yield f"http://127.0.0.1:{port}/dispatch"
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert b"secret" not in errors
    assert b"Traceback" not in errors


@pytest.mark.req("R17")
def test_it_serves_pings_to_whoever_has_the_token(url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            refused = httpx.post(url, json={"ping": True})
            break
        except httpx.ConnectError:
            assert time.monotonic() < deadline, "the agent does not listen"
            time.sleep(0.05)
    assert refused.status_code == 401
    pinged = httpx.post(url, json={"ping": True}, headers={"Authorization": "Bearer secret"})
    assert (pinged.status_code, pinged.json()) == (200, {"ok": True})


def test_without_a_token_it_says_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "AGENT_TOKEN"}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert done.stderr.startswith("AGENT_TOKEN is not set")
