"""Wires the control API to its service."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from pydantic import Field, SecretStr, field_validator

from services.control.api import AgentsApi
from services.control.app import create_app, mounted
from services.control.registry import Registry
from services.control.requests import Bearers, Bodies
from services.control.route import Gatekeeper
from services.control.sources import PublishedSources
from services.runtime.addresses import AllowList
from services.runtime.agents.connection import test_connection
from services.runtime.agents.exchange import Exchanger
from services.runtime.service import Service
from services.runtime.settings import Settings

_SHORTEST = 16


class ControlSettings(Settings):
    """The control API's configuration."""

    service: ClassVar[str] = "control"

    control_token: SecretStr = Field(
        description="Who presents it may use the API, 16+ characters; several with commas."
    )
    append_timeout_s: float = Field(
        default=10.0, gt=0, description="For the broker to acknowledge a record."
    )
    read_timeout_s: float = Field(
        default=10.0, gt=0, description="To read the agents to the topic's end."
    )
    body_timeout_s: float = Field(default=60.0, gt=0, description="For a body to arrive.")
    max_requests: int = Field(default=64, ge=1, description="Requests under way at once.")
    uploads: int = Field(default=2, ge=1, description="Large bodies worked on at once.")
    git_targets: tuple[str, ...] = Field(
        default=(), description="What git may reach besides the public internet: hosts, networks."
    )

    @field_validator("git_targets", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """`host,network:port`, as an environment variable has to write it."""
        if isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
        AllowList(value)
        return value

    @field_validator("control_token")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        for token in value.get_secret_value().split(","):
            if len(token.strip()) < _SHORTEST or not token.strip().isascii():
                raise ValueError(
                    f"each token needs at least {_SHORTEST} ASCII characters; make one with "
                    f"`openssl rand -hex 32`"
                )
        return value

    @property
    def tokens(self) -> list[str]:
        """The tokens, apart."""
        return [token.strip() for token in self.control_token.get_secret_value().split(",")]


async def start(service: Service[ControlSettings]) -> None:
    """Wire the service: agents from the topic, then its routes."""
    settings = service.settings
    registry = Registry(
        service,
        append_timeout_s=settings.append_timeout_s,
        read_timeout_s=settings.read_timeout_s,
    )
    await registry.start()
    exchanger = Exchanger(settings.max_requests)
    service.on_stop(exchanger.close)
    api = AgentsApi(
        registry,
        Bodies(settings.body_timeout_s, settings.uploads),
        PublishedSources(
            partial(service.publish, timeout_s=settings.append_timeout_s),
            AllowList(settings.git_targets),
            settings.uploads,
        ),
        partial(test_connection, exchanger=exchanger, clock=service.clock),
        service.clock,
    )
    gatekeeper = Gatekeeper(
        Bearers(settings.tokens),
        service.clock,
        service.metrics,
        service.log,
        settings.max_requests,
    )
    service.routes.append(mounted(create_app(api, gatekeeper)))
