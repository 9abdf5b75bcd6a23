"""The control API on an agents topic in memory: any number of replicas over one log."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.applications import Starlette

from schemas.codec import Codec
from schemas.registry import AgentRegistration
from schemas.topics import AGENTS
from services.control.api import AgentsApi
from services.control.app import create_app, mounted
from services.control.registry import Registry
from services.control.requests import Bearers, Bodies
from services.control.route import Gatekeeper
from services.control.sources import PublishedSources
from services.runtime.addresses import AllowList
from services.runtime.agents.connection import ConnectionReport, Probe
from services.runtime.bus.errors import BusUnavailable
from services.runtime.bus.records import Incoming
from services.runtime.service import Publication
from tests.support.services import FixedClock, OfflineService

TOKEN = "control-token-of-the-tests"
OTHER_TOKEN = "the-token-that-replaces-it"
_CODEC = Codec()


class MemoryTopic:
    """The agents topic. `down` names what fails: read, append, or lost (appended, not told)."""

    def __init__(self) -> None:
        self.records: list[Incoming] = []
        self.down = ""
        self.before_append: Callable[[], None] = lambda: None

    def append(self, agent_id: str, agent: AgentRegistration | None) -> None:
        value = b"" if agent is None else _CODEC.encode(agent)
        self.records.append(
            Incoming(AGENTS.full_name, 0, len(self.records), agent_id, value, {}, 0)
        )


class MemoryRegistry(Registry):
    """A registry whose broker is a list."""

    def __init__(self, service: OfflineService, topic: MemoryTopic) -> None:
        super().__init__(service, append_timeout_s=1, read_timeout_s=1)
        self._memory, self._position, self.readings = topic, 0, 0

    async def catch_up(self, timeout_s: float) -> None:
        self.readings += 1
        if self._memory.down == "read":
            raise BusUnavailable("the broker is away")
        end = len(self._memory.records)
        await asyncio.sleep(0)
        while self._position < end:
            self.apply(self._memory.records[self._position])
            self._position += 1

    def forget(self) -> None:
        """Start again on an empty topic."""
        self._memory.records.clear()
        self._values.clear()
        self._position = 0

    async def _append(self, agent_id: str, agent: AgentRegistration | None) -> None:
        await asyncio.sleep(0)
        self._memory.before_append()
        if self._memory.down == "append":
            raise BusUnavailable("not acknowledged")
        self._memory.append(agent_id, agent)
        if self._memory.down == "lost":
            raise BusUnavailable("not acknowledged in time")


class Replica:
    """One replica of the API. Must be made inside a running loop."""

    def __init__(self, topic: MemoryTopic, *, max_requests: int = 64, **bodies: Any) -> None:
        self.service = OfflineService(clock=FixedClock())
        self.registry = MemoryRegistry(self.service, topic)
        self.tested: list[tuple[str, float]] = []
        self.test: Callable[[AgentRegistration], ConnectionReport] = report_of
        self.parts: list[Publication] = []
        api = AgentsApi(
            self.registry,
            Bodies(**{"timeout_s": 5, "uploads": 2, **bodies}),
            PublishedSources(self._publish_parts, AllowList(), 2),
            self._test,
            self.service.clock,
        )
        gatekeeper = Gatekeeper(
            Bearers([OTHER_TOKEN, TOKEN]), self.service.clock, self.service.metrics,
            self.service.log, max_requests,
        )  # fmt: skip
        self.fastapi: FastAPI = create_app(api, gatekeeper)
        self.app = Starlette(routes=[mounted(self.fastapi)])
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app),
            base_url="http://control",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )

    async def _publish_parts(self, *publications: Publication) -> None:
        await asyncio.sleep(0)
        self.parts += publications

    async def _test(self, agent: AgentRegistration, timeout_s: float) -> ConnectionReport:
        self.tested.append((agent.agent_id, timeout_s))
        return self.test(agent)


def report_of(agent: AgentRegistration) -> ConnectionReport:
    probe = Probe("ping", 200, 3, "ok", "answered 200")
    return ConnectionReport(agent.agent_id, agent.kind, agent.endpoint, (probe,))


_numbers = itertools.count()


def agent_document(agent_id: str = "", **fields: Any) -> dict[str, Any]:
    """A registration that is right."""
    return {
        "agent_id": agent_id or f"agent-{next(_numbers)}",
        "name": "support",
        "endpoint": "https://agent.example/dispatch",
        "auth_header": "Authorization",
        "auth_value_ref": "env:AGENT_AUTH",
        "tools": [
            {"name": "get_order", "input_schema": {"type": "object"}},
            {"name": "refund", "input_schema": {"type": "object"}},
        ],
        **fields,
    }
