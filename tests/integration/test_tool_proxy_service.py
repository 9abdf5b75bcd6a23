"""The tool proxy as its own process, on the embedded broker."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.codec import Codec
from schemas.topics import DEAD_LETTERS, TRAJECTORIES
from schemas.trajectory import TrajectoryEvent
from services.cli.stack.broker import EmbeddedBroker
from services.runtime.bus import (
    BusSettings,
    TopicSpec,
    create_topics,
    end_offsets,
    group_owners,
    partition_for,
    read_range,
)
from services.runtime.service import Publication, outgoing_record
from services.runtime.tokens import Claims, Tokens
from services.tool_proxy.app import BASE
from tests.contract.bus_suite import bus_settings
from tests.contract.bus_tools import free_port, producing
from tests.lanes import require_lane
from tests.support.tool_proxy import SECRET, ended, make_brief, started

ROOT = Path(__file__).parents[2]
CODEC = Codec()
PARTITIONS = 3
EXTRA: dict[str, str] = {}
"""Further settings of the processes that are spawned; a test's to replace."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    one = EmbeddedBroker(tmp_path / "data", free_port())
    one.start()
    yield one
    one.stop()


def spawn(broker: EmbeddedBroker, log: Path, replica: int = 0) -> subprocess.Popen[bytes]:
    options = ",".join(f"{name}={value}" for name, value in broker.bus_options.items())
    known = {k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL_")}
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "services.tool_proxy"], cwd=ROOT, stdout=out, stderr=out,
            env=known | {
                "WINDTUNNEL_BOOTSTRAP": broker.bootstrap, "WINDTUNNEL_BUS_OPTIONS": options,
                "WINDTUNNEL_TOKEN_SECRET": SECRET, "WINDTUNNEL_REPLICA": str(replica),
                "WINDTUNNEL_WORLDS": "tests.support.tool_proxy:WORLD", **EXTRA,
            },
        )  # fmt: skip


class Caller:
    """Calls tools as an agent would, at the replica that the group says owns the session."""

    def __init__(self, settings: BusSettings) -> None:
        self._settings = settings
        self._tokens = Tokens(SECRET)
        self._dispatch = 0
        self.client = httpx.Client(timeout=20)

    def post_turn(self) -> None:
        self._dispatch += 1

    def url(self, session_id: str) -> str:
        owners = group_owners(self._settings, "tool_proxy", TRAJECTORIES.full_name)
        client = owners.get(partition_for(session_id, PARTITIONS), "")
        return client.partition("@")[2]

    def call(self, session_id: str, tool: str, arguments: dict[str, Any]) -> httpx.Response:
        now = time.time_ns() // 1_000_000
        token = self._tokens.mint(Claims(
            session_id, "run", "jti", 1, 1, f"d{self._dispatch}", self._dispatch, now + 60_000,
        ))  # fmt: skip
        url = f"{self.url(session_id)}{BASE}/runs/jti/tools/{tool}"
        return self.client.post(url, json=arguments, headers={"X-Pipelines-Run-Token": token})

    def patiently(self, session_id: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """The answer, after as many retries as it takes within 30 s."""

        def answered() -> dict[str, Any] | None:
            try:
                response = self.call(session_id, tool, arguments)
            except (httpx.TransportError, httpx.UnsupportedProtocol):
                return None
            if response.status_code == 200:
                body: dict[str, Any] = response.json()
                return body
            assert response.json()["error"]["retryable"], response.text
            return None

        return _eventually(answered)


def _eventually(attempt: Callable[[], dict[str, Any] | None]) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while (found := attempt()) is None:
        assert time.monotonic() < deadline, "not answered within 30 s"
        time.sleep(0.1)
    return found


def events(settings: BusSettings, session_id: str) -> list[TrajectoryEvent]:
    topic = TRAJECTORIES.full_name
    records = [
        CODEC.decode(TrajectoryEvent, record.value)
        for partition, end in end_offsets(settings, topic).items()
        for record in read_range(settings, topic, partition, 0, end)
    ]
    return [event for event in records if event.session_id == session_id]


async def append(settings: BusSettings, *items: TrajectoryEvent) -> None:
    async with producing(settings) as producer:
        await producer.append(
            [outgoing_record(CODEC, Publication(TRAJECTORIES, e.session_id, e)) for e in items]
        )


@pytest.mark.req("D01", "R02", "R22", "V05")
def test_a_session_goes_on_in_its_world_after_a_kill(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    settings = bus_settings(broker)
    create_topics(settings, [TopicSpec(TRAJECTORIES.full_name, PARTITIONS, {})])
    create_topics(settings, [TopicSpec(DEAD_LETTERS.full_name, 1, {})])
    log_file = tmp_path / "service.log"
    caller = Caller(settings)
    processes = [spawn(broker, log_file, 0)]
    try:
        asyncio.run(append(settings, started(make_brief()), started(make_brief(), "s2")))
        first = caller.patiently("s1", "add_note", {"text": "before"})
        assert first["source"] == "odyssey"
        recorded = [event for event in events(settings, "s1") if event.tool_called]
        assert [event.step for event in recorded] == ["t1"]

        processes[0].send_signal(signal.SIGKILL)
        processes[0].wait(10)
        processes[0] = spawn(broker, log_file, 0)
        caller.post_turn()
        again = caller.patiently("s1", "add_note", {"text": "before"})
        assert again == first  # the turn was posted again: answered from the log
        after = caller.patiently("s1", "add_note", {"text": "after"})
        assert after["response"] != first["response"]
        calls = [event.tool_called for event in events(settings, "s1") if event.tool_called]
        assert [(call.call, call.arguments) for call in calls] == [
            (1, '{"text":"before"}'), (2, '{"text":"after"}'),
        ]  # fmt: skip

        asyncio.run(append(settings, ended()))
        deadline = time.monotonic() + 20
        while (response := caller.call("s1", "get_order", {"order_id": "1"})).status_code != 401:
            assert time.monotonic() < deadline, response.text
            time.sleep(0.1)
        assert caller.patiently("s2", "get_order", {"order_id": "1"})["source"] == "odyssey"
        metrics = caller.client.get(f"{caller.url('s2')}/metrics").text
        assert 'windtunnel_tool_calls_total{injection="",source="odyssey"}' in metrics
        processes[0].terminate()
        assert processes[0].wait(20) == 0, log_file.read_text()
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait(10)
    assert SECRET not in log_file.read_text()


@pytest.mark.req("V05")
def test_a_world_that_cannot_be_loaded_is_a_configuration_error(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    create_topics(bus_settings(broker), [TopicSpec(TRAJECTORIES.full_name, 1, {})])
    options = ",".join(f"{name}={value}" for name, value in broker.bus_options.items())
    done = subprocess.run(
        [sys.executable, "-m", "services.tool_proxy"], cwd=ROOT, timeout=60, capture_output=True,
        env={**os.environ, "WINDTUNNEL_BOOTSTRAP": broker.bootstrap,
             "WINDTUNNEL_BUS_OPTIONS": options, "WINDTUNNEL_TOKEN_SECRET": SECRET,
             "WINDTUNNEL_WORLDS": "no.such.module:world"},
    )  # fmt: skip
    assert done.returncode == 2
    assert b"WINDTUNNEL_WORLDS: no.such.module:world: No module named 'no'" in done.stderr
