"""The guide's snippets, run as they are printed, against the real tool proxy."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from services.agent_kit import Envelope, set_current
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import STATE, MemoryLog, make_world

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/agent-kit.md").read_text()
HTTP, CODE, THREADS, ACTORS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
ORDER = STATE["orders"]["1"]


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as running:
        running.start("s1")
        yield running


def envelope_of(server: Server) -> Envelope:
    return Envelope(
        task_id=1, run_id=2, user_instruction="hi", task_input={}, proxy_url=server.base(),
        run_token=server.token(), run_token_jti="jti-s1",
    )  # fmt: skip


def defined(snippet: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(snippet, "docs/agent-kit.md", "exec"), names)
    return names


@pytest.mark.req("R13", "R17", "R26")
def test_the_http_agent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "secret")
    client = TestClient(defined(HTTP)["app"])
    headers = {
        "Authorization": "Bearer secret", "X-Pipelines-Run-Token": server.token(),
        "X-Pipelines-Odyssey-Proxy-Url": server.base(), "X-Pipelines-Run-Id": "1",
        "X-Pipelines-Task-Id": "2", "X-Pipelines-Run-Token-Jti": "jti-s1",
    }  # fmt: skip
    body = {"input": {"user_instruction": "Where is it?", "input": {"order_id": "1"}}}
    answer = client.post("/dispatch", json=body, headers=headers)
    assert answer.json() == {"final_response": f"Your order is {ORDER['status']}."}
    assert client.post("/dispatch", json={"ping": True}).status_code == 401


@pytest.mark.req("R20")
def test_the_code_agent(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its upload is the snippet and kit.py; a loop is running, and nothing is bound."""
    (tmp_path / "kit.py").write_text((ROOT / "services/agent_kit/kit.py").read_text())
    (tmp_path / "code_agent.py").write_text(CODE)
    environ = {
        "PIPELINES_ODYSSEY_PROXY_URL": server.base(), "PIPELINES_RUN_TOKEN": server.token(),
        "PIPELINES_RUN_TOKEN_JTI": "jti-s1", "PIPELINES_RUN_ID": "1", "PIPELINES_TASK_ID": "2",
        "_PIPELINES_TASK_INPUT_JSON": "{}",
    }  # fmt: skip
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path)

    async def driver() -> Any:
        import code_agent  # type: ignore[import-not-found]

        task = {"user_instruction": "Where is it?", "input": {"order_id": "1"}, "task_id": 2}
        return code_agent.run(task, proxy_url=server.base(), run_token=server.token())

    try:
        assert asyncio.run(driver()) == {"final_response": f"Your order is {ORDER['status']}."}
    finally:
        for name in ("code_agent", "kit"):
            sys.modules.pop(name, None)


@pytest.mark.req("R20")
def test_threads(server: Server) -> None:
    with set_current(envelope_of(server)):
        found = defined(THREADS)["all_orders"](["1", "2", "1"])
    assert [order["id"] for order in found] == ["1", "2", "1"]


@pytest.mark.req("R09", "R10")
def test_sub_agents(server: Server) -> None:
    with set_current(envelope_of(server)):
        assert defined(ACTORS)["supervise"]("1") == ORDER
    bodies = [event.trace or event.tool_called for event in server.recorded()]
    assert [body.actor for body in bodies if body] == [
        "supervisor", "supervisor", "supervisor/refunds",
    ]  # fmt: skip
