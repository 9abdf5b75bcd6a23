"""Two replicas of the control API as processes of their own, over the embedded broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.codec import Codec
from schemas.registry import AgentRegistration, SourcePart
from schemas.topics import AGENTS, SOURCES
from services.cli.stack.broker import EmbeddedBroker
from services.cli.topics import create_all
from services.runtime.bus.admin import beginning_offsets, end_offsets, read_range
from services.runtime.bus.records import Incoming
from services.runtime.bus.settings import BusSettings
from tests.lanes import require_lane
from tests.support.control import agent_document
from tests.support.http_server import serve
from tests.support.running_stack import ROOT, free_port, wait_until

TOKENS = ("first-control-token-canary", "second-control-token-canary")
AGENT_SECRET = "Bearer agents-own-token-canary"
pytestmark = pytest.mark.timeout(240)


class Deployment:
    """A broker and two replicas."""

    def __init__(self, folder: Path) -> None:
        self.broker = EmbeddedBroker(folder / "broker", free_port())
        bootstrap = self.broker.start()
        self.bus = BusSettings(bootstrap, **self.broker.bus_options)
        create_all(self.bus, 2)
        options = ",".join(f"{name}={value}" for name, value in self.broker.bus_options.items())
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WINDTUNNEL_BOOTSTRAP": bootstrap,
            "WINDTUNNEL_BUS_OPTIONS": f"{options},connect_timeout_ms=2000",
            "WINDTUNNEL_CONTROL_TOKEN": ",".join(TOKENS),
            "WINDTUNNEL_READ_TIMEOUT_S": "4",
            "WINDTUNNEL_APPEND_TIMEOUT_S": "4",
            "AGENT_AUTH": AGENT_SECRET,
        }
        self.logs = [folder / f"control-{n}.log" for n in range(2)]
        self.ports = [free_port() for _ in range(2)]
        self.processes = [self._start(n) for n in range(2)]
        self.clients = [
            httpx.Client(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"Bearer {token}"},
                timeout=30,
            )
            for port, token in zip(self.ports, TOKENS, strict=True)
        ]
        for client in self.clients:
            wait_until(lambda client=client: _ready(client), 30, "a replica", self.said)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        environ = {
            **self.environ,
            "WINDTUNNEL_REPLICA": str(number),
            "WINDTUNNEL_HTTP_PORT": str(self.ports[number]),
        }
        with self.logs[number].open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "services.control"], env=environ, stdout=log, stderr=log
            )

    def restart(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGKILL)
        self.processes[number].wait()
        self.processes[number] = self._start(number)
        wait_until(lambda: _ready(self.clients[number]), 30, "a replica", self.said)

    def said(self) -> str:
        return "\n".join(log.read_text() for log in self.logs)

    def read(self, topic: Any) -> list[Incoming]:
        begins = beginning_offsets(self.bus, topic.full_name)
        return [
            incoming
            for number, end in end_offsets(self.bus, topic.full_name).items()
            for incoming in read_range(self.bus, topic.full_name, number, begins[number], end)
        ]

    def stop(self) -> list[int]:
        for process in self.processes:
            process.terminate()
        codes = [process.wait(20) for process in self.processes]
        for client in self.clients:
            client.close()
        return codes


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    found = Deployment(tmp_path_factory.mktemp("control"))
    try:
        yield found
        assert found.stop() == [0, 0], found.said()
    finally:
        for process in found.processes:
            process.kill()
        found.broker.stop()
    for secret in (*TOKENS, AGENT_SECRET.removeprefix("Bearer ")):
        assert secret not in found.said()


@pytest.mark.req("R18", "D01")
def test_each_replica_answers_by_what_was_written_at_the_other(deployment: Deployment) -> None:
    one, two = deployment.clients
    for number in range(4):
        agent_id = f"seen-{number}"
        made = one.post("/api/agents", json=agent_document(agent_id))
        assert made.status_code == 201, made.text
        shown = two.get(f"/api/agents/{agent_id}")
        assert shown.json() == made.json()
        changed = two.put(f"/api/agents/{agent_id}", json={"name": f"name-{number}"})
        assert changed.status_code == 200, changed.text
        assert one.get(f"/api/agents/{agent_id}").headers["ETag"] == changed.headers["ETag"]
        stale = {"If-Match": made.headers["ETag"]}
        assert one.delete(f"/api/agents/{agent_id}", headers=stale).status_code == 412
    assert one.delete("/api/agents/seen-0").status_code == 204
    assert two.get("/api/agents/seen-0").status_code == 404
    ids = [agent["agent_id"] for agent in two.get("/api/agents").json()["agents"]]
    assert [i for i in ids if i.startswith("seen-")] == ["seen-1", "seen-2", "seen-3"]
    records = [r for r in deployment.read(AGENTS) if r.key == "seen-3"]
    last = Codec().decode(AgentRegistration, records[-1].value)
    assert (last.name, last.auth_value_ref) == ("name-3", "env:AGENT_AUTH")


def test_of_two_creations_at_two_replicas_at_most_one_is_told_that_it_stands(
    deployment: Deployment,
) -> None:
    for number in range(6):
        documents = [agent_document(f"race-{number}", name=f"name-{n}") for n in range(2)]
        with ThreadPoolExecutor(2) as pool:
            answers = list(
                pool.map(
                    lambda pair: pair[0].post("/api/agents", json=pair[1]),
                    zip(deployment.clients, documents, strict=True),
                )
            )
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses == [201, 409], [answer.text for answer in answers]


@pytest.mark.req("R18")
def test_a_replica_that_was_killed_knows_everything_again(deployment: Deployment) -> None:
    one, two = deployment.clients
    one.post("/api/agents", json=agent_document("kept"))
    deployment.restart(1)
    assert two.get("/api/agents/kept").json() == one.get("/api/agents/kept").json()


@pytest.mark.req("R20")
def test_pasted_source_is_on_its_topic_when_the_agent_is_registered(
    deployment: Deployment,
) -> None:
    code = {"paste": "def run(task_input, *, proxy_url, run_token):\n    return {}\n"}
    body = {"agent_id": "coded", "name": "coded", "kind": "code", "code": code}
    made = deployment.clients[0].post("/api/agents", json=body)
    assert made.status_code == 201, made.text
    published = made.json()["code"]["published"]
    parts = [r for r in deployment.read(SOURCES) if r.key == f"{published['source_hash']}/0"]
    part = Codec().decode(SourcePart, parts[0].value)
    assert (part.part, part.parts) == (0, published["parts"])


@pytest.mark.req("R17")
@pytest.mark.parametrize(("checks_first", "ok"), [(True, True), (False, False)])
def test_an_agent_that_answers_ping_before_auth_is_reported(
    deployment: Deployment, checks_first: bool, ok: bool
) -> None:
    bodies: list[bytes] = []

    async def dispatch(request: Request) -> Response:
        bodies.append(await request.body())
        if checks_first and request.headers.get("authorization") != AGENT_SECRET:
            return JSONResponse({"detail": "no"}, 401)
        return JSONResponse({"ok": True})

    agent = Starlette(routes=[Route("/dispatch", dispatch, methods=["POST"])])
    with serve(agent) as url:
        agent_id = f"pinged-{checks_first}".lower()
        document = agent_document(agent_id, endpoint=f"{url}/dispatch")
        assert deployment.clients[0].post("/api/agents", json=document).status_code == 201
        # The other replica, which has just read of it.
        answer = deployment.clients[1].post(f"/api/agents/{agent_id}/test-connection")
    report = answer.json()
    assert (answer.status_code, report["ok"], report["reachable"]) == (200, ok, True), report
    assert [probe["name"] for probe in report["probes"]] == [
        "ping", "ping_wrong_auth", "ping_no_auth",
    ]  # fmt: skip
    assert set(bodies) == {b'{"ping": true}'}
    assert "canary" not in answer.text


@pytest.mark.req("R17", "R18")
def test_a_secret_that_is_not_there_is_named_by_its_reference(deployment: Deployment) -> None:
    document = agent_document("no-secret", auth_value_ref="env:NOWHERE_TO_BE_FOUND")
    deployment.clients[0].post("/api/agents", json=document)
    answer = deployment.clients[0].post("/api/agents/no-secret/test-connection")
    (probe,) = answer.json()["probes"]
    assert probe["verdict"] == "failed"
    assert "env:NOWHERE_TO_BE_FOUND" in probe["detail"]


def test_the_largest_registration_is_kept_whole_and_a_larger_one_refused(
    deployment: Deployment,
) -> None:
    document = agent_document("large", build={"notes": "é" * 990_000})
    assert deployment.clients[0].post("/api/agents", json=document).status_code == 201
    shown = deployment.clients[1].get("/api/agents/large").json()
    assert shown["build"] == document["build"]
    document = agent_document("larger", build={"notes": "é" * 1_000_000})
    answer = deployment.clients[0].post("/api/agents", json=document)
    assert answer.json()["error"]["code"] == "registration_too_large"
    assert deployment.clients[1].get("/api/agents/larger").status_code == 404


@pytest.mark.req("D07", "R18")
def test_metrics_count_requests_and_hold_no_ids(deployment: Deployment) -> None:
    text = deployment.clients[0].get("/metrics").text
    assert 'windtunnel_control_requests_total{route="POST /api/agents",status="201"}' in text
    assert "canary" not in text
    assert "seen-" not in text


@pytest.mark.parametrize("token", ["", "short", "long-enough-for-a-token,short"])
def test_without_a_proper_token_the_service_does_not_start(
    deployment: Deployment, token: str
) -> None:
    environ = {**deployment.environ, "WINDTUNNEL_CONTROL_TOKEN": token}
    if not token:
        del environ["WINDTUNNEL_CONTROL_TOKEN"]
    done = subprocess.run(
        [sys.executable, "-m", "services.control"], env=environ, timeout=60, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "WINDTUNNEL_CONTROL_TOKEN" in done.stderr
    assert "long-enough" not in done.stderr


@pytest.mark.req("R18")
def test_an_outage_of_the_broker_is_a_retryable_answer(deployment: Deployment) -> None:
    """The last test of this module: the broker does not come back."""
    one = deployment.clients[0]
    assert one.get("/api/agents/kept").status_code == 200
    deployment.broker.stop()
    for method, path, body in (
        ("GET", "/api/agents/kept", None),
        ("PUT", "/api/agents/kept", {"name": "other"}),
        ("DELETE", "/api/agents/kept", None),
    ):
        answer = one.request(method, path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "log_unavailable"), answer.text
        assert error["retryable"] is True
    assert one.get("/healthz").status_code == 200
