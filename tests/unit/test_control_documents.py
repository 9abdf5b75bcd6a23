"""Settings of the control API, and what registrations refuse wherever they come from."""

from __future__ import annotations

import pytest

from schemas.agent_loader import parse_agent
from schemas.errors import InvalidDocument
from services.control.service import ControlSettings
from services.runtime.settings import ConfigurationError, load_settings

GOOD = '{"agent_id": "a", "name": "a", "endpoint": "http://a.example", "tools": '


@pytest.mark.req("R18")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + '[{"name": "t", "input_schema": {"minimum": NaN}}]}', "NaN is no number"),
        (GOOD + '[{"name": "t", "input_schema": {"minimum": -Infinity}}]}', "-Infinity is no"),
        (GOOD + "[" * 700 + "]" * 700 + "}", "nested too deep"),
        (GOOD + "[" * 100_000, "nested too deep"),
        (GOOD + '[], "auth_header": "X", "auth_value_ref": 12345678}', "expected env:NAME"),
        (GOOD + '[], "build": {"db_password": "x"}}', "found db_password: secrets go by"),
        ('{"agent_id": "a", "name": "a", "endpoint": "http://a.example/?token=abc"}', "its query"),
    ],
)
def test_registrations_refuse_what_no_topic_may_hold(text: str, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message) as caught:
        parse_agent(text, "agent.json")
    assert "12345678" not in str(caught.value)
    assert "abc" not in str(caught.value)


def test_names_that_only_sound_like_secrets_are_taken() -> None:
    chat = '{"model": "m", "parameters": {"max_tokens": 5, "response_format": {"password": {}}}}'
    text = GOOD + f'[], "kind": "openai", "chat": {chat}}}'
    assert parse_agent(text, "agent.json").registration().kind == "openai"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("CONTROL_TOKEN", "short", "at least 16"),
        ("CONTROL_TOKEN", "long-enough-token-one,", "at least 16"),
        ("CONTROL_TOKEN", "läng-enough-for-a-token", "ASCII"),
        ("GIT_TARGETS", "not a host!", "WINDTUNNEL_GIT_TARGETS"),
        ("UPLOADS", "0", "WINDTUNNEL_UPLOADS"),
    ],
)
def test_bad_settings_are_named_and_tokens_are_not_shown(name: str, value: str, shown: str) -> None:
    environ = {"WINDTUNNEL_CONTROL_TOKEN": "a-token-of-sixteen-characters"}
    with pytest.raises(ConfigurationError, match=shown) as caught:
        load_settings(ControlSettings, environ | {f"WINDTUNNEL_{name}": value})
    assert name not in ("CONTROL_TOKEN",) or value not in str(caught.value)


def test_tokens_are_taken_apart_and_never_represented() -> None:
    first, second = "first-token-canary-1", "second-token-canary-2"
    environ = {
        "WINDTUNNEL_CONTROL_TOKEN": f"{first}, {second}",
        "WINDTUNNEL_GIT_TARGETS": "git.internal:3000,10.0.0.0/8",
    }
    settings = load_settings(ControlSettings, environ)
    assert settings.tokens == [first, second]
    assert settings.git_targets == ("git.internal:3000", "10.0.0.0/8")
    assert "canary" not in repr(settings)
