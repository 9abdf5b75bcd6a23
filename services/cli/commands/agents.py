"""`windtunnel agents`: register agents under test, and see which are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import InvalidDocument, Problem
from schemas.registry import AgentRegistration
from schemas.topics import AGENTS
from services.cli import options
from services.cli.connection import Where, connect
from services.cli.errors import command
from services.cli.output import tell, tell_json, tell_table
from services.cli.publishing import register_agents
from services.cli.records import Latest
from services.cli.registration import read_agent
from services.runtime.clock import iso

app = typer.Typer(help="Agents under test.", no_args_is_help=True)


@app.command()
@command
async def register(
    files: Annotated[list[Path], typer.Argument(help="Registrations in YAML or JSON.")],
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """Register agents; nothing is registered if any file has a mistake."""
    agents: list[AgentRegistration] = []
    problems: list[Problem] = []
    for file in files:
        try:
            agents.append(read_agent(file).registration())
        except InvalidDocument as error:
            problems += error.problems
    if problems:
        raise InvalidDocument(problems)
    await register_agents(connect(Where(directory, bootstrap)), agents)
    if as_json:
        tell_json([{"agent_id": agent.agent_id, "name": agent.name} for agent in agents])
        return
    for agent in agents:
        tell(f"registered {agent.agent_id} ({agent.name}) at {agent.endpoint}")


@app.command("list")
@command
async def list_(
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """The registered agents."""
    table = Latest(connect(Where(directory, bootstrap)), AGENTS, AgentRegistration)
    agents = sorted((await table.read()).values(), key=lambda agent: agent.agent_id)
    if as_json:
        tell_json(agents)
        return
    tell_table(
        ("agent", "name", "endpoint", "tools", "build", "registered"),
        [
            (
                agent.agent_id,
                agent.name,
                agent.endpoint,
                len(agent.tools),
                ", ".join(f"{name}={value}" for name, value in sorted(agent.build.items())),
                iso(agent.registered_at_ms),
            )
            for agent in agents
        ],
    )
