"""Publishing suites and registrations with the time at which it was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from schemas.agent_document import AgentDocument
from schemas.errors import InvalidDocument, Problem
from schemas.registry import AgentRegistration, Suite
from schemas.topics import AGENTS, SUITES
from services.cli.connection import Connection
from services.cli.records import append, publish
from services.runtime.addresses import AllowList
from services.runtime.bus.records import Outgoing
from services.runtime.clock import Clock, SystemClock
from services.runtime.service import Publication
from services.runtime.sources.archive import Archive
from services.runtime.sources.files import SourceRefused
from services.runtime.sources.git import fetch_git
from services.runtime.sources.intake import intake
from services.runtime.sources.publishing import publish_source

# Who types the command may reach whatever this machine reaches.
_ANYWHERE = AllowList(["0.0.0.0/0", "::/0"])


async def publish_suite(connection: Connection, suite: Suite, clock: Clock | None = None) -> Suite:
    """Publish a suite; returns it as published. Raises BusError."""
    published = replace(suite, published_at_ms=(clock or SystemClock()).now_ms())
    await publish(connection, Publication(SUITES, published.suite_hash, published))
    return published


async def take_in_source(document: AgentDocument, file: Path) -> Archive | None:
    """The source of a code agent; None where there is none to upload. Publishes nothing.

    Raises:
        InvalidDocument: it cannot be used.
    """
    code = document.code
    if code is None or code.published is not None:
        return None
    try:
        return await intake(code, file.parent, git=partial(fetch_git, allow=_ANYWHERE))
    except SourceRefused as error:
        raise InvalidDocument([Problem("code", str(error), str(file))]) from None


async def publish_sources(connection: Connection, sources: Sequence[Archive]) -> None:
    """Publish what was taken in. Raises BusError."""
    for archive in sources:
        await publish_source(partial(publish, connection), archive)


async def register_agents(
    connection: Connection, agents: Sequence[AgentRegistration], clock: Clock | None = None
) -> None:
    """Publish registrations, all or the error of the first that could not. Raises BusError."""
    now_ms = (clock or SystemClock()).now_ms()
    await publish(
        connection,
        *(
            Publication(AGENTS, agent.agent_id, replace(agent, registered_at_ms=now_ms))
            for agent in agents
        ),
    )


async def remove_agent(connection: Connection, agent_id: str) -> None:
    """Publish that there is no such agent any more. Raises BusError."""
    await append(connection, Outgoing(AGENTS.full_name, agent_id, b""))
