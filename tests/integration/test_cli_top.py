"""D07: `windtunnel top` on a broker that goes away and comes back, on terminals and in pipes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from schemas.topics import RUN_STATUS, SCORES, TRAJECTORIES
from services.cli.connection import Connection, Where
from services.cli.stack.broker import EmbeddedBroker
from services.cli.stack.directory import StackDirectory, StackInfo
from services.cli.topics import create_all
from services.cli.watching import stack_watch
from services.cli.watching.display import RunDisplay
from services.runtime.bus.connecting import connected
from services.runtime.bus.errors import BusUnavailable
from services.runtime.clock import SystemClock
from services.runtime.service import Publication, outgoing_record
from services.runtime.settings import Settings
from tests.contract.bus_suite import bus_settings
from tests.contract.bus_tools import free_port
from tests.lanes import require_lane
from tests.support import live, watched
from tests.support.running_stack import ROOT, wait_until
from tests.support.terminal import terminal

pytestmark = [pytest.mark.req("D07"), pytest.mark.timeout(120)]
HOSTILE = "evil\x1b[2J[bold]x[/]"


class Place:
    """A broker with runs on it, and no services."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = EmbeddedBroker(folder / "broker", free_port())
        self.broker.start()
        self.bus = bus_settings(self.broker)
        self.options = f"poll_pause_max_ms={self.bus.poll_pause_max_ms}"
        create_all(self.bus, partitions=2)
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL_")} | {
            "PYTHONPATH": str(ROOT),
            "WINDTUNNEL_BOOTSTRAP": self.broker.bootstrap,
            "WINDTUNNEL_BUS_OPTIONS": self.options,
        }

    def publish(self, *records: Any) -> None:
        """Statuses, scores and events, as of now."""
        now_ms = SystemClock().now_ms()
        publications = []
        for record in records:
            age_ms = watched.NOW_MS - record.at_ms
            changes: dict[str, Any] = {"at_ms": now_ms - age_ms}
            topic, key = TRAJECTORIES, getattr(record, "session_id", record.run_id)
            if hasattr(record, "dimensions"):
                topic = SCORES
            elif hasattr(record, "planned"):
                topic = RUN_STATUS
                changes["requested_at_ms"] = now_ms - 60_000
            publications.append(Publication(topic, key, replace(record, **changes)))
        live.append(self.bus, [outgoing_record(live.CODEC, one) for one in publications])

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "services.cli", "top", *options]

    def top(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*options), env=self.environ, cwd=self.folder, capture_output=True,
            text=True, timeout=40, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    made = Place(tmp_path_factory.mktemp("top"))
    try:
        made.publish(
            watched.status(started=3, ended=2, scored=2, categories={"happy": 2}),
            watched.status("refused", state="rejected", at_ms=watched.NOW_MS - 3_600_000),
            watched.scored("s1"),
            watched.scored("s2", passed=False, scenario_id=HOSTILE),
            *(watched.turn("s1", n, watched.NOW_MS - 1_000 * n) for n in range(5)),
        )
        yield made
    finally:
        made.broker.stop()


def test_once_is_plain_and_ends_with_0(place: Place) -> None:
    done = place.top("--once")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("watched-1 running: 2/20 ended, 2 scored")
    assert "1 active, 1 passed, 1 failed" in first
    assert "turns/s" in first
    assert "time left unknown" in first
    assert second.startswith("  failed: evil\\x1b[2J[bold]x[/] session s2: safety: told")


def test_once_as_json_is_a_document(place: Place) -> None:
    done = place.top("--once", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    (run,) = document["runs"]
    assert (run["run_id"], run["active"], run["passed"], run["failed"]) == ("watched-1", 1, 1, 1)
    assert run["left_s"] is None
    assert document["services"] == [], "there is no stack here that would have some"


def test_on_a_terminal_it_outlives_its_broker_and_restores_the_screen(place: Place) -> None:
    command = place.command("--interval", "0.2")
    with terminal(command, place.environ, place.folder, columns=80, lines=24) as shown:
        shown.wait_for("watched-1", drawn=True)
        shown.wait_for("evil\\x1b[2J[bold]x[/] session s2", drawn=True)
        assert "\x1b[2J" not in shown.raw
        place.broker.stop()
        shown.wait_for("has not answered for", drawn=True)
        assert "2/20" in shown.picture, "the last picture stays"
        place.broker.start()
        create_all(place.bus, partitions=2)
        shown.wait_for("has not answered for", drawn=True)
        place.publish(watched.status(started=4, ended=3, scored=2, categories={"happy": 3}))
        shown.wait_for("3/20", drawn=True)
        wait_until(lambda: "has not answered" not in shown.picture, 20, "the broker to be seen")
        assert shown.interrupt() == 130
        assert shown.is_restored


def test_on_a_terminal_that_can_do_nothing_it_tells_lines(place: Place) -> None:
    with terminal(place.command(), place.environ, place.folder, term="dumb") as shown:
        shown.wait_for("watched-1 running: ")
        assert shown.interrupt() == 130
        assert "\x1b" not in shown.raw


def test_a_run_that_is_watched_is_left_with_the_terminal_restored(place: Place) -> None:
    run = [sys.executable, "-m", "services.cli", "run", "shop", "--agent", "x", "--watch"]
    with terminal([*run, "--run-id", "left"], place.environ, place.folder) as shown:
        shown.wait_for("requested left")
        shown.wait_for("left  requested")
        assert shown.interrupt() == 130
        assert shown.is_restored
        assert shown.text.rstrip().endswith("windtunnel: interrupted")


def test_in_a_pipe_it_tells_lines_until_it_is_stopped(place: Place) -> None:
    process = subprocess.Popen(
        place.command(), env=place.environ, cwd=place.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(2)]
    finally:
        process.terminate()
        rest, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == "windtunnel: interrupted\n"
    assert any(line.startswith("watched-1 running") for line in said), said
    assert any("evil\\x1b[2J" in line for line in said), said
    assert "\x1b" not in "".join(said) + rest


def test_a_broker_that_was_never_there_is_an_error(place: Place) -> None:
    done = place.top("--bootstrap", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stack_that_was_started_anew_is_found_at_its_new_address(tmp_path: Path) -> None:
    directory = StackDirectory(tmp_path)
    directory.lock()
    places: list[Place] = []

    def start(run_id: str) -> Place:
        (tmp_path / run_id).mkdir()
        places.append(Place(tmp_path / run_id))
        names = ("WINDTUNNEL_BOOTSTRAP", "WINDTUNNEL_BUS_OPTIONS")
        environ = {name: places[-1].environ.pop(name) for name in names}
        places[-1].publish(watched.status(run_id))
        directory.write_info(StackInfo(os.getpid(), environ, {}))
        return places[-1]

    try:
        first = start("before")
        command = first.command("--interval", "0.2", "--dir", str(tmp_path))
        with terminal(command, first.environ, tmp_path, no_color="1") as shown:
            shown.wait_for("before", drawn=True)
            first.broker.stop()
            shown.wait_for("the broker at", drawn=True)
            start("after")
            shown.wait_for("after", drawn=True)
            assert "before" not in shown.picture
            assert "the broker at" not in shown.picture
            assert shown.interrupt() == 130
            assert re.search(r"\x1b\[([0-9;]*;)?[349][0-9]", shown.raw) is None, "no colours"
    finally:
        for made in places:
            made.broker.stop()
        directory.unlock()


def connection(place: Place) -> Connection:
    settings = Settings(bootstrap=place.broker.bootstrap, bus_options={"poll_pause_max_ms": 20})
    return Connection(settings, live.CODEC)


def test_a_broker_that_stays_away_ends_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_watch, "GIVE_UP_S", 1.0)
    monkeypatch.setenv("WINDTUNNEL_BUS_OPTIONS", place.options)

    async def watch() -> None:
        where = Where(tmp_path, place.broker.bootstrap)
        async with stack_watch.StackWatch(where, SystemClock()) as stack:
            assert [run.run_id for run in stack.picture().runs] == ["watched-1"]
            place.broker.stop()
            await stack.while_following(asyncio.sleep(60))

    try:
        with pytest.raises(BusUnavailable, match=r"given up after .* has not answered for"):
            asyncio.run(watch())
    finally:
        place.broker.start()


def test_a_run_is_followed_on_where_its_sessions_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path)
    try:
        delete_topic(place, SCORES.full_name)

        async def show() -> None:
            async with RunDisplay("watched-1", connection(place)) as display:
                display.status(watched.status(ended=2, categories={"happy": 2}))

        asyncio.run(show())
    finally:
        place.broker.stop()
    said = capsys.readouterr().err
    assert "failures and rates are not shown, only progress: topic windtunnel.scores" in said
    assert "watched-1 running: 2/20 ended" in said


def delete_topic(place: Place, name: str) -> None:
    admin = connected(KafkaAdminClient, bootstrap_servers=place.broker.bootstrap)
    try:
        admin.delete_topics([name])
    finally:
        admin.close()
