"""The one-machine stack: starts, says what is wrong, mends what dies, leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from services.cli.errors import CliError
from services.cli.stack import broker as brokers
from services.cli.stack.processes import Child
from services.cli.stack.restarts import Restarts
from services.cli.stack.services import StackOptions
from services.cli.stack.stack import Stack
from tests.lanes import require_lane

ROOT = Path(__file__).resolve().parents[2]
START_S = 110.0
pytestmark = pytest.mark.timeout(240)


class Up(NamedTuple):
    """A `windtunnel up` that runs."""

    process: subprocess.Popen[str]
    folder: Path
    endpoints: dict[str, str]

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def pid_of(self, module: str) -> int | None:
        for child in self.children():
            try:
                if child.cmdline()[-1:] == [module]:
                    return child.pid
            except psutil.Error:
                continue
        return None

    def said(self) -> str:
        return (self.folder / "stderr").read_text()


def spawn(folder: Path, *arguments: str, command: str = "up") -> subprocess.Popen[str]:
    with (folder / "stderr").open("w") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "services.cli", command, "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )


def start(folder: Path, *arguments: str) -> Up:
    process = spawn(folder, *arguments, "--ready-deadline", str(START_S))
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, (folder / "stderr").read_text()
    return Up(process, folder, json.loads(line)["endpoints"])


def finish(process: subprocess.Popen[str], number: int = signal.SIGINT) -> int:
    process.send_signal(number)
    code = process.wait(60)
    if process.stdout is not None:
        process.stdout.close()
    return code


def left_in(folder: Path) -> list[str]:
    """Processes that still work in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


def until(condition: Callable[[], Any], timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)


@pytest.fixture(scope="module", autouse=True)
def _lane() -> None:
    available = brokers.EmbeddedBroker.binary() is not None
    require_lane("embedded-broker", available, "pip install noida-db")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = start(tmp_path_factory.mktemp("stack"))
    yield running
    if running.process.poll() is None:
        finish(running.process)


@pytest.mark.req("D01")
def test_every_service_is_a_process_of_its_own_with_health_and_metrics(up: Up) -> None:
    expected = {
        "dispatcher-0", "tool_proxy-0", "user_simulator-0", "judge-0", "gate-0", "control-0",
        "pipelines_runner-0", "embedded_store",
    }  # fmt: skip
    assert set(up.endpoints) == expected
    assert len(up.children()) == len(expected) + 1  # and the broker
    for name, url in up.endpoints.items():
        assert httpx.get(f"{url}/healthz").status_code == 200, name
        assert httpx.get(f"{url}/readyz").status_code == 200, name
        assert "windtunnel_ready 1.0" in httpx.get(f"{url}/metrics").text, name


def test_other_commands_find_the_stack_by_its_directory(up: Up) -> None:
    command = [sys.executable, "-m", "services.cli"]
    options: dict[str, Any] = {
        "cwd": up.folder,
        "env": {**os.environ, "PYTHONPATH": str(ROOT)},
        "capture_output": True,
        "text": True,
        "timeout": 60,
    }
    listed = subprocess.run([*command, "agents", "list", "--json"], check=False, **options)
    assert (listed.returncode, json.loads(listed.stdout)) == (0, [])
    asked = subprocess.run(
        [*command, "sql", "SELECT count() AS n FROM v_runs", "--json"], check=False, **options
    )
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["rows"] == [{"n": 0}]


def test_a_second_stack_in_the_same_directory_is_refused(up: Up) -> None:
    (up.folder / "second").mkdir(exist_ok=True)
    second = spawn(up.folder / "second", "--dir", str(up.folder / ".windtunnel"))
    assert second.wait(60) == 2
    said = (up.folder / "second" / "stderr").read_text()
    assert "is in use by another stack" in said
    assert len(said.splitlines()) == 1
    assert up.process.poll() is None


@pytest.mark.parametrize("module", ["services.gate", "services.dispatcher"])
def test_a_killed_service_is_reported_and_started_again(up: Up, module: str) -> None:
    name = module.removeprefix("services.") + "-0"
    first = up.pid_of(module)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: up.pid_of(module) not in (None, first), 30, f"{module} is started again")

    def is_ready() -> bool:
        try:
            return httpx.get(f"{up.endpoints[name]}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    until(is_ready, 60, f"{module} is ready again")
    assert f"{name} was killed by signal 9. It is started again." in up.said()


@pytest.mark.req("D01", "R02")
def test_while_a_service_is_started_again_its_callers_wait(up: Up) -> None:
    """An agent's call must not be refused because the proxy died: not one connection is."""
    url, first = up.endpoints["tool_proxy-0"], up.pid_of("services.tool_proxy")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(first), 10, "it is dead")
    answer = httpx.post(f"{url}/api/odyssey-proxy/tools/get_order", json={}, timeout=60)
    assert up.pid_of("services.tool_proxy") not in (None, first)
    # Not 404, which is what it says before it has its routes.
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "token_invalid")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere 127.0.0.2 is no address")
def test_services_listen_where_they_are_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDTUNNEL_HTTP_HOST", "0.0.0.0")
    running = start(tmp_path)
    try:
        elsewhere = running.endpoints["tool_proxy-0"].replace("127.0.0.1", "127.0.0.2")
        assert httpx.get(f"{elsewhere}/healthz").text == "ok\n"
    finally:
        finish(running.process)


def test_stopping_leaves_no_process_and_no_lock(tmp_path: Path) -> None:
    running = start(tmp_path)
    assert (tmp_path / ".windtunnel" / "stack.json").exists()
    assert finish(running.process) == 130
    assert left_in(tmp_path) == []
    assert not (tmp_path / ".windtunnel" / "lock").exists()
    assert not (tmp_path / ".windtunnel" / "stack.json").exists()
    assert "Traceback" not in running.said()


def test_a_killed_supervisor_takes_everything_with_it(tmp_path: Path) -> None:
    running = start(tmp_path)
    finish(running.process, signal.SIGKILL)
    until(lambda: left_in(tmp_path) == [], 20, "its children are gone")
    # What it left in the directory keeps nobody from starting again.
    again = start(tmp_path)
    assert finish(again.process, signal.SIGTERM) == 130
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("after_s", [0.2, 1.5, 4.0])
def test_ctrl_c_while_starting_leaves_nothing(tmp_path: Path, after_s: float) -> None:
    process = spawn(tmp_path)
    time.sleep(after_s)
    finish(process)
    assert left_in(tmp_path) == []
    assert not (tmp_path / ".windtunnel" / "lock").exists()
    assert not (tmp_path / ".windtunnel" / "stack.json").exists()


def test_ctrl_c_in_the_middle_of_the_demo_leaves_nothing(tmp_path: Path) -> None:
    process = spawn(tmp_path, command="demo")
    said = tmp_path / "stderr"
    until(lambda: "demo-1-baseline running" in said.read_text(), START_S, "the demo's first run")
    assert len(left_in(tmp_path)) > 8
    assert finish(process) == 130
    assert left_in(tmp_path) == []
    assert not (tmp_path / ".windtunnel" / "demo" / "lock").exists()
    assert "Traceback" not in said.read_text()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        process = spawn(tmp_path, "--port-base", str(port))
        assert process.wait(60) == 2
    said = (tmp_path / "stderr").read_text()
    assert f"port {port} for the store is in use" in said
    assert len(said.splitlines()) == 1
    assert left_in(tmp_path) == []


def test_a_service_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    process = spawn(tmp_path, "--world", "no.such.module:world")
    assert process.wait(120) == 2
    said = (tmp_path / "stderr").read_text()
    assert "tool_proxy-0 ended (2)" in said
    assert "WINDTUNNEL_WORLDS" in said
    assert "tool_proxy-0.log" in said
    assert "Traceback" not in said
    assert left_in(tmp_path) == []


def test_an_external_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    process = spawn(tmp_path, "--broker", "external", "--bootstrap", "127.0.0.1:1")
    assert process.wait(120) == 2
    said = (tmp_path / "stderr").read_text()
    assert "127.0.0.1:1" in said
    assert "Traceback" not in said
    assert left_in(tmp_path) == []


def start_here(folder: Path) -> None:
    async def go() -> None:
        async with Stack(StackOptions(folder, environ=dict(os.environ)), print):
            pass

    asyncio.run(go())


def test_a_missing_broker_binary_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers.EmbeddedBroker, "binary", staticmethod(lambda: None))
    with pytest.raises(CliError, match="pip install noida-db"):
        start_here(tmp_path / "s")
    assert not (tmp_path / "s" / "lock").exists()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1024**2))
    with pytest.raises(CliError, match=r"has 1 MiB left .*free space, or choose another --dir"):
        start_here(tmp_path / "s")
    assert not (tmp_path / "s" / "lock").exists()


def test_what_dies_again_and_again_ends_the_stack_with_its_log(tmp_path: Path) -> None:
    async def go() -> list[str]:
        said: list[str] = []
        stack = Stack(StackOptions(tmp_path), said.append)
        stack._restarts = Restarts(time.monotonic, most=2, first_wait_s=0.01)
        code = "import sys; print('no idea'); sys.exit(4)"
        command = [sys.executable, "-c", code]
        stack.children["bad"] = Child("bad", command, tmp_path / "bad.log", dict(os.environ))
        stack.children["bad"].start()
        with pytest.raises(CliError, match=r"(?s)bad ended 3 times within .*no idea"):
            async with asyncio.timeout(30):
                await stack._watch()
        await stack.stop()
        return said

    said = asyncio.run(go())
    assert said[:2] == ["bad ended (4). It is started again."] * 2
