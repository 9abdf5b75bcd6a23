"""D07: what switches traces on, and what of it may be seen."""

from __future__ import annotations

import asyncio
import re

import pytest

from services.runtime.settings import ConfigurationError, Settings, load_settings
from services.runtime.telemetry import start_telemetry
from services.runtime.telemetry_export import collector_url
from tests.support.live import ROOT
from tests.support.services import OfflineService

pytestmark = pytest.mark.req("D07")


def test_nothing_is_made_by_default() -> None:
    async def main() -> None:
        assert await start_telemetry(OfflineService()) is None

    asyncio.run(main())


def test_nothing_of_the_sdk_is_loaded_unless_it_is_asked_for() -> None:
    importing = re.compile(r"^\s*(?:from|import) (opentelemetry|\S*telemetry_export)\b", re.M)
    found = {
        path.name
        for folder in ("services", "schemas", "pipelines")
        for path in (ROOT / folder).rglob("*.py")
        if importing.search(path.read_text())
    }
    assert found == {"telemetry_export.py"}


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("https://collector/otlp/", "https://collector/otlp/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
    ],
)
def test_spans_are_posted_below_the_endpoint(endpoint: str, url: str) -> None:
    settings = load_settings(Settings, {"WINDTUNNEL_OTLP_ENDPOINT": endpoint})
    assert collector_url(settings.otlp_endpoint) == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTLP_ENDPOINT", "collector:4317"),
        ("OTLP_ENDPOINT", "grpc://collector:4317"),
        ("OTLP_ENDPOINT", "http://user:canary-secret@collector"),
        ("OTLP_ENDPOINT", "http://collector?key=canary-secret"),
        ("OTLP_HEADERS", "canary-secret"),
        ("OTLP_HEADERS", "api key=canary-secret"),
        ("OTLP_HEADERS", "api-key=canary-secret\r\nx: y"),
        ("OTLP_HEADERS", "api-key=canary-secret%0d%0ax: y"),
        ("OTLP_HEADERS", "api-key="),
        ("OTLP_CONTENTS", "perhaps"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_not_quoted(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"WINDTUNNEL_{name}") as caught:
        load_settings(Settings, {f"WINDTUNNEL_{name}": value})
    assert "canary-secret" not in str(caught.value)


def test_headers_for_the_collector_are_secret() -> None:
    environ = {"WINDTUNNEL_OTLP_HEADERS": "api-key=canary%2Csecret, x-scope=a=b"}
    settings = load_settings(Settings, environ)
    assert settings.otlp_header_values() == {"api-key": "canary,secret", "x-scope": "a=b"}
    assert "canary" not in repr(settings)
    assert "canary" not in settings.model_dump_json()
