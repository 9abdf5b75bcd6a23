"""Secrets by reference: found at the moment of use, kept nowhere, shown nowhere."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from schemas.registry import AgentRegistration

_MAX_BYTES = 64 * 1024
_OURS = "WINDTUNNEL_"
_FOLDERS = "WINDTUNNEL_SECRET_FILES"
_USUAL_FOLDERS = ("/run/secrets", "/var/run/secrets")


class SecretMissing(Exception):
    """A secret is not where its reference says. Never holds the value."""


def resolve(reference: str, owner: str) -> str:
    """The secret that `env:NAME` or `file:PATH` leads to.

    Reads a file where the reference names one; such files are small and local. Whoever may register
    agents says where their secrets are sent, so not every file may be named: those in /run/secrets,
    and in the folders of WINDTUNNEL_SECRET_FILES (separated by colons, of whoever resolves).

    Args:
        owner: Whose secret it is, for the message.

    Raises:
        SecretMissing: the reference leads nowhere, or to a setting of this service: an agent must
            not be sent the secret that run tokens are made from.
    """
    scheme, _, place = reference.partition(":")
    value: str | None = None
    if scheme == "env" and place.upper().startswith(_OURS):
        raise SecretMissing(f"{owner}: {reference} is a setting of Windtunnel; use another name")
    if scheme == "env":
        value = os.environ.get(place)
    elif scheme == "file":
        try:
            path = Path(place).resolve()
            if not any(path.is_relative_to(folder) for folder in _folders()):
                raise SecretMissing(
                    f"{owner}: {reference} is not in a folder for secrets; put it into "
                    f"{_USUAL_FOLDERS[0]}, or name its folder in {_FOLDERS}"
                )
            with path.open("rb") as file:
                value = file.read(_MAX_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError):
            value = None
    if not value:
        raise SecretMissing(
            f"{owner}: {reference} has no value here; set it for the service that uses it "
            f"(a reference is env:NAME or file:PATH)"
        )
    if not value.isprintable():
        raise SecretMissing(f"{owner}: {reference} holds characters that no header can carry")
    return value


def _folders() -> list[Path]:
    named = os.environ.get(_FOLDERS, "").split(os.pathsep)
    return [Path(folder).resolve() for folder in (*_USUAL_FOLDERS, *named) if folder]


def auth_headers(agent: AgentRegistration) -> dict[str, str]:
    """The agent's own auth header, its value resolved at this moment and kept nowhere.

    Raises:
        SecretMissing: the reference leads nowhere.
    """
    if not agent.auth_header or not agent.auth_value_ref:
        return {}
    return {agent.auth_header: resolve(agent.auth_value_ref, f"agent {agent.agent_id}")}


def agent_secrets(agent: AgentRegistration) -> list[str]:
    """Every secret of the agent that can be found here: what must not be recorded."""
    references = [agent.auth_value_ref, agent.rasa.token_ref if agent.rasa else None]
    found = []
    for reference in references:
        if reference:
            with contextlib.suppress(SecretMissing):
                found.append(resolve(reference, agent.agent_id))
    return found
