"""Configuration: resolved once from a file and the environment, then frozen.

Every setting can be given as `WINDTUNNEL_<NAME>` in the environment, or in the TOML file that
`WINDTUNNEL_CONFIG` names: at its top level for all services, in a table of the service's name for
one. The environment wins. A name that nobody knows is an error, so a misspelt one cannot pass.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from schemas.topics import MAX_RECORD_BYTES
from services.runtime.bus.errors import BusMisconfigured
from services.runtime.bus.settings import BusSettings

ENV_PREFIX = "WINDTUNNEL_"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_HEADER_VALUE = re.compile(r"[\x20-\x7e]+", re.ASCII)


class ConfigurationError(Exception):
    """The configuration is wrong; the message names each setting and what to do."""


class Settings(BaseModel):
    """What every service needs to know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    service: ClassVar[str] = "service"

    bootstrap: str = Field(default="127.0.0.1:9092", description="Kafka bootstrap servers.")
    bus_security: Mapping[str, str] = Field(
        default_factory=dict,
        description="kafka-python's security_protocol, sasl_*, ssl_*.",
        repr=False,
    )
    bus_options: Mapping[str, int] = Field(
        default_factory=dict, description="Overrides of BusSettings, such as poll_pause_max_ms."
    )
    schema_registry: str = Field(
        default="", description="URL of a schema registry; empty for single-object encoding."
    )
    replica: str = Field(default="0", description="Which replica this is, unique in its service.")
    http_host: str = Field(default="127.0.0.1", description="Address for health and metrics.")
    http_port: int = Field(default=0, ge=0, le=65535, description="Port; 0 takes a free one.")
    http_fd: int | None = Field(
        default=None, ge=0, description="Inherited listening socket, in the place of the port."
    )
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    drain_s: float = Field(default=10.0, gt=0, description="How long stopping may take.")
    dead_letter_ratio: float = Field(
        default=0.5, gt=0, le=1, description="Of the last records; beyond it the service stops."
    )
    dead_letter_window: int = Field(default=1000, ge=10, description="Records that ratio is over.")

    # Traces, by OpenTelemetry. See docs/telemetry.md.
    otlp_endpoint: str = Field(
        default="",
        pattern=r"^(https?://[^\s@/?#]+(/[^\s@?#]*)?)?$",
        description="OTLP/HTTP collector, such as http://127.0.0.1:4318; empty for none.",
    )
    otlp_headers: SecretStr = Field(
        default=SecretStr(""), description="name=value,name=value: what the collector asks for."
    )
    otlp_contents: bool = Field(
        default=False, description="Let spans quote messages, arguments and results."
    )

    @field_validator("otlp_headers")
    @classmethod
    def _are_headers(cls, value: SecretStr) -> SecretStr:
        for name, equals, text in _headers(value):
            if not (_HEADER_NAME.fullmatch(name) and equals and _HEADER_VALUE.fullmatch(text)):
                raise ValueError("expected name=value,name=value")
        return value

    @field_validator("bus_security", "bus_options", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        """`name=value,name=value`, as an environment variable has to write it."""
        if isinstance(value, str):
            pairs = [part.partition("=") for part in value.split(",") if part.strip()]
            return {name.strip(): text.strip() for name, _, text in pairs}
        return value

    def bus(self) -> BusSettings:
        """How to reach the broker."""
        # The topics are made to take records of this size.
        options: dict[str, Any] = {"max_record_bytes": MAX_RECORD_BYTES, **self.bus_options}
        return BusSettings(bootstrap=self.bootstrap, security=dict(self.bus_security), **options)

    def otlp_header_values(self) -> dict[str, str]:
        """The headers for the collector; values may be percent-encoded, commas have to be."""
        return {name: text for name, _, text in _headers(self.otlp_headers)}

    @property
    def name(self) -> str:
        """Service and replica, for logs, client ids and group instance ids."""
        return f"{self.service}-{self.replica}"


class TokenSettings(Settings):
    """What dispatcher and tool proxy share."""

    token_secret: SecretStr = Field(
        description="Shared by dispatcher and tool proxy, 16+ characters."
    )

    @field_validator("token_secret")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < 16:
            raise ValueError("needs at least 16 characters; make one with `openssl rand -hex 32`")
        return value


def _headers(given: SecretStr) -> list[tuple[str, str, str]]:
    """Names, equals signs and values."""
    parts = [part.partition("=") for part in given.get_secret_value().split(",") if part.strip()]
    return [(name.strip(), equals, unquote(text.strip())) for name, equals, text in parts]


S = TypeVar("S", bound=Settings)


def load_settings(cls: type[S], environ: Mapping[str, str] | None = None, **overrides: Any) -> S:
    """The settings of a service, from its file and environment.

    Raises:
        ConfigurationError: unreadable file, unknown or contradictory settings, bad values.
    """
    environ = os.environ if environ is None else environ
    values = _from_file(cls, environ.get(ENV_PREFIX + "CONFIG", ""))
    for name in cls.model_fields:
        if (value := environ.get(ENV_PREFIX + name.upper())) is not None:
            values[name] = value
    values |= overrides
    try:
        settings = cls(**values)
        settings.bus()
    except ValidationError as error:
        # `input` is left out: it may be a secret.
        lines = [
            f"{ENV_PREFIX}{'.'.join(map(str, item['loc'])).upper()}: {item['msg']}"
            for item in error.errors(include_input=False, include_url=False)
        ]
        raise ConfigurationError("\n".join(lines)) from None
    except (TypeError, BusMisconfigured) as error:
        raise ConfigurationError(f"{ENV_PREFIX}BUS_OPTIONS: {error}") from None
    return settings


def _from_file(cls: type[Settings], path: str) -> dict[str, Any]:
    if not path:
        return {}
    try:
        document = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{ENV_PREFIX}CONFIG: {path}: {error}") from None
    shared = {name: value for name, value in document.items() if not isinstance(value, dict)}
    unknown = sorted(set(shared) - set(Settings.model_fields) - set(TokenSettings.model_fields))
    if unknown:
        raise ConfigurationError(
            f"{path}: unknown setting {', '.join(unknown)}; settings of one service go under "
            f"[{cls.service}]"
        )
    known = {name: value for name, value in shared.items() if name in cls.model_fields}
    own: dict[str, Any] = document.get(cls.service, {})
    return known | own
