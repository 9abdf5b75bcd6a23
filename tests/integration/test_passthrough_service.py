"""Passthrough by the tool proxy as its own process, on the embedded broker."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.briefs import ToolSpec
from schemas.topics import DEAD_LETTERS, TRAJECTORIES
from services.cli.stack.broker import EmbeddedBroker
from services.runtime.bus import BusSettings, TopicSpec, create_topics
from tests.contract.bus_suite import bus_settings
from tests.contract.bus_tools import free_port
from tests.integration.test_tool_proxy_service import Caller, append, events, spawn
from tests.lanes import require_lane
from tests.support.http_server import serve
from tests.support.tool_proxy import make_brief, make_world, specs, started

pytestmark = pytest.mark.req("R07", "R19")
CANARY = "canary-of-the-service-4711"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    require_lane("embedded-broker", EmbeddedBroker.binary() is not None, "pip install noida-db")
    one = EmbeddedBroker(tmp_path / "data", free_port())
    one.start()
    yield one
    one.stop()


@contextmanager
def running(broker: EmbeddedBroker, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = spawn(broker, log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def prepare(broker: EmbeddedBroker, *tools: ToolSpec) -> BusSettings:
    settings = bus_settings(broker)
    create_topics(settings, [TopicSpec(TRAJECTORIES.full_name, 3, TRAJECTORIES.config())])
    create_topics(settings, [TopicSpec(DEAD_LETTERS.full_name, 1, {})])
    brief = make_brief(tools=specs(make_world(), *tools))
    asyncio.run(append(settings, started(brief)))
    return settings


def test_real_tools_through_the_service(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    async def tool(request: Request) -> Response:
        seen.append(dict(request.headers))
        size = int((await request.json()).get("size", 0))
        return Response("x" * size)

    app = Starlette(routes=[Route("/", tool, methods=["POST"])])
    monkeypatch.setenv("TOOL_KEY", CANARY)
    with serve(app) as url:
        values: dict[str, Any] = {"input_schema": {}, "mode": "passthrough"}
        auth = {"target_auth_header": "X-Key", "target_auth_ref": "env:TOOL_KEY"}
        settings = prepare(
            broker,
            ToolSpec(name="real", target=url, **auth, **values),
            ToolSpec(name="inside", target="http://127.0.0.1:1/", **values),
        )
        monkeypatch.setattr(
            "tests.integration.test_tool_proxy_service.EXTRA",
            {"WINDTUNNEL_PASSTHROUGH_ALLOW": url.removeprefix("http://")},
        )
        log_file = tmp_path / "service.log"
        caller = Caller(settings)
        with running(broker, log_file) as process:
            first = caller.patiently("s1", "real", {"size": 3})
            assert (first["response"], first["source"]) == ("xxx", "passthrough")
            # As large as the contract allows: it has to fit into a record of the log as well.
            large = caller.patiently("s1", "real", {"size": 1_040_000})
            assert (len(large["response"]), large["source"]) == (1_040_000, "passthrough")
            over = caller.patiently("s1", "real", {"size": 1_100_000})
            assert over["response"]["error"]["code"] == "response_too_large"
            refused = caller.call("s1", "inside", {})
            assert (refused.status_code, refused.json()["error"]["code"]) == (502, "target_refused")
            process.terminate()
            assert process.wait(20) == 0, log_file.read_text()
    calls = [event.tool_called for event in events(settings, "s1") if event.tool_called]
    assert [(call.call, call.source) for call in calls] == [
        (1, "passthrough"), (2, "passthrough"), (3, "transport_error"), (4, "error"),
    ]  # fmt: skip
    assert {headers["x-key"] for headers in seen} == {CANARY}
    assert CANARY not in log_file.read_text()
    assert "127.0.0.1:1 is not public" in log_file.read_text()


def test_an_allow_list_that_means_nothing_is_a_configuration_error(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tests.integration.test_tool_proxy_service.EXTRA",
        {"WINDTUNNEL_PASSTHROUGH_ALLOW": "tools.internal, 10.0.0.1/8"},
    )
    log_file = tmp_path / "service.log"
    with running(broker, log_file) as process:
        assert process.wait(30) == 2
    assert "WINDTUNNEL_PASSTHROUGH_ALLOW" in log_file.read_text()
    assert "10.0.0.1/8" in log_file.read_text()
