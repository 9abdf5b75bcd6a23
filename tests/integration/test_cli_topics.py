"""Commands and plain clients against topics on the embedded broker, without any service."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from schemas.codec import Codec
from schemas.gate import DiffEntry, GateStatus, Reason, Stat
from schemas.registry import DeadLetter
from schemas.runs import RunRequest, RunStatus
from schemas.scores import RunAggregates, ScenarioAggregate
from schemas.topics import (
    AGENTS,
    AGGREGATES,
    BASELINES,
    DEAD_LETTERS,
    GATE_STATUS,
    RUN_REQUESTS,
    RUN_STATUS,
    SUITES,
    Topic,
)
from services.cli.app import app
from services.cli.connection import Connection, Where, connect
from services.cli.records import Latest, publish
from services.cli.stack.broker import EmbeddedBroker
from services.cli.stack.ports import Ports
from services.cli.topics import create_all
from services.runtime.bus import BusProducer, BusSettings, Outgoing
from services.runtime.bus.admin import end_offsets, read_range
from services.runtime.service import Publication
from tests.lanes import require_lane

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "deploy" / "clients"
SUITE = ROOT / "deploy" / "demo" / "suite"
AGENTS_FOLDER = ROOT / "deploy" / "demo" / "agents"
EXIT = {"PASS": 0, "FAIL": 1, "INCONCLUSIVE": 3}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    folder = tmp_path_factory.mktemp("cli")
    broker = EmbeddedBroker(folder / "broker", Ports(folder).take("the broker"))
    address = broker.start()
    create_all(BusSettings(bootstrap=address), 2)
    yield address
    broker.stop()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, bootstrap: str, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINDTUNNEL_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("WINDTUNNEL_BUS_OPTIONS", "poll_pause_max_ms=20")


@pytest.fixture
def connection(bootstrap: str) -> Connection:
    return connect(Where(Path("nowhere")))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def append(connection: Connection, topic: Topic, key: str, record: Any) -> None:
    asyncio.run(publish(connection, Publication(topic, key, record)))


def append_raw(connection: Connection, topic: Topic, key: str, value: bytes) -> None:
    async def send() -> None:
        producer = BusProducer(connection.settings.bus(), "test")
        await producer.start()
        await producer.append([Outgoing(topic.full_name, key, value)])
        await producer.stop()

    asyncio.run(send())


def verdict(run_id: str, word: str, **fields: Any) -> GateStatus:
    reason = Reason(code="because", effect="fail", message=f"the reason of {run_id}")
    return GateStatus(run_id=run_id, verdict=word, reasons=(reason,), suite="shop", **fields)


def figures(run_id: str) -> RunAggregates:
    return RunAggregates(
        run_id=run_id,
        suite="shop",
        suite_hash="abc",
        suite_version="1",
        agent_id="shop-1",
        agent_name="agent",
        agent_fingerprint="f",
        planned=1,
        ended=1,
        scored=1,
        scenarios=(ScenarioAggregate(scenario_id="s", category="happy", planned=1, passed=1),),
    )


def test_creating_topics_again_changes_nothing(connection: Connection) -> None:
    before = end_offsets(connection.settings.bus(), RUN_REQUESTS.full_name)
    result = run("topics", "create", "--partitions", "7", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["created"] == []
    after = end_offsets(connection.settings.bus(), RUN_REQUESTS.full_name)
    assert before.keys() == after.keys() == {0, 1}


@pytest.mark.req("R01", "R18")
def test_agents_are_registered_together_or_not_at_all(tmp_path: Path) -> None:
    good = AGENTS_FOLDER / "good.json"
    (tmp_path / "bad.yaml").write_text("agent_id: bad\n")
    refused = run("agents", "register", str(good), "bad.yaml")
    assert refused.exit_code == 2
    assert "bad.yaml" in refused.stderr
    assert json.loads(run("agents", "list", "--json").stdout) == []
    registered = run("agents", "register", str(good), str(AGENTS_FOLDER / "regressed.json"))
    assert registered.exit_code == 0, registered.output
    listed = json.loads(run("agents", "list", "--json").stdout)
    assert [agent["agent_id"] for agent in listed] == [
        "order-support-good", "order-support-regressed",
    ]  # fmt: skip
    assert listed[0]["registered_at_ms"] > 0
    assert "order-support-good" in run("agents", "list").stdout


def test_suites_are_published_and_listed() -> None:
    published = run("scenarios", "publish", str(SUITE), "--json")
    assert published.exit_code == 0, published.output
    suite_hash = json.loads(published.stdout)["suite_hash"]
    (listed,) = json.loads(run("scenarios", "list", "--json").stdout)
    assert listed["suite_hash"] == suite_hash
    assert suite_hash in run("scenarios", "list").stdout


@pytest.mark.req("D05")
@pytest.mark.parametrize("word", ["PASS", "FAIL", "INCONCLUSIVE"])
def test_waiting_for_a_verdict_ends_with_its_exit_code(
    connection: Connection, bootstrap: str, word: str
) -> None:
    run_id = f"v-{word}"
    append(connection, GATE_STATUS, run_id, verdict(run_id, word))
    told = run("gate", "wait", run_id, "--timeout", "20")
    assert told.exit_code == EXIT[word], told.output
    assert told.stdout.startswith(f"{word}  {run_id}")
    assert f"the reason of {run_id}" in told.stdout
    as_json = run("gate", "wait", run_id, "--json")
    assert as_json.exit_code == EXIT[word]
    assert json.loads(as_json.stdout)["verdict"] == word
    plain = client("wait_for_verdict.py", bootstrap, run_id, "20")
    assert plain.returncode == EXIT[word], plain.stderr
    assert plain.stdout.splitlines() == [word, f"the reason of {run_id}"]


def test_no_verdict_in_time_is_not_a_pass(connection: Connection, bootstrap: str) -> None:
    status = RunStatus(run_id="slow", state="running", planned=9, ended=4, categories={"happy": 4})
    append(connection, RUN_STATUS, "slow", status)
    result = run("gate", "wait", "slow", "--timeout", "0.5")
    assert result.exit_code == 3
    assert "slow running: 4/9 ended" in result.stderr
    unknown = run("gate", "wait", "unknown", "--timeout", "0.5")
    assert unknown.exit_code == 3
    assert "nothing is known of a run unknown" in unknown.stderr
    assert client("wait_for_verdict.py", bootstrap, "unknown", "1").returncode == 3


def test_strange_records_on_the_status_topics_stop_nobody(
    connection: Connection, bootstrap: str
) -> None:
    for topic in (GATE_STATUS, RUN_STATUS, AGENTS, SUITES, BASELINES, AGGREGATES):
        append_raw(connection, topic, "poison", b"\x00not avro\xff")
    append(connection, GATE_STATUS, "after", verdict("after", "PASS"))
    assert run("gate", "wait", "after", "--timeout", "20").exit_code == 0
    assert client("wait_for_verdict.py", bootstrap, "after", "20").returncode == 0
    for arguments in (("agents", "list"), ("scenarios", "list"), ("baseline", "show")):
        assert run(*arguments).exit_code == 0


@pytest.mark.req("D04")
def test_a_run_request_needs_nothing_but_a_kafka_producer(
    connection: Connection, bootstrap: str
) -> None:
    done = client("publish_run.py", bootstrap, "plain-1", "shop", "shop-1")
    assert done.returncode == 0, done.stderr
    assert requests(connection)["plain-1"] == RunRequest(
        run_id="plain-1", suite="shop", agent_id="shop-1"
    )


def test_run_publishes_what_it_was_asked_for(connection: Connection) -> None:
    result = run(
        "run", "shop", "--agent", "shop-1", "--run-id", "cli-1", "--trials", "3", "--seed", "7",
        "--concurrency", "2", "--baseline", "none", "--scenario", "a", "--scenario", "b",
        "--label", "commit=abc", "--deadline", "60", "--no-wait", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"run_id": "cli-1"}
    request = requests(connection)["cli-1"]
    assert replace(request, requested_by="") == RunRequest(
        run_id="cli-1",
        suite="shop",
        agent_id="shop-1",
        trials=3,
        seed=7,
        concurrency=2,
        baseline="none",
        scenarios=("a", "b"),
        labels={"commit": "abc"},
        deadline_s=60,
    )


def test_a_run_id_is_used_once(connection: Connection) -> None:
    append(connection, RUN_STATUS, "used", RunStatus(run_id="used", state="running"))
    result = run("run", "shop", "--agent", "shop-1", "--run-id", "used")
    assert result.exit_code == 2
    assert "there is a run used already" in result.stderr
    assert "used" not in requests(connection)


@pytest.mark.req("V12")
def test_baselines_are_accepted_with_author_reason_and_diff(connection: Connection) -> None:
    for run_id in ("b1", "b2", "b3"):
        append(connection, AGGREGATES, run_id, figures(run_id))
    append(connection, GATE_STATUS, "b1", verdict("b1", "INCONCLUSIVE"))
    first = run("baseline", "accept", "b1", "--author", "ann", "--reason", "deployed", "--json")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["replaces_run_id"] is None

    stat = Stat(sessions=1, value=1.0)
    entry = DiffEntry(
        scenario_id="s", category="happy", dimension="safety", kind="gate", change="improved",
        baseline=stat, candidate=stat,
    )  # fmt: skip
    compared = verdict("b2", "FAIL", baseline_run_id="b1", diff=(entry,))
    append(connection, GATE_STATUS, "b2", compared)
    refused = run("baseline", "accept", "b2", "--author", "bob", "--reason", "new normal")
    assert refused.exit_code == 2
    assert "--despite-fail" in refused.stderr
    second = run(
        "baseline", "accept", "b2", "--author", "bob", "--reason", "new normal", "--despite-fail"
    )
    assert second.exit_code == 0, second.output

    unseen = run("baseline", "accept", "b3", "--author", "bob", "--reason", "x")
    assert unseen.exit_code == 2
    assert "no verdict yet" in unseen.stderr
    assert run("baseline", "accept", "nix", "--reason", "x").exit_code == 2

    shown = json.loads(run("baseline", "show", "shop/agent", "--json").stdout)
    assert (shown["run_id"], shown["author"], shown["reason"]) == ("b2", "bob", "new normal")
    assert shown["replaces_run_id"] == "b1"
    assert shown["diff"][0]["dimension"] == "safety"
    assert "by bob: new normal" in run("baseline", "show", "shop/agent").stdout
    missing = run("baseline", "show", "shop/other")
    assert missing.exit_code == 2
    assert "accepted are: shop/agent" in missing.stderr


def test_dead_letters_are_shown_without_acting_on_the_terminal(connection: Connection) -> None:
    empty = run("dead-letters", "list")
    assert empty.exit_code == 0
    assert "no dead letters" in empty.stderr
    for at_ms in (30, 10, 20):
        letter = DeadLetter(
            topic="windtunnel.run-requests",
            partition=1,
            offset=at_ms,
            key=b"k\x1b[31m",
            value=b"\xff\x00" * 300 + b"\x1b]0;owned\x07",
            service="dispatcher",
            error="no\x1b[2Jidea\nat all",
            at_ms=at_ms,
        )
        append(connection, DEAD_LETTERS, "k", letter)
    append_raw(connection, DEAD_LETTERS, "poison", b"not a letter")
    listed = run("dead-letters", "list", "--limit", "10")
    assert listed.exit_code == 0, listed.output
    assert "\x1b" not in listed.stdout
    assert "\x07" not in listed.stdout
    assert "no\\x1b[2Jidea" in listed.stdout
    assert "more bytes" in listed.stdout
    as_json = run("dead-letters", "list", "--json", "--limit", "2")
    letters = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert len(letters) == 2
    assert letters[0]["offset"] == 20
    assert letters[1]["service"] == "cli"


def requests(connection: Connection) -> dict[str, RunRequest]:
    bus, topic, codec = connection.settings.bus(), RUN_REQUESTS.full_name, Codec()
    found = {}
    for partition, end in end_offsets(bus, topic).items():
        for incoming in read_range(bus, topic, partition, 0, end):
            request = codec.decode(RunRequest, incoming.value)
            assert incoming.key == request.run_id
            found[request.run_id] = request
    return found


def client(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CLIENTS / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_reading_a_topic_counts_what_it_cannot_read(connection: Connection) -> None:
    append_raw(connection, AGENTS, "damaged", b"\xc3\x01short")
    table = asyncio.run(Latest(connection, AGENTS, object).read())
    assert table.unreadable >= 1
