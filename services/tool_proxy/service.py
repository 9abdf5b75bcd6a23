"""Wires the tool proxy: sessions from the log, the contract over HTTP, events into the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

from pydantic import Field, SecretStr, field_validator

from schemas.topics import TRAJECTORIES
from schemas.trajectory import TrajectoryEvent
from services.runtime import metrics as m
from services.runtime.addresses import AllowList
from services.runtime.bus.admin import end_offsets, partition_for
from services.runtime.bus.errors import BusError
from services.runtime.metrics import Metrics
from services.runtime.models import Model, ModelSettings
from services.runtime.outbound import Outbound
from services.runtime.service import Publication, Service
from services.runtime.sessions import SessionTable
from services.runtime.settings import ConfigurationError, TokenSettings
from services.runtime.telemetry import start_telemetry
from services.runtime.tokens import Tokens
from services.tool_proxy.answer import MAX_BODY_BYTES
from services.tool_proxy.app import ProxyApp
from services.tool_proxy.live import LogUnavailable
from services.tool_proxy.mcp_tools import McpTools
from services.tool_proxy.model_world import ModelWorld
from services.tool_proxy.passthrough_http import HttpTools
from services.tool_proxy.passthrough_tools import RealTools
from services.tool_proxy.proxy import ProxyLimits, ToolProxy
from services.tool_proxy.session import KINDS, ProxyCore, SessionState
from services.tool_proxy.world import WorldError, load_worlds


class ToolProxySettings(TokenSettings):
    """The tool proxy's configuration."""

    service: ClassVar[str] = "tool_proxy"

    worlds: tuple[str, ...] = Field(
        default=(), description="Worlds that scenarios may name, as package.module:attribute."
    )
    public_url: str = Field(
        default="",
        pattern=r"^(https?://[^\s@/?#]+(:\d+)?/?)?$",
        description="Where agents reach this replica; empty for its HTTP address and port.",
    )
    start_wait_s: float = Field(
        default=5.0, ge=0, description="How long a call waits for its session's start to be read."
    )
    append_timeout_s: float = Field(
        default=10.0, gt=0, description="For the broker to acknowledge an event."
    )
    world_timeout_s: float = Field(default=10.0, gt=0, description="For a world to answer.")
    # A model that plays tools, where a scenario says `answers: model`.
    world_model: str = Field(default="", description="As litellm names it; empty for none.")
    world_model_api_base: str = Field(default="", description="Empty for the provider's own.")
    world_model_api_key: SecretStr = Field(default=SecretStr(""))
    world_model_temperature: float = Field(default=0, ge=0, le=2)
    world_model_max_tokens: int = Field(default=4000, ge=16)
    world_model_timeout_s: float = Field(default=60, gt=0)
    world_model_attempts: int = Field(default=3, ge=1, le=10)
    world_model_concurrency: int = Field(default=32, ge=1)

    world_threads: int = Field(default=4, ge=1, le=64, description="Worlds answering at once.")
    waiting_calls: int = Field(default=32, ge=1, description="Of one session, behind one another.")
    traces: int = Field(default=1000, ge=0, description="Trace events of one session.")
    body_timeout_s: float = Field(default=30.0, gt=0, description="For a body to arrive.")
    max_requests: int = Field(default=4096, ge=1, description="Requests under way at once.")

    passthrough_allow: tuple[str, ...] = Field(
        default=(),
        description="Real tools off the public internet: HOST, *.SUFFIX or CIDR, :PORT or not.",
    )
    real_calls: int = Field(default=512, ge=1, description="Calls at real tools at once.")
    real_calls_of_session: int = Field(default=16, ge=1, description="The same, of one session.")

    @field_validator("passthrough_allow")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        AllowList(value)
        return value

    @field_validator("worlds", "passthrough_allow", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """`one,another`, as an environment variable has to write it."""
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value


def _model(settings: ToolProxySettings, metrics: Metrics) -> Model | None:
    """The model that plays tools, if one is configured."""
    if not settings.world_model:
        return None
    configured = ModelSettings(
        model=settings.world_model,
        api_base=settings.world_model_api_base,
        api_key=settings.world_model_api_key,
        temperature=settings.world_model_temperature,
        max_tokens=settings.world_model_max_tokens,
        timeout_s=settings.world_model_timeout_s,
        attempts=settings.world_model_attempts,
        concurrency=settings.world_model_concurrency,
        drop_unsupported=True,
    )
    return Model(configured, "world", metrics)


class OwnedSessions:
    """The session table, as the proxy asks it."""

    def __init__(self, table: SessionTable[SessionState], partitions: int) -> None:
        self._table = table
        self._partitions = partitions

    def get(self, session_id: str) -> SessionState | None:
        return self._table.get(session_id)

    async def wait_for(self, session_id: str, timeout_s: float) -> SessionState | None:
        return await self._table.wait_for(session_id, timeout_s)

    def has_finished(self, session_id: str) -> bool:
        return self._table.has_finished(session_id)

    def owns(self, session_id: str) -> bool:
        return self._table.owns(partition_for(session_id, self._partitions))


async def start(service: Service[ToolProxySettings]) -> None:
    """Wire the service.

    Raises:
        ConfigurationError: a configured world cannot be loaded.
    """
    settings = service.settings
    telemetry = await start_telemetry(service)
    try:
        worlds = await asyncio.to_thread(load_worlds, settings.worlds)
    except WorldError as error:
        raise ConfigurationError(f"WINDTUNNEL_WORLDS: {error}") from None
    partitions = len(await asyncio.to_thread(end_offsets, service.bus, TRAJECTORIES.full_name))
    executor = ThreadPoolExecutor(settings.world_threads, thread_name_prefix="world")
    service.on_stop(lambda: asyncio.to_thread(executor.shutdown, False, cancel_futures=True))

    async def record(event: TrajectoryEvent) -> None:
        publication = Publication(TRAJECTORIES, event.session_id, event)
        try:
            await service.publish(publication, timeout_s=settings.append_timeout_s)
        except BusError as error:
            raise LogUnavailable(str(error)) from error

    # It logs what servers answer, word by word, when it cannot make sense of it.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)
    outbound = Outbound(
        AllowList(settings.passthrough_allow),
        max_connections=settings.real_calls,
        max_response_bytes=MAX_BODY_BYTES,
    )
    mcp_tools = McpTools(
        outbound,
        max_sessions=settings.real_calls,
        retried=partial(service.metrics.add, m.RETRIES, what="mcp_call"),
    )
    service.on_stop(outbound.close)
    service.on_stop(mcp_tools.close)

    async def act(state: SessionState, _action: Hashable) -> None:
        await proxy.user_calls.perform(state)

    model = _model(settings, service.metrics)
    if model is not None:
        await model.prepare()
    core = ProxyCore(worlds)
    table = SessionTable(service, core, act)
    proxy = ToolProxy(
        core=core,
        sessions=OwnedSessions(table, partitions),
        record=record,
        clock=service.clock,
        metrics=service.metrics,
        log=service.log,
        executor=executor,
        real_tools=RealTools(HttpTools(outbound), mcp_tools),
        ask_model=ModelWorld(model).answer if model is not None else None,
        limits=ProxyLimits(
            start_wait_s=settings.start_wait_s,
            world_timeout_s=settings.world_timeout_s,
            waiting_calls=settings.waiting_calls,
            traces=settings.traces,
            real_calls=settings.real_calls,
            real_calls_of_session=settings.real_calls_of_session,
        ),
        telemetry=telemetry,
    )
    service.on_stop(lambda: proxy.close(settings.drain_s))
    app = ProxyApp(
        proxy,
        Tokens(settings.token_secret.get_secret_value()),
        service.clock,
        service.metrics,
        service.log,
        body_timeout_s=settings.body_timeout_s,
        max_requests=settings.max_requests,
        telemetry=telemetry,
    )
    service.routes.extend(app.routes())
    host = f"[{settings.http_host}]" if ":" in settings.http_host else settings.http_host
    url = settings.public_url.rstrip("/") or f"http://{host}:{service.http_port}"
    # The dispatcher finds the replica that owns a session by the URL in its client id.
    await service.consume([TRAJECTORIES], table, kinds=KINDS, client_id=f"{settings.service}@{url}")
    service.log.info("answers tool calls", url=url, worlds=sorted(worlds))
