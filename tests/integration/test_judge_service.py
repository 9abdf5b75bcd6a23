"""The judge as a process on a real broker: it scores, survives kill -9, and never scores twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from schemas.codec import Codec
from schemas.loader import parse_suite
from schemas.registry import DeadLetter
from schemas.runs import SessionNotice
from schemas.scores import SessionScored
from schemas.topics import ALL, DEAD_LETTERS, RUN_PROGRESS, SCORES, SUITES, TRAJECTORIES, Topic
from services.cli.stack.broker import EmbeddedBroker
from services.runtime.bus import (
    BusProducer,
    BusSettings,
    Outgoing,
    TopicSpec,
    beginning_offsets,
    create_topics,
    end_offsets,
    read_range,
)
from services.runtime.service import Publication, outgoing_record
from tests.contract.bus_tools import free_port
from tests.lanes import require_lane
from tests.support.trajectories import Session

pytestmark = [pytest.mark.req("V09", "D01"), pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
CODEC = Codec()
SUITE = parse_suite(
    "name: suite\nversion: '1'\nowner: me\n",
    {"case.yaml": "scenario: {name: A case, expect: {says: [done]}}"},
)
T = TypeVar("T")


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusSettings]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    broker = EmbeddedBroker(tmp_path_factory.mktemp("broker") / "data", free_port())
    broker.start()
    settings = BusSettings(broker.bootstrap, **broker.bus_options)
    create_topics(
        settings,
        [TopicSpec(t.full_name, 2 if t.partition_group == "sessions" else 1) for t in ALL],
    )
    yield settings
    broker.stop()


@pytest.fixture
def judge(bus: BusSettings, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts the service; what still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []
    environ = {k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL_")} | {
        "WINDTUNNEL_BOOTSTRAP": bus.bootstrap,
        "WINDTUNNEL_BUS_OPTIONS": f"poll_pause_max_ms={bus.poll_pause_max_ms}",
        "WINDTUNNEL_SUITE_WAIT_S": "1",
    }

    def start() -> subprocess.Popen[bytes]:
        with (tmp_path / "judge.log").open("ab") as log:
            command = [sys.executable, "-m", "services.judge"]
            child = subprocess.Popen(command, cwd=ROOT, env=environ, stderr=log)
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
    print((tmp_path / "judge.log").read_text())


def append(bus: BusSettings, records: Sequence[Outgoing]) -> None:
    async def run() -> None:
        producer = BusProducer(bus, "test")
        await producer.start()
        try:
            await producer.append(records)
        finally:
            await producer.stop(5)

    asyncio.run(run())


def trajectory(number: int, says: str, suite_hash: str = SUITE.suite_hash) -> list[Outgoing]:
    session = Session(session_id=f"run-1/case/{number}", suite_hash=suite_hash)
    events = session.user().agent(says).end()
    return [
        outgoing_record(CODEC, Publication(TRAJECTORIES, event.session_id, event))
        for event in events
    ]


def everything(bus: BusSettings, topic: Topic, cls: type[T]) -> list[T]:
    """All records of a topic that can be read."""
    name = topic.full_name
    first, end = beginning_offsets(bus, name), end_offsets(bus, name)
    values = [
        record.value
        for number in first
        for record in read_range(bus, name, number, first[number], end[number])
    ]
    return [CODEC.decode(cls, value) for value in values if value != b"poison"]


def await_sessions(bus: BusSettings, topic: Topic, cls: type[Any], count: int) -> list[Any]:
    end = time.monotonic() + 40
    while True:
        found = everything(bus, topic, cls)
        if len({record.session_id for record in found}) >= count:
            return found
        assert time.monotonic() < end, f"{len(found)} records on {topic.name}, waited for {count}"
        time.sleep(0.2)


def test_sessions_are_scored_once_whatever_happens_to_the_process(
    bus: BusSettings, judge: Callable[[], subprocess.Popen[bytes]]
) -> None:
    append(bus, [outgoing_record(CODEC, Publication(SUITES, SUITE.suite_hash, SUITE))])
    append(bus, trajectory(1, "It is done.") + trajectory(2, "No."))
    append(bus, trajectory(3, "It is done.", suite_hash="unpublished"))
    open_session = trajectory(4, "It is done.")
    append(bus, open_session[:2])

    first = judge()
    await_sessions(bus, RUN_PROGRESS, SessionNotice, 3)
    first.send_signal(signal.SIGKILL)
    first.wait()

    poisoned = [
        Outgoing(topic.full_name, "run-1/case/4", b"poison") for topic in (TRAJECTORIES, SCORES)
    ]
    append(bus, [*poisoned, Outgoing(SUITES.full_name, "other", b"poison")])
    # A late writer repeats what is over: its events are of a session nobody holds any more.
    append(bus, open_session[2:] + trajectory(5, "It is done.") + trajectory(1, "other")[1:])
    second = judge()
    notices = await_sessions(bus, RUN_PROGRESS, SessionNotice, 5)
    second.terminate()
    assert second.wait(20) == 0

    scores = everything(bus, SCORES, SessionScored)
    assert sorted(score.session_id for score in scores) == [f"run-1/case/{n}" for n in range(1, 6)]
    verdicts = {score.session_id[-1]: score.passed for score in scores}
    assert verdicts == {"1": True, "2": False, "3": None, "4": True, "5": True}
    assert {(n.session_id[-1], n.what, n.passed) for n in notices} == {
        (number, "scored", passed) for number, passed in verdicts.items()
    }
    unscored = next(score for score in scores if score.session_id.endswith("3"))
    assert {d.status for d in unscored.dimensions} == {"unscored"}
    assert "suite unpublished is not on the suites topic" in unscored.dimensions[0].reason
    buried = {letter.topic for letter in everything(bus, DEAD_LETTERS, DeadLetter)}
    assert buried == {TRAJECTORIES.full_name, SCORES.full_name, SUITES.full_name}
