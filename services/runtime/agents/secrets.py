"""Secrets by reference: found at the moment of use, kept nowhere, shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.registry import AgentRegistration

_MAX_BYTES = 64 * 1024
_OURS = "WINDTUNNEL_"


class SecretMissing(Exception):
    """A secret is not where its reference says. Never holds the value."""


def resolve(reference: str, owner: str) -> str:
    """The secret that `env:NAME` or `file:PATH` leads to.

    Reads a file where the reference names one; such files are small and local.

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
            with Path(place).open("rb") as file:
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


def auth_headers(agent: AgentRegistration) -> dict[str, str]:
    """The agent's own auth header, its value resolved at this moment and kept nowhere.

    Raises:
        SecretMissing: the reference leads nowhere.
    """
    if not agent.auth_header or not agent.auth_value_ref:
        return {}
    return {agent.auth_header: resolve(agent.auth_value_ref, f"agent {agent.agent_id}")}
