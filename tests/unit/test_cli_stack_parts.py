"""The parts of a stack, one by one: ports, directory, restarts, children."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from services.cli.errors import CliError
from services.cli.stack.directory import StackDirectory, StackInfo
from services.cli.stack.ports import Ports
from services.cli.stack.processes import Child, stop_all
from services.cli.stack.restarts import Restarts
from services.cli.stack.services import StackOptions, parse_replicas

INFO = StackInfo(pid=1, environ={"WINDTUNNEL_BOOTSTRAP": "b:1"}, endpoints={"x": "http://x"})


def test_ports_are_free_distinct_and_the_same_again_for_a_directory(tmp_path: Path) -> None:
    first, again = Ports(tmp_path), Ports(tmp_path)
    taken = [first.take("x") for _ in range(5)]
    assert len(set(taken)) == 5
    assert [again.take("x") for _ in range(5)] == taken
    # Below where the system takes ports for outgoing connections from.
    assert all(20_000 <= port < 32_000 for port in taken)


def test_a_busy_port_is_passed_over(tmp_path: Path) -> None:
    expected = Ports(tmp_path).take("x")
    with socket.socket() as busy:
        # As servers do: connections of an earlier listener may linger on the port.
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", expected))
        busy.listen()
        assert Ports(tmp_path).take("x") != expected


def test_a_busy_port_that_was_asked_for_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(CliError, match=f"port {port} for the broker is in use"):
            Ports(tmp_path, port).take("the broker")
        # The one before it is anybody's guess.
        with pytest.raises(CliError, match=f"port ({port - 1}|{port}) for the broker is in use"):
            Ports(tmp_path, port - 1).take("the broker", 2)


def test_a_directory_has_one_stack_at_a_time(tmp_path: Path) -> None:
    first, second = StackDirectory(tmp_path / "s"), StackDirectory(tmp_path / "s")
    first.lock()
    with pytest.raises(CliError, match=rf"in use by another stack \(process {os.getpid()}\)"):
        second.lock()
    first.unlock()
    assert not (tmp_path / "s" / "lock").exists()
    second.lock()
    second.unlock()


def test_a_lock_left_by_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("4711")
    directory = StackDirectory(tmp_path)
    directory.lock()
    directory.unlock()


def test_info_counts_only_while_the_stack_runs(tmp_path: Path) -> None:
    directory = StackDirectory(tmp_path)
    assert directory.read_info() is None
    directory.lock()
    directory.write_info(INFO)
    assert StackDirectory(tmp_path).read_info() == INFO
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600
    directory.unlock()
    assert StackDirectory(tmp_path).read_info() is None


def test_damaged_info_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("{")
    with pytest.raises(CliError, match=r"stack\.json cannot be read"):
        StackDirectory(tmp_path).read_info()


@pytest.mark.req("R22")
def test_the_token_secret_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    secret = StackDirectory(tmp_path).token_secret()
    assert len(secret) >= 32
    assert StackDirectory(tmp_path).token_secret() == secret
    assert stat.S_IMODE((tmp_path / "token-secret").stat().st_mode) == 0o600


def test_wiping_leaves_nothing_but_the_lock(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path.parent)
    directory = StackDirectory(tmp_path)
    directory.lock()
    directory.wipe()
    assert [entry.name for entry in tmp_path.iterdir()] == ["lock"]
    directory.unlock()


def test_restarts_wait_longer_each_time_and_end() -> None:
    now = 100.0
    restarts = Restarts(lambda: now, most=3, window_s=10.0, first_wait_s=0.5)
    assert [restarts.next_wait_s("a") for _ in range(4)] == [0.0, 0.5, 1.0, None]
    assert restarts.next_wait_s("b") == 0.0
    now = 111.0
    assert restarts.next_wait_s("a") == 0.0


def test_replicas_for_all_and_for_one() -> None:
    assert parse_replicas(["2", "judge=4"])["judge"] == 4
    assert parse_replicas(["2", "judge=4"])["gate"] == 2
    assert parse_replicas([]) == {}
    with pytest.raises(CliError, match="expected 1 to 4"):
        StackOptions(Path(), replicas={"judge": 0})


def child(tmp_path: Path, code: str) -> Child:
    command = [sys.executable, "-c", code]
    return Child("thing", command, tmp_path / "logs" / "thing.log", dict(os.environ))


def test_a_child_has_its_log_and_its_exit_code(tmp_path: Path) -> None:
    one = child(tmp_path, "import sys; print('hel\\x1blo'); sys.exit(3)")
    one.start()
    until(lambda: one.pid is None)
    assert one.exit_code == 3
    assert one.tail() == "hel\\x1blo"


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="thing cannot be started"):
        Child("thing", [str(tmp_path / "none")], tmp_path / "log", {}).start()


def test_a_child_that_will_not_stop_is_killed_with_what_it_started(tmp_path: Path) -> None:
    stubborn = child(
        tmp_path,
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n",
    )
    stubborn.start()
    until(lambda: stubborn.tail() == "up")
    assert stubborn.pid is not None
    family = [psutil.Process(stubborn.pid), *psutil.Process(stubborn.pid).children()]
    assert len(family) == 2
    assert asyncio.run(stop_all([stubborn], 0.3)) == ["thing"]
    until(lambda: not any(alive(process) for process in family))


def test_a_child_does_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    supervisor = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time\n"
            "from pathlib import Path\n"
            "from services.cli.stack.processes import Child\n"
            "code = 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)'\n"
            "one = Child('one', [sys.executable, '-c', code], Path('log'), dict(os.environ))\n"
            "one.start()\n"
            "print(one.pid, flush=True)\n"
            "time.sleep(60)\n",
        ],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    assert supervisor.stdout is not None
    orphan = psutil.Process(int(supervisor.stdout.readline()))
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    until(lambda: not alive(orphan))


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: object, timeout_s: float = 10.0) -> None:
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.02)
