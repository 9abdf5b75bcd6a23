"""A proxy process with worlds of every kind: tables, made-up answers and a model, over a kill."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from schemas.briefs import ToolSpec
from schemas.topics import DEAD_LETTERS, TRAJECTORIES
from services.cli.stack.broker import EmbeddedBroker
from services.runtime.bus import TopicSpec, create_topics
from tests.contract.bus_suite import bus_settings
from tests.integration import test_tool_proxy_service as process
from tests.integration.test_tool_proxy_service import Caller, append, broker, events, spawn
from tests.support import scripted_model
from tests.support.scripted_model import KEY, says
from tests.support.tool_proxy import make_brief, specs, started
from tests.support.worlds import SHOP

__all__ = ["broker"]  # the fixture

pytestmark = [pytest.mark.req("V05", "V10"), pytest.mark.timeout(400)]

PRICE = ToolSpec(
    name="price",
    input_schema={"type": "object"},
    output_schema={
        "type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"],
    },
)  # fmt: skip


def _until_up(caller: Caller, killed: str = "") -> None:
    """The model's library takes its time to load."""
    deadline = time.monotonic() + 120
    while caller.url("tables") in ("", killed):
        assert time.monotonic() < deadline, "the proxy does not own its sessions"
        time.sleep(0.2)


def test_every_kind_of_world_goes_on_after_a_kill(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = bus_settings(broker)
    create_topics(settings, [TopicSpec(TRAJECTORIES.full_name, process.PARTITIONS, {})])
    create_topics(settings, [TopicSpec(DEAD_LETTERS.full_name, 1, {})])
    log_file = tmp_path / "service.log"
    caller = Caller(settings)
    with scripted_model.provider() as provider:
        monkeypatch.setattr(process, "EXTRA", {
            "WINDTUNNEL_WORLDS": "tests.support.worlds:SHOP",
            "WINDTUNNEL_WORLD_MODEL": "openai/world-1",
            "WINDTUNNEL_WORLD_MODEL_API_BASE": provider.url,
            "WINDTUNNEL_WORLD_MODEL_API_KEY": KEY,
        })  # fmt: skip
        provider.replies = [says('{"response": {"cents": "no"}}'),
                            says('{"response": {"cents": 5}}')]  # fmt: skip
        running = spawn(broker, log_file)
        try:
            asyncio.run(append(
                settings,
                started(make_brief(world="shop", tools=specs(SHOP)), "tables"),
                started(make_brief(world="", answers="schema", tools=[PRICE]), "schemas"),
                started(make_brief(world="", answers="model", tools=[PRICE]), "model"),
            ))  # fmt: skip
            calls: list[tuple[str, str, dict[str, Any]]] = [
                ("tables", "order", {"customer": "c2", "total": 3.0}),
                ("schemas", "price", {"of": "tea"}),
                ("model", "price", {"of": "tea"}),
            ]
            _until_up(caller)
            first = [caller.patiently(*call)["response"] for call in calls]
            assert first[0] == "2"
            assert first[2] == {"cents": 5}

            killed = caller.url("tables")
            running.send_signal(signal.SIGKILL)
            running.wait(10)
            running = spawn(broker, log_file)
            caller.post_turn()
            _until_up(caller, killed)
            assert [caller.patiently(*call)["response"] for call in calls] == first
            assert len(provider.requests) == 2  # asked once, and repaired once
            seen = caller.patiently("tables", "sql", {"query": "SELECT count(*) AS n FROM orders"})
            assert seen["response"] == [{"n": 2}]
            other = caller.patiently("schemas", "price", {"of": "ink"})["response"]
            assert other != first[1]
            assert isinstance(other["cents"], int)
        finally:
            running.kill()
            running.wait(10)
    (played,) = [e.tool_called for e in events(settings, "model") if e.tool_called]
    assert played.usage is not None
    assert played.usage.input_tokens == 22
    assert json.loads(played.validation or "{}") == {"valid": True}
    assert KEY not in log_file.read_text()
