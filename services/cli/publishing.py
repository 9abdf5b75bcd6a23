"""Publishing suites and registrations with the time at which it was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.registry import AgentRegistration, Suite
from schemas.topics import AGENTS, SUITES
from services.cli.connection import Connection
from services.cli.records import publish
from services.runtime.clock import Clock, SystemClock
from services.runtime.service import Publication


async def publish_suite(connection: Connection, suite: Suite, clock: Clock | None = None) -> Suite:
    """Publish a suite; returns it as published. Raises BusError."""
    published = replace(suite, published_at_ms=(clock or SystemClock()).now_ms())
    await publish(connection, Publication(SUITES, published.suite_hash, published))
    return published


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
