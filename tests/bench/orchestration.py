"""How many sessions a second the whole system conducts, and what each costs.

`python -m tests.bench.orchestration [--workload W1|W2] [--sessions N] ...` prints JSON.
A session is 5 user turns, 10 tool calls through the proxy, 5 answers over HTTP and the judge's
dimensions; every event durable, every session scored. W1 has no latency. W2 has 1 s a model call
of the agent (one a turn) and 0.5 s a user turn; its ideal is one session's 7.5 s, all at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from schemas.codec import Codec
from schemas.loader import parse_suite
from schemas.registry import AgentRegistration, ToolRegistration
from schemas.runs import RunRequest, RunStatus
from schemas.scores import RunAggregates
from schemas.topics import AGENTS, AGGREGATES, RUN_REQUESTS, RUN_STATUS, SUITES
from services.cli.stack.processes import Child
from services.cli.stack.services import StackOptions, python
from services.cli.stack.stack import Stack
from services.runtime.bus.admin import end_offsets, read_range
from services.runtime.bus.producer import BusProducer
from services.runtime.service import Publication, outgoing_record
from services.runtime.settings import Settings, load_settings
from tests.bench.world import world

TURNS = 5
AGENT_S, USER_S = 1.0, 0.5
SUITE = "name: bench\nversion: '1'\nowner: bench\n"


def scenario(sessions: int, concurrency: int, user_s: float) -> str:
    goals = [
        {"say": [f"Please do step {n}."], "done_when": [rf"step {n} is done"]}
        for n in range(1, TURNS + 1)
    ]
    document = {
        "scenario": {
            "name": "orchestration",
            "category": "load",
            "user": {"goals": goals, "think_ms": int(user_s * 1000)},
            "world": {"name": "bench"},
            "load": {"sessions": sessions, "concurrency": concurrency},
            "expect": {"calls": [{"tool": "add_note", "times": TURNS}]},
            "policies": [{"id": "polite", "severity": "safety", "never": {"says": "go away"}}],
            "budgets": {"turns": TURNS, "tool_calls": 2 * TURNS},
        }
    }
    return json.dumps(document)  # JSON is YAML


@asynccontextmanager
async def nobody(_: Stack) -> AsyncIterator[None]:
    """Does nothing to a stack."""
    yield


Beside = Callable[[Stack], AbstractAsyncContextManager[None]]


class Meter:
    """CPU seconds and peak memory of processes, sampled from a thread."""

    def __init__(self) -> None:
        self._known: dict[str, psutil.Process] = {}
        self._before: dict[str, float] = {}
        self._cpu: dict[str, float] = {}
        self.peak_mb: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, processes: dict[str, int]) -> None:
        self._known = {name: psutil.Process(pid) for name, pid in processes.items()}
        self._sample()
        self._before = dict(self._cpu)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """CPU seconds by process since the start."""
        self._stopping.set()
        self._thread.join()
        self._sample()
        return {name: self._cpu[name] - self._before[name] for name in self._known}

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            self._sample()

    def _sample(self) -> None:
        for name, process in self._known.items():
            times = process.cpu_times()
            self._cpu[name] = times.user + times.system
            memory = process.memory_info().rss / 2**20
            self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), memory)


async def measure(options: argparse.Namespace, beside: Beside = nobody) -> dict[str, Any]:
    """One run on a stack of its own; `beside` is entered when it is up, around the run."""
    waits = options.workload == "W2"
    sessions, concurrency = options.sessions, options.concurrency
    if waits and not concurrency:
        concurrency = sessions
    concurrency = concurrency or 128
    with tempfile.TemporaryDirectory() as folder:
        stack_options = StackOptions(
            directory=Path(folder) / "stack",
            broker=options.broker,
            partitions=options.partitions,
            replicas=dict.fromkeys(
                ("dispatcher", "tool_proxy", "user_simulator", "judge"), options.replicas
            ),
            worlds=("tests.bench.world:world",),
            environ=dict(os.environ),
        )
        async with Stack(stack_options, lambda line: print(line, file=sys.stderr)) as stack:
            port = options.agent_port
            latency = AGENT_S if waits else 0.0
            command = python("tests.bench.agent", "--port", str(port), "--latency-s", str(latency))
            agent = Child("agent", command, stack.directory.logs / "agent.log", stack.environ)
            stack.children["agent"] = agent
            agent.start()
            await listening(port)
            async with beside(stack):
                return await conduct(
                    stack, options, sessions, concurrency, USER_S if waits else 0.0, port
                )


async def listening(port: int) -> None:
    """Returns when something listens on the port."""
    for _ in range(300):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise SystemExit(f"nothing listens on port {port}")


async def conduct(
    stack: Stack,
    options: argparse.Namespace,
    sessions: int,
    concurrency: int,
    user_s: float,
    port: int,
) -> dict[str, Any]:
    bus = load_settings(Settings, stack.environ).bus()
    codec = Codec()
    suite = parse_suite(SUITE, {"orchestration.yaml": scenario(sessions, concurrency, user_s)})
    agent = AgentRegistration(
        agent_id="bench", name="bench", endpoint=f"http://127.0.0.1:{port}/dispatch",
        tools=tuple(
            ToolRegistration(name=t.name, input_schema=json.dumps(t.input_schema))
            for t in world.tools
        ),
    )  # fmt: skip
    request = RunRequest(
        run_id="bench", suite="bench", agent_id="bench", baseline="none",
        tool_calls_per_minute=100_000, deadline_s=1800,
    )  # fmt: skip
    producer = BusProducer(bus, "bench")
    await producer.start()
    meter = Meter()
    pids = {name: child.pid for name, child in stack.children.items() if child.pid}
    (broker,) = [p.pid for p in psutil.Process().children() if p.pid not in pids.values()]
    pids["broker"] = broker
    meter.start(pids)
    started = time.monotonic()
    await producer.append(
        [
            outgoing_record(codec, Publication(SUITES, suite.suite_hash, suite)),
            outgoing_record(codec, Publication(AGENTS, agent.agent_id, agent)),
            outgoing_record(codec, Publication(RUN_REQUESTS, request.run_id, request)),
        ]
    )
    seen, scored_s, aggregated_s = 0, 0.0, 0.0
    status: RunStatus | None = None
    while aggregated_s == 0.0:
        await asyncio.sleep(0.2)
        end = (await asyncio.to_thread(end_offsets, bus, RUN_STATUS.full_name))[0]
        for record in read_range(bus, RUN_STATUS.full_name, 0, seen, end):
            status = codec.decode(RunStatus, record.value)
            print(status.state, status.ended, status.scored, file=sys.stderr)
            if status.state in ("rejected", "failed"):
                raise SystemExit(f"the run was {status.state}: {status.errors}")
            if status.state == "sessions_done":
                scored_s = time.monotonic() - started
                cpu = meter.stop()
            if status.state == "aggregated":
                aggregated_s = time.monotonic() - started
        seen = end
    await producer.stop()
    assert status is not None
    (record,) = list(read_range(bus, AGGREGATES.full_name, 0, 0, 1))
    aggregates = codec.decode(RunAggregates, record.value)
    passed = sum(one.passed for one in aggregates.scenarios)
    if passed != sessions:
        raise SystemExit(f"{sessions - passed} of {sessions} sessions did not pass: {status}")
    ideal_s = TURNS * (AGENT_S + user_s) if user_s else None
    return {
        "workload": options.workload,
        "sessions": sessions,
        "concurrency": concurrency,
        "replicas": options.replicas,
        "broker": options.broker,
        "wall_s": round(scored_s, 2),
        "wall_with_aggregation_s": round(aggregated_s, 2),
        "sessions_per_s": round(sessions / scored_s, 2),
        "ideal_s": ideal_s,
        "wall_over_ideal": round(scored_s / ideal_s, 2) if ideal_s else None,
        "cpu_s_per_session": round(sum(cpu.values()) / sessions, 4),
        "cpu_s_per_session_by_process": {
            name: round(value / sessions, 5) for name, value in sorted(cpu.items())
        },
        "peak_mb_by_process": {name: round(value) for name, value in sorted(meter.peak_mb.items())},
        "passed": passed,
    }


def main() -> None:
    parser = arguments(__doc__ or "")
    options = parser.parse_args()
    results = [asyncio.run(measure(options)) for _ in range(options.repeat)]
    rates = [result["sessions_per_s"] for result in results]
    print(
        json.dumps({"median_sessions_per_s": statistics.median(rates), "runs": results}, indent=2)
    )


def arguments(about: str) -> argparse.ArgumentParser:
    """What the benchmarks on whole stacks can be told."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--workload", choices=("W1", "W2"), default="W1")
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--concurrency", type=int, default=0, help="0: 128 for W1, all for W2")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--agent-port", type=int, default=18790)
    parser.add_argument("--repeat", type=int, default=1)
    return parser


if __name__ == "__main__":
    main()
