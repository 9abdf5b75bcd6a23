"""`windtunnel agents` and the API's page, against a running stack."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.registry import SourcePart
from schemas.topics import SOURCES
from services.cli.stack.broker import EmbeddedBroker
from tests.lanes import require_lane
from tests.support.control import agent_document
from tests.support.http_server import serve
from tests.support.running_stack import ROOT, RunningStack, running_stack

AGENT_SECRET = "Bearer agents-own-token-canary"
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    folder = tmp_path_factory.mktemp("agents")
    with running_stack(
        folder, "--replicas", "control=2", environ={"AGENT_AUTH": AGENT_SECRET}
    ) as found:
        yield found
        token = (found.directory / "control-token").read_text().strip()
        assert token not in found.logs()
        assert AGENT_SECRET not in found.logs()


def write(stack: RunningStack, name: str, document: dict[str, Any]) -> str:
    path = stack.directory.parent / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return name


def run(stack: RunningStack, *arguments: str) -> str:
    done = stack.cli("agents", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.req("R18", "R20")
def test_agents_of_every_kind_are_registered_shown_flipped_and_removed(
    stack: RunningStack,
) -> None:
    plain = write(stack, "plain.json", agent_document("plain"))
    coded = {"agent_id": "coded", "name": "coded", "kind": "code", "code": {"path": "agent"}}
    folder = stack.directory.parent / "registrations" / "agent"
    folder.mkdir(parents=True)
    (folder / "main.py").write_text(
        "def run(task_input, *, proxy_url, run_token):\n    return {'final_response': 'x'}\n"
    )
    # A path is relative to the registration, wherever the command is typed.
    told = run(stack, "register", plain, write(stack, "registrations/coded.json", coded))
    assert "registered plain (support) at https://agent.example/dispatch" in told
    parts = stack.records(SOURCES, SourcePart)
    assert "registered coded (coded) at paste " + parts[0].source_hash[:8] in told
    shown = json.loads(run(stack, "show", "coded"))
    assert shown["code"]["published"]["source_hash"] == parts[0].source_hash
    # What is shown registers the same again, without the source at hand.
    again = run(stack, "register", write(stack, "again.json", {**shown, "name": "other"}))
    assert "registered coded (other)" in again

    run(stack, "set-mode", "plain", "refund", "passthrough", "--target", "https://t.example/r")
    tools = json.loads(run(stack, "show", "plain"))["tools"]
    assert [tool["mode"] for tool in tools] == ["sandbox", "passthrough"]
    run(stack, "set-mode", "plain", "refund", "sandbox")
    assert json.loads(run(stack, "show", "plain"))["tools"][1].get("target") is None
    for arguments, message in (
        (("plain", "refund", "passthrough"), "expected the URL of the real tool"),
        (("plain", "nothing", "sandbox"), "expected the name of one of the agent's tools"),
        (("plain", "refund", "real"), "expected sandbox or passthrough"),
        (("nobody", "refund", "sandbox"), "no agent nobody is registered"),
    ):
        refused = stack.cli("agents", "set-mode", *arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr

    assert {"plain", "coded"} <= {a["agent_id"] for a in json.loads(run(stack, "list", "--json"))}
    assert "removed coded" in run(stack, "remove", "coded")
    assert stack.cli("agents", "remove", "coded").returncode == 2
    assert "coded" not in run(stack, "list")


@pytest.mark.req("R20")
def test_nothing_is_published_if_any_source_cannot_be_used(stack: RunningStack) -> None:
    before = len(stack.records(SOURCES, SourcePart))
    good = {"agent_id": "good", "name": "x", "kind": "code",
            "code": {"paste": "def run(): ...  # one of its own"}}  # fmt: skip
    bad = {**good, "agent_id": "bad", "code": {"path": "nowhere"}}
    names = [write(stack, "good.json", good), write(stack, "bad.json", bad)]
    refused = stack.cli("agents", "register", *names)
    assert refused.returncode == 2
    assert "bad.json: code: " in refused.stderr
    assert len(stack.records(SOURCES, SourcePart)) == before
    assert stack.cli("agents", "show", "good").returncode == 2


@pytest.mark.req("R17")
def test_a_connection_is_tested_where_the_secrets_are(stack: RunningStack) -> None:
    async def dispatch(request: Request) -> Response:
        good = request.headers.get("authorization") == AGENT_SECRET
        return JSONResponse({"ok": good}, 200 if good else 401)

    with serve(Starlette(routes=[Route("/d", dispatch, methods=["POST"])])) as url:
        document = agent_document("tested", endpoint=f"{url}/d")
        run(stack, "register", write(stack, "tested.json", document))
        told = run(stack, "test-connection", "tested")
        report = json.loads(run(stack, "test-connection", "tested", "--json"))
    assert "ping_wrong_auth" in told
    assert report["ok"] is True
    failed = stack.cli("agents", "test-connection", "tested")
    assert failed.returncode == 1
    assert "unreachable" in failed.stdout or "cannot connect" in failed.stdout
    assert "canary" not in told + failed.stdout + failed.stderr
    unknown = stack.cli("agents", "test-connection", "nobody")
    assert (unknown.returncode, "agent_unknown" in unknown.stderr) == (2, True)


def test_another_api_takes_its_own_token(stack: RunningStack) -> None:
    url = stack.endpoints["control-1"]
    arguments = [sys.executable, "-m", "services.cli", "agents", "test-connection", "nobody"]

    def ask(**environ: str) -> str:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "WINDTUNNEL_CONTROL_URL": url, **environ},
        )  # fmt: skip
        assert done.returncode == 2
        return done.stderr

    assert "WINDTUNNEL_CONTROL_TOKEN: set it" in ask()
    wrong = ask(WINDTUNNEL_CONTROL_TOKEN="wrong-token-wrong-token")
    assert "401 token_invalid" in wrong
    assert "wrong-token" not in wrong
    token = (stack.directory / "control-token").read_text().strip()
    assert "404 agent_unknown" in ask(WINDTUNNEL_CONTROL_TOKEN=token)
    assert "no control API answers" in ask(
        WINDTUNNEL_CONTROL_TOKEN=token, WINDTUNNEL_CONTROL_URL="http://127.0.0.1:9"
    )


def test_the_token_is_a_private_file_and_given_to_the_control_api_alone(
    stack: RunningStack,
) -> None:
    path = stack.directory / "control-token"
    assert path.stat().st_mode & 0o077 == 0
    token = path.read_text().strip()
    assert token not in (stack.directory / "stack.json").read_text()
    stack.start_agent()
    holders = [
        process.cmdline()[-1]
        for process in psutil.Process(stack.process.pid).children(recursive=True)
        if token in process.environ().values()
    ]
    assert holders == ["services.control"] * 2


def test_the_examples_of_the_page_work(stack: RunningStack) -> None:
    require_lane("curl", shutil.which("curl") is not None, "install curl")
    page = (ROOT / "docs" / "control-api.md").read_text()
    script = "set -euo pipefail\n" + "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL))
    done = subprocess.run(
        ["bash", "-c", script], cwd=stack.directory.parent, capture_output=True, text=True,
        timeout=60, check=False, env={**os.environ, "PATH": f"{_bin()}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert '"ok": false' in done.stdout
    url, token = stack.endpoints["control-1"], (stack.directory / "control-token").read_text()
    answer = httpx.get(
        f"{url}/api/agents/support-1", headers={"Authorization": f"Bearer {token.strip()}"}
    )
    assert answer.status_code == 404


def _bin() -> Path:
    return Path(sys.executable).parent
