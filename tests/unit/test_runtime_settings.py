"""Configuration is resolved once; contradictions fail at the start with the setting's name."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import ValidationError

from services.runtime.settings import ConfigurationError, Settings, TokenSettings, load_settings


class ProxySettings(TokenSettings):
    service: ClassVar[str] = "proxy"
    worlds: str = ""


def test_the_environment_wins_over_the_services_table_and_that_over_the_top(tmp_path: Path) -> None:
    file = tmp_path / "w.toml"
    file.write_text(
        'bootstrap = "a:1"\nlog_level = "debug"\ntoken_secret = "0123456789abcdef"\n'
        '[proxy]\nbootstrap = "b:2"\nworlds = "w"\n[other]\nanything = 1\n'
    )
    environ = {"WINDTUNNEL_CONFIG": str(file), "WINDTUNNEL_WORLDS": "v"}
    settings = load_settings(ProxySettings, environ)
    assert (settings.bootstrap, settings.log_level, settings.worlds) == ("b:2", "debug", "v")
    assert load_settings(Settings, environ).bootstrap == "a:1"
    with pytest.raises(ValidationError):
        settings.bootstrap = "c:3"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bootstrp = 'a:1'", "unknown setting bootstrp"),
        ("[proxy]\nworld = 'w'", "WINDTUNNEL_WORLD: Extra inputs"),
        ("not toml", "w.toml"),
    ],
)
def test_what_nobody_knows_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "w.toml"
    file.write_text(text)
    environ = {"WINDTUNNEL_CONFIG": str(file), "WINDTUNNEL_TOKEN_SECRET": "0123456789abcdef"}
    with pytest.raises(ConfigurationError, match=message):
        load_settings(ProxySettings, environ)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("HTTP_PORT", "99999", "WINDTUNNEL_HTTP_PORT"),
        ("LOG_LEVEL", "loud", "WINDTUNNEL_LOG_LEVEL"),
        ("BUS_OPTIONS", "poll_pause=1", "WINDTUNNEL_BUS_OPTIONS"),
        ("BUS_OPTIONS", "fetch_max_wait_ms=60000", "WINDTUNNEL_BUS_OPTIONS"),
        ("TOKEN_SECRET", "short", "WINDTUNNEL_TOKEN_SECRET"),
    ],
)
def test_bad_values_are_named(name: str, value: str, message: str) -> None:
    environ = {"WINDTUNNEL_TOKEN_SECRET": "0123456789abcdef", f"WINDTUNNEL_{name}": value}
    with pytest.raises(ConfigurationError, match=message):
        load_settings(ProxySettings, environ)


def test_options_of_the_bus_are_written_as_pairs() -> None:
    settings = load_settings(Settings, {"WINDTUNNEL_BUS_OPTIONS": "poll_pause_max_ms=20"})
    assert settings.bus().poll_pause_max_ms == 20


@pytest.mark.req("R18")
def test_secrets_are_in_no_message_and_no_representation() -> None:
    canary = "canary-secret"
    environ = {"WINDTUNNEL_TOKEN_SECRET": canary, "WINDTUNNEL_BUS_SECURITY": f"sasl_plain={canary}"}
    with pytest.raises(ConfigurationError) as caught:
        load_settings(ProxySettings, environ)
    assert canary not in str(caught.value)
    environ = {
        "WINDTUNNEL_TOKEN_SECRET": canary * 2,
        "WINDTUNNEL_BUS_SECURITY": f"sasl_plain_password={canary}",
    }
    assert canary not in repr(load_settings(ProxySettings, environ))
