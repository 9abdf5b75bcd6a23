"""The real stack, started as a user starts it, and what tests do with it.

with running_stack(tmp_path) as stack:
    stack.publish_demo()
    status = stack.run(RunRequest(...))
    events = stack.trajectories(status)
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from deploy.demo.register import agent_registration
from schemas.codec import Codec
from schemas.gate import GateStatus
from schemas.registry import Suite
from schemas.runs import RunRequest, RunStatus
from schemas.scores import RunAggregates, SessionScored
from schemas.topics import (
    AGENTS,
    AGGREGATES,
    GATE_STATUS,
    RUN_REQUESTS,
    RUN_STATUS,
    SCORES,
    SUITES,
    TRAJECTORIES,
    Topic,
)
from schemas.trajectory import TrajectoryEvent
from services.cli import suites
from services.cli.stack.ports import Ports
from services.runtime.bus.records import Incoming, Outgoing
from services.runtime.service import Publication, outgoing_record
from services.runtime.settings import Settings, load_settings
from tests.support import live

ROOT = Path(__file__).resolve().parents[2]
DEMO_SUITE = ROOT / "deploy" / "demo" / "suite"
AGENT_TOKEN = "e2e-agent-token-canary"
FINAL = frozenset({"aggregated", "rejected", "failed"})
R = TypeVar("R")
_asked = itertools.count()


def free_port() -> int:
    """A port that nobody listens on, and that no outgoing connection will be given."""
    return Ports(Path(f"/{os.getpid()}/{next(_asked)}")).take("a test")


def read_suite(folder: Path) -> Suite:
    """A suite's folder, as it is published."""
    return suites.read_suite(folder)


class RunningStack:
    """A stack that is up."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.process = process
        info = json.loads((directory / "stack.json").read_text())
        self.environ: dict[str, str] = {**os.environ, **info["environ"]}
        self.endpoints: dict[str, str] = info["endpoints"]
        self.bus = load_settings(Settings, self.environ).bus()
        self.codec = Codec()
        self._agents: list[subprocess.Popen[bytes]] = []
        self.agent_urls: dict[str, str] = {}

    # What users do.

    def publish(self, *publications: Publication) -> None:
        self.append([outgoing_record(self.codec, one) for one in publications])

    def append(self, records: Sequence[Outgoing]) -> None:
        """Append raw records, poisoned ones too."""
        live.append(self.bus, records)

    def start_agent(self, build: str = "good") -> str:
        """The demo's agent in a process of its own; returns the id it is registered under."""
        port = free_port()
        log = (self.directory / f"agent-{build}-{port}.log").open("wb")
        self._agents.append(
            subprocess.Popen(
                [sys.executable, "-m", "deploy.demo.agent", "--port", str(port), "--build", build],
                env={**self.environ, "AGENT_TOKEN": AGENT_TOKEN},
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        )
        wait_until(lambda: _listens(port), 20, f"the {build} agent")
        self.register_agent(build, f"http://127.0.0.1:{port}/dispatch")
        return build

    def register_agent(self, build: str, url: str) -> None:
        self.agent_urls[build] = url
        registration = agent_registration(build, "order-support", url, build)
        self.publish(Publication(AGENTS, build, registration))

    def publish_suite(self, folder: Path = DEMO_SUITE) -> Suite:
        suite = read_suite(folder)
        self.publish(Publication(SUITES, suite.suite_hash, suite))
        return suite

    def request(self, request: RunRequest) -> None:
        self.publish(Publication(RUN_REQUESTS, request.run_id, request))

    def run(self, request: RunRequest, timeout_s: float = 240) -> RunStatus:
        """Request a run and wait for its final status."""
        self.request(request)
        return self.final_status(request.run_id, timeout_s)

    def cli(self, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """A `windtunnel` command against this stack."""
        return subprocess.run(
            self._run_by(arguments),
            cwd=self.directory.parent,
            env=self._cli_environ(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A `windtunnel` command that runs until it is stopped, which leaving does."""
        process = subprocess.Popen(
            self._run_by(arguments),
            cwd=self.directory.parent,
            env=self._cli_environ(),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()

    @staticmethod
    def _run_by(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "services.cli", *arguments]

    def _cli_environ(self) -> dict[str, str]:
        return {**self.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}

    # What the topics say.

    def read(self, topic: Topic) -> Iterator[Incoming]:
        """Everything on a topic now."""
        return live.everything(self.bus, topic)

    def records(self, topic: Topic, cls: type[R], run_id: str = "") -> list[R]:
        """The decodable records of a topic, of one run if asked."""
        found = []
        for incoming in self.read(topic):
            if run_id and incoming.headers.get("run") != run_id:
                continue
            found.append(self.codec.decode(cls, incoming.value))
        return found

    def latest(self, topic: Topic, cls: type[R], run_id: str) -> R | None:
        found = self.records(topic, cls, run_id)
        return found[-1] if found else None

    def status(self, run_id: str) -> RunStatus | None:
        return self.latest(RUN_STATUS, RunStatus, run_id)

    def final_status(self, run_id: str, timeout_s: float = 240) -> RunStatus:
        """Waits for aggregated, rejected or failed."""

        def final() -> RunStatus | None:
            status = self.status(run_id)
            return status if status is not None and status.state in FINAL else None

        return wait_until(final, timeout_s, f"run {run_id}", lambda: self.status(run_id))

    def verdict(self, run_id: str, timeout_s: float = 180) -> GateStatus:
        return wait_until(
            lambda: self.latest(GATE_STATUS, GateStatus, run_id), timeout_s, f"verdict on {run_id}"
        )

    def trajectories(self, run_id: str) -> dict[tuple[str, int], list[TrajectoryEvent]]:
        """The events of a run by scenario and trial, duplicates dropped as every reader does."""
        sessions: dict[str, dict[str, TrajectoryEvent]] = {}
        for event in self.records(TRAJECTORIES, TrajectoryEvent, run_id):
            sessions.setdefault(event.session_id, {}).setdefault(event.event_id, event)
        found = {}
        for events in sessions.values():
            started = next(e.session_started for e in events.values() if e.session_started)
            found[started.scenario_id, started.trial] = list(events.values())
        return found

    def scores(self, run_id: str) -> dict[tuple[str, int], SessionScored]:
        found: dict[tuple[str, int], SessionScored] = {}
        for score in self.records(SCORES, SessionScored, run_id):
            found.setdefault((score.scenario_id, score.trial), score)
        return found

    def aggregates(self, run_id: str) -> RunAggregates:
        found = self.latest(AGGREGATES, RunAggregates, run_id)
        assert found is not None, f"no aggregates of {run_id}"
        return found

    # What operators and fate do.

    def pids(self, name: str) -> list[int]:
        """The processes of a service."""
        module = {"pipelines_runner": "pipelines.runner"}.get(name, f"services.{name}")
        return [
            child.pid
            for child in psutil.Process(self.process.pid).children(recursive=True)
            if module in _command_line(child)
        ]

    def kill(self, name: str) -> None:
        """kill -9 every process of a service; the stack restarts them."""
        pids = self.pids(name)
        assert pids, f"{name} is not running"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def logs(self) -> str:
        """Everything that any service has logged."""
        return "\n".join(
            path.read_text(errors="replace") for path in sorted(self.directory.rglob("*.log"))
        )

    def stop_agents(self) -> None:
        for agent in self._agents:
            agent.kill()
            agent.wait()
        self._agents.clear()


@contextmanager
def running_stack(
    folder: Path, *arguments: str, environ: Mapping[str, str] | None = None
) -> Iterator[RunningStack]:
    """`windtunnel up` in a folder, until the block ends; asserts that nothing is left behind."""
    directory = folder / ".windtunnel"
    output = folder / "up.out"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.cli", "up", "--dir", str(directory), *arguments],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "DEMO_AGENT_AUTH": f"Bearer {AGENT_TOKEN}",
                "WINDTUNNEL_SECRET_FILES": str(folder),
                **(environ or {}),
            },
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    children: list[psutil.Process] = []
    stack: RunningStack | None = None
    try:

        def up() -> bool:
            assert process.poll() is None, f"windtunnel up failed:\n{output.read_text()}"
            return (directory / "stack.json").exists()

        wait_until(up, 90, "the stack", output.read_text)
        stack = RunningStack(directory, process)
        children = psutil.Process(process.pid).children(recursive=True)
        yield stack
    finally:
        if stack is not None:
            stack.stop_agents()
            children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        left = [child for child in children if child.is_running() and child.status() != "zombie"]
        assert not left, f"left running: {left}"


def wait_until(condition: Any, timeout_s: float, what: str, detail: Any = lambda: "") -> Any:
    """The first truthy value of a condition; fails the test after the timeout, saying what for."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}: {detail()}"
        time.sleep(0.1)


def comparable(event: TrajectoryEvent) -> TrajectoryEvent:
    """An event without what may differ between equal runs: ids, times, latencies."""
    changes: dict[str, Any] = {"at_ms": 0, "session_id": "", "run_id": "", "event_id": event.step}
    if event.session_started is not None:
        changes["session_started"] = replace(event.session_started, task_id=0, planned_at_ms=0)
    if event.user_turn is not None:
        changes["user_turn"] = replace(event.user_turn, latency_ms=0)
    if event.agent_turn is not None:
        metadata = json.loads(event.agent_turn.metadata or "{}")
        metadata.pop("agent_runtime_ms", None)
        changes["agent_turn"] = replace(
            event.agent_turn, latency_ms=0, dispatch_id="", metadata=json.dumps(metadata)
        )
    if event.tool_called is not None:
        # The key contains the session's id, which is the run's.
        changes["tool_called"] = replace(
            event.tool_called,
            latency_ms=0,
            dispatch_id="",
            dispatched_at_ms=0,
            idempotency_key=None,
        )
    return replace(event, **changes)


def comparable_score(score: SessionScored) -> SessionScored:
    """A score without ids, times and the one dimension that is wall time."""
    return replace(
        score,
        timing=None,
        run_id="",
        session_id="",
        at_ms=0,
        dimensions=tuple(d for d in score.dimensions if d.dimension != "agent_latency_ms"),
    )


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
