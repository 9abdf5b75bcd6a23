"""Secrets by reference: where they may be, and what is said when they are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.agents.secrets import SecretMissing, resolve

pytestmark = pytest.mark.req("R18")


def test_a_variable_is_looked_up_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SecretMissing, match="agent a: env:THE_AUTH has no value here"):
        resolve("env:THE_AUTH", "agent a")
    monkeypatch.setenv("THE_AUTH", "Bearer s3cr3t")
    assert resolve("env:THE_AUTH", "agent a") == "Bearer s3cr3t"


@pytest.mark.parametrize("name", ["WINDTUNNEL_TOKEN_SECRET", "windtunnel_token_secret"])
def test_our_own_settings_are_no_agents_secrets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "what run tokens are made from")
    with pytest.raises(SecretMissing, match="is a setting of Windtunnel"):
        resolve(f"env:{name}", "agent a")


def test_only_files_in_folders_for_secrets_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "private").write_text("not meant for an agent")
    allowed = tmp_path / "secrets"
    allowed.mkdir()
    (allowed / "auth").write_text("Bearer s3cr3t\n")
    (allowed / "link").symlink_to(tmp_path / "private")
    with pytest.raises(SecretMissing, match="is not in a folder for secrets"):
        resolve(f"file:{allowed}/auth", "agent a")
    monkeypatch.setenv("WINDTUNNEL_SECRET_FILES", f"/nowhere:{allowed}")
    assert resolve(f"file:{allowed}/auth", "agent a") == "Bearer s3cr3t"
    for way_out in ("link", "../private"):
        with pytest.raises(SecretMissing, match="is not in a folder for secrets"):
            resolve(f"file:{allowed}/{way_out}", "agent a")
    with pytest.raises(SecretMissing, match="has no value here"):
        resolve(f"file:{allowed}/missing", "agent a")


def test_what_no_header_can_carry_is_refused_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_AUTH", "two\nlines")
    with pytest.raises(SecretMissing) as caught:
        resolve("env:THE_AUTH", "agent a")
    assert "two" not in str(caught.value)
