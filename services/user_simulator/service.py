"""The user simulator's shell: reads sessions, appends user turns."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import ClassVar, Literal

from pydantic import Field, SecretStr, model_validator

from schemas.briefs import UserBrief
from schemas.topics import TRAJECTORIES
from services.runtime import metrics as m
from services.runtime.models import Model, ModelSettings
from services.runtime.service import Publication, Service
from services.runtime.sessions import SessionTable
from services.runtime.settings import Settings
from services.runtime.slots import Slots
from services.runtime.telemetry import start_telemetry
from services.user_simulator.acting import done_since
from services.user_simulator.agenda import AgendaSimulator
from services.user_simulator.core import KINDS, UserSide, UserSimulatorCore, perform
from services.user_simulator.llm import LlmSimulator
from services.user_simulator.pacing import pause_ms
from services.user_simulator.replay import ReplaySimulator
from services.user_simulator.simulator import History, UserMove, UserSimulator, next_number
from services.user_simulator.tracing import traced

THINKING = 100_000
"""The most users who may be thinking or waiting to write at once."""


class UserSimulatorSettings(Settings):
    """The user simulator's configuration."""

    service: ClassVar[str] = "user_simulator"

    user_simulator: Literal["agenda", "llm"] = Field(
        default="agenda",
        description="Who plays users whose goals are written down; the others need a model.",
    )
    user_model: str = Field(default="", description="As litellm names it; empty for none.")
    user_model_api_base: str = Field(default="", description="Empty for the provider's own.")
    user_model_api_key: SecretStr = Field(default=SecretStr(""))
    user_model_temperature: float = Field(default=0.7, ge=0, le=2)
    user_model_max_tokens: int = Field(default=1000, ge=16)
    user_model_timeout_s: float = Field(default=60, gt=0)
    user_model_attempts: int = Field(default=4, ge=1, le=10)
    user_model_concurrency: int = Field(default=32, ge=1)
    concurrency: int = Field(default=1000, ge=1, description="Turns being written at once.")

    @model_validator(mode="after")
    def _has_its_model(self) -> UserSimulatorSettings:
        if self.user_simulator == "llm" and not self.user_model:
            raise ValueError("WINDTUNNEL_USER_SIMULATOR is llm, so set WINDTUNNEL_USER_MODEL")
        return self

    def model(self) -> ModelSettings | None:
        """The configured model, if one is."""
        if not self.user_model:
            return None
        return ModelSettings(
            model=self.user_model,
            api_base=self.user_model_api_base,
            api_key=self.user_model_api_key,
            temperature=self.user_model_temperature,
            max_tokens=self.user_model_max_tokens,
            timeout_s=self.user_model_timeout_s,
            attempts=self.user_model_attempts,
            concurrency=self.user_model_concurrency,
            drop_unsupported=True,
        )


class ByBrief:
    """The agenda for users whose goals are written down, the model for the others."""

    def __init__(self, agenda: UserSimulator, model: UserSimulator) -> None:
        self._agenda = agenda
        self._model = model

    def pin(self) -> str:
        return f"{self._agenda.pin()}, {self._model.pin()}"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        chosen = self._agenda if brief.conversations else self._model
        return await chosen.next_turn(brief, history)


async def make_simulator(
    settings: UserSimulatorSettings, service: Service[UserSimulatorSettings]
) -> UserSimulator:
    """The simulator that the configuration asks for; loads litellm only if it needs it."""
    agenda = AgendaSimulator()
    model_settings = settings.model()
    if model_settings is None:
        return ReplaySimulator(agenda)
    model = Model(model_settings, "user", service.metrics)
    await model.prepare()
    player = LlmSimulator(model)
    return ReplaySimulator(
        player if settings.user_simulator == "llm" else ByBrief(agenda, player), improvises=True
    )


async def start(service: Service[UserSimulatorSettings]) -> None:
    """Wire the service: every due user turn is played and appended."""
    telemetry = await start_telemetry(service)
    simulator = await make_simulator(service.settings, service)

    writing = Slots(service.settings.concurrency)

    async def act(state: UserSide, action: Hashable) -> None:
        if state.brief is not None and not done_since(state.history):
            await asyncio.sleep(pause_ms(state.brief, next_number(state.history)) / 1000)
        if state.ended:
            return  # while the user was thinking
        async with writing:
            started = service.clock.monotonic()
            events = await perform(state, action, simulator, service.clock)
            await service.publish(
                *(Publication(TRAJECTORIES, event.session_id, event) for event in events)
            )
            service.metrics.observe(m.USER_TURN_SECONDS, service.clock.monotonic() - started)

    # Those who only think are in nobody's way: the bound is on those who write.
    core = traced(UserSimulatorCore(), telemetry)
    table = SessionTable(service, core, act, concurrency=THINKING)
    writing.measured(service.metrics, "actions")
    await service.consume([TRAJECTORIES], table, kinds=KINDS)
    service.log.info("plays users", pin=simulator.pin())
