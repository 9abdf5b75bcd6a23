"""Wires the dispatcher: tables of suites, agents and statuses; sessions; runs."""

from __future__ import annotations

import asyncio
import tempfile
from collections import OrderedDict
from pathlib import Path

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from schemas.agent_response import json_schema
from schemas.pins import user_pin, world_pin
from schemas.registry import AgentRegistration
from schemas.runs import RunRequest, RunStatus
from schemas.topics import AGENTS, RUN_PROGRESS, RUN_REQUESTS, RUN_STATUS, TRAJECTORIES
from services.dispatcher.agents.table import AgentKinds
from services.dispatcher.code.agent import CodeAgent
from services.dispatcher.code.limits import CodeLimits
from services.dispatcher.coordinator import Coordinator
from services.dispatcher.proxies import Proxies
from services.dispatcher.session_core import KINDS, DispatcherCore, SessionState
from services.dispatcher.settings import DispatcherSettings
from services.dispatcher.tracing import traced
from services.dispatcher.turns import TurnDispatcher
from services.runtime import metrics as m
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.bus.admin import end_offsets
from services.runtime.core import Stream
from services.runtime.lookup import Lookup, SuiteLookup
from services.runtime.service import Service
from services.runtime.sessions import SessionTable
from services.runtime.settings import ConfigurationError
from services.runtime.sources.cache import SourceCache
from services.runtime.sources.store import SourceStore
from services.runtime.state_table import StateTable
from services.runtime.telemetry import start_telemetry

RUNS: Stream[RunRequest] = Stream(
    topic=RUN_REQUESTS,
    record=RunRequest,
    key_of=lambda request: request.run_id,
    step_of=lambda request: request.run_id,
    starts=lambda request: True,
)
_REGISTRATIONS = 1000
_EXPIRY_CHECK_S = 0.5


async def start(service: Service[DispatcherSettings]) -> None:
    """Start both halves of the dispatcher."""
    settings = service.settings
    telemetry = await start_telemetry(service)
    service.routes.append(Route("/schemas/agent-response.json", _agent_response_schema))
    suites = SuiteLookup(service)
    registrations = Registrations()
    agents = Lookup(service, AGENTS, AgentRegistration, changed=registrations.add)
    statuses = Lookup(service, RUN_STATUS, RunStatus)
    await asyncio.gather(suites.start(), agents.start(), statuses.start())
    partitions = len(await asyncio.to_thread(end_offsets, service.bus, TRAJECTORIES.full_name))

    code = await _code_agents(service)
    kinds = AgentKinds(
        settings.concurrent_turns, service.clock, {"code": code},
        retried=lambda what: service.metrics.add(m.RETRIES, what=what),
    )  # fmt: skip
    service.on_stop(kinds.close)
    proxies = Proxies(service.bus, partitions, service.clock, service.log)
    service.watch(proxies.keep_fresh(), "proxy owners")

    turns = TurnDispatcher(
        service, kinds, proxies, registrations.find, traced=telemetry is not None
    )
    core = traced(DispatcherCore(), telemetry, registrations.find)
    sessions = SessionTable(service, core, turns.act, concurrency=settings.concurrent_turns)
    await service.consume([TRAJECTORIES], sessions, kinds=KINDS)
    service.watch(_expire(service, sessions), "session deadlines")

    coordinator = Coordinator(service, kinds, suites, agents, statuses, pins=_pins(settings))
    runs = StateTable(
        service,
        RUNS,
        coordinator.core,
        coordinator.act,
        foreign=RUN_PROGRESS,
        refused=coordinator.refused,
    )
    coordinator.attach(runs)
    await service.consume([RUN_REQUESTS, RUN_PROGRESS], runs, group="dispatcher-runs")
    service.watch(coordinator.report(), "progress reports")


class Registrations:
    """Registrations by fingerprint, so that a run keeps the one it started with."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], AgentRegistration] = OrderedDict()

    def add(self, agent_id: str, agent: AgentRegistration) -> None:
        self._known[agent_id, fingerprint(agent)] = agent
        while len(self._known) > _REGISTRATIONS:
            self._known.popitem(last=False)

    def find(self, agent_id: str, fingerprint: str) -> AgentRegistration | None:
        """The agent as it was when it had this fingerprint."""
        return self._known.get((agent_id, fingerprint))


async def _code_agents(service: Service[DispatcherSettings]) -> CodeAgent:
    """The kind whose source comes from the topic and runs in sandboxes here.

    Raises:
        ConfigurationError: there is no place on disk to unpack it.
    """
    settings = service.settings
    folder = Path(settings.code_cache or tempfile.gettempdir())
    try:
        cache = await asyncio.to_thread(SourceCache, folder, settings.code_cache_mb << 20)
    except OSError as error:
        raise ConfigurationError(f"WINDTUNNEL_CODE_CACHE: {error}") from None
    store = SourceStore(service, cache)
    await store.start()
    agent = CodeAgent(store, CodeLimits.of(settings), service.log)
    agent.slots.measured(service.metrics, "sandboxes")
    return agent


def _pins(settings: DispatcherSettings) -> dict[str, str]:
    """What a baseline must share with a candidate to be comparable (V10)."""
    return {
        "user_simulator": user_pin(
            settings.user_simulator, settings.user_model, settings.user_model_temperature
        ),
        "judge": settings.judge_pin(),
        "tool_simulator": world_pin(settings.world_model, settings.world_model_temperature),
    }


async def _expire(
    service: Service[DispatcherSettings], sessions: SessionTable[SessionState]
) -> None:
    while True:
        await asyncio.sleep(_EXPIRY_CHECK_S)
        now_ms = service.clock.now_ms()
        for session_id, state in sessions.states():
            if not state.expired and now_ms > state.expires_ms:
                state.expired = True
                sessions.pursue(session_id)


async def _agent_response_schema(_: Request) -> Response:
    return Response(orjson.dumps(json_schema()), media_type="application/schema+json")
