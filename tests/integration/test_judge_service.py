"""The judge as a process on a real broker: it scores, survives kill -9, and never scores twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.loader import parse_suite
from schemas.registry import DeadLetter
from schemas.runs import SessionNotice
from schemas.scores import SessionScored
from schemas.topics import DEAD_LETTERS, RUN_PROGRESS, SCORES, SUITES, TRAJECTORIES, Topic
from services.runtime.bus import BusSettings, Outgoing
from services.runtime.service import Publication, outgoing_record
from tests.support.live import (
    CODEC,
    Start,
    append,
    decoded,
    everything,
    live_broker,
    live_services,
    publish,
)
from tests.support.trajectories import Session

pytestmark = [pytest.mark.req("V09", "D01"), pytest.mark.timeout(120)]

SUITE = parse_suite(
    "name: suite\nversion: '1'\nowner: me\n",
    {"case.yaml": "scenario: {name: A case, expect: {says: [done]}}"},
)


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusSettings]:
    with live_broker(tmp_path_factory.mktemp("bus")) as settings:
        yield settings


@pytest.fixture
def start(bus: BusSettings, tmp_path: Path) -> Iterator[Start]:
    with live_services(bus, tmp_path, suite_wait_s="1") as start:
        yield start


def trajectory(number: int, says: str, suite_hash: str = SUITE.suite_hash) -> list[Outgoing]:
    session = Session(session_id=f"run-1/case/{number}", suite_hash=suite_hash)
    events = session.user().agent(says).end()
    return [
        outgoing_record(CODEC, Publication(TRAJECTORIES, event.session_id, event))
        for event in events
    ]


def await_sessions(bus: BusSettings, topic: Topic, cls: type[Any], count: int) -> list[Any]:
    end = time.monotonic() + 40
    while True:
        records = [record.value for record in everything(bus, topic)]
        found = [CODEC.decode(cls, value) for value in records if value != b"poison"]
        if len({record.session_id for record in found}) >= count:
            return found
        assert time.monotonic() < end, f"{len(found)} records on {topic.name}, waited for {count}"
        time.sleep(0.2)


def test_sessions_are_scored_once_whatever_happens_to_the_process(
    bus: BusSettings, start: Start
) -> None:
    publish(bus, Publication(SUITES, SUITE.suite_hash, SUITE))
    append(bus, trajectory(1, "It is done.") + trajectory(2, "No."))
    append(bus, trajectory(3, "It is done.", suite_hash="unpublished"))
    open_session = trajectory(4, "It is done.")
    append(bus, open_session[:2])

    first = start("services.judge")
    await_sessions(bus, RUN_PROGRESS, SessionNotice, 3)
    first.send_signal(signal.SIGKILL)
    first.wait()

    poisoned = [
        Outgoing(topic.full_name, "run-1/case/4", b"poison") for topic in (TRAJECTORIES, SCORES)
    ]
    append(bus, [*poisoned, Outgoing(SUITES.full_name, "other", b"poison")])
    # A late writer repeats what is over: its events are of a session nobody holds any more.
    append(bus, open_session[2:] + trajectory(5, "It is done.") + trajectory(1, "other")[1:])
    second = start("services.judge")
    notices = await_sessions(bus, RUN_PROGRESS, SessionNotice, 5)
    second.terminate()
    assert second.wait(20) == 0

    scores = await_sessions(bus, SCORES, SessionScored, 5)
    assert sorted(score.session_id for score in scores) == [f"run-1/case/{n}" for n in range(1, 6)]
    verdicts = {score.session_id[-1]: score.passed for score in scores}
    assert verdicts == {"1": True, "2": False, "3": None, "4": True, "5": True}
    assert {(n.session_id[-1], n.what, n.passed) for n in notices} == {
        (number, "scored", passed) for number, passed in verdicts.items()
    }
    unscored = next(score for score in scores if score.session_id.endswith("3"))
    assert {d.status for d in unscored.dimensions} == {"unscored"}
    assert "suite unpublished is not on the suites topic" in unscored.dimensions[0].reason
    buried = {letter.topic for letter in decoded(bus, DEAD_LETTERS, DeadLetter)}
    assert buried == {TRAJECTORIES.full_name, SCORES.full_name, SUITES.full_name}
