"""`windtunnel agents`: register agents under test, see which are, change and test them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from schemas.agent_document import AgentDocument, document_of
from schemas.errors import InvalidDocument, Problem
from schemas.registry import AgentRegistration
from schemas.topics import AGENTS
from services.cli import options
from services.cli.connection import Connection, Where, connect
from services.cli.control import control_api
from services.cli.errors import EXIT_FAIL, EXIT_PASS, CliError, command
from services.cli.output import say, tell, tell_json, tell_table
from services.cli.publishing import (
    publish_sources,
    register_agents,
    remove_agent,
    take_in_source,
)
from services.cli.records import Latest
from services.cli.registration import read_agent
from services.runtime.agents.changes import TOOL_MODES, changed
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.clock import iso
from services.runtime.sources.archive import Archive

app = typer.Typer(help="Agents under test.", no_args_is_help=True)
_PROBES = 3
_GRACE_S = 30.0
AgentId = Annotated[str, typer.Argument(help="The agent's id.")]


@app.command()
@command
async def register(
    files: Annotated[list[Path], typer.Argument(help="Registrations in YAML or JSON.")],
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """Register agents and upload their code; nothing is registered if any file has a mistake."""
    given: list[tuple[AgentDocument, Archive | None]] = []
    problems: list[Problem] = []
    for file in files:
        try:
            document = read_agent(file)
            given.append((document, await take_in_source(document, file)))
        except InvalidDocument as error:
            problems += error.problems
    if problems:
        raise InvalidDocument(problems)
    agents = [
        document.registration(
            archive.code(document.code.entrypoint) if archive and document.code else None
        )
        for document, archive in given
    ]
    connection = connect(Where(directory, bootstrap))
    await publish_sources(connection, [archive for _, archive in given if archive])
    await register_agents(connection, agents)
    if as_json:
        tell_json([{"agent_id": agent.agent_id, "name": agent.name} for agent in agents])
        return
    for agent in agents:
        tell(f"registered {agent.agent_id} ({agent.name}) at {_place(agent)}")


@app.command("list")
@command
async def list_(
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """The registered agents."""
    table = await Latest(connect(Where(directory, bootstrap)), AGENTS, AgentRegistration).read()
    agents = sorted(table.values(), key=lambda agent: agent.agent_id)
    if as_json:
        tell_json(agents)
        return
    tell_table(
        ("agent", "name", "kind", "at", "tools", "build", "registered"),
        [
            (
                agent.agent_id,
                agent.name,
                agent.kind,
                _place(agent),
                len(agent.tools),
                ", ".join(f"{name}={value}" for name, value in sorted(agent.build.items())),
                iso(agent.registered_at_ms),
            )
            for agent in agents
        ],
    )


@app.command()
@command
async def show(
    agent_id: AgentId,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
) -> None:
    """The document that registers an agent again; its fingerprint on stderr."""
    agent = await _registered(connect(Where(directory, bootstrap)), agent_id)
    tell_json(_document(agent))
    say(f"fingerprint {fingerprint(agent)}, registered {iso(agent.registered_at_ms)}")


@app.command("set-mode")
@command
async def set_mode(
    agent_id: AgentId,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    mode: Annotated[str, typer.Argument(help="sandbox, or passthrough to a real tool.")],
    target: Annotated[str | None, typer.Option(help="URL of the real tool.")] = None,
    target_kind: Annotated[str | None, typer.Option(help="http or mcp.")] = None,
    target_tool: Annotated[str | None, typer.Option(help="Its name at an MCP server.")] = None,
    auth_header: Annotated[str | None, typer.Option(help="Its auth header's name.")] = None,
    auth_ref: Annotated[
        str | None, typer.Option(help="env:NAME or file:PATH with the header's value.")
    ] = None,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
) -> None:
    """Have one tool answered by the sandbox, or by the real tool."""
    connection = connect(Where(directory, bootstrap))
    agent = await _registered(connection, agent_id)
    given = {
        "mode": mode, "target": target, "target_kind": target_kind, "target_tool": target_tool,
        "target_auth_header": auth_header, "target_auth_ref": auth_ref,
    }  # fmt: skip
    change = {name: value for name, value in given.items() if value is not None}
    document = changed(_document(agent), {TOOL_MODES: {tool: change}})
    await register_agents(connection, [document.registration()])
    tell(f"{agent_id}: {tool} is in {mode} mode")


@app.command()
@command
async def remove(
    agent_id: AgentId,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
) -> None:
    """Remove an agent. Its sessions under way go on."""
    connection = connect(Where(directory, bootstrap))
    await _registered(connection, agent_id)
    await remove_agent(connection, agent_id)
    tell(f"removed {agent_id}")


@app.command("test-connection")
@command
async def try_connection(
    agent_id: AgentId,
    timeout: Annotated[int, typer.Option(min=1, max=30, help="Seconds for each question.")] = 10,
    control: Annotated[
        str, typer.Option(help="URL of the control API, instead of the stack's.")
    ] = "",
    directory: options.Directory = options.DIRECTORY,
    as_json: options.AsJson = False,
) -> int:
    """Ask an agent as a run would: with its auth, then without. Exit code 1 if something failed.

    The control API asks, because secrets are resolved where the services run.
    """
    api = control_api(directory, control)
    path = f"/api/agents/{quote(agent_id, safe='')}/test-connection?timeout_s={timeout}"
    report = await api.post(path, timeout * _PROBES + _GRACE_S)
    if as_json:
        tell_json(report)
    else:
        tell_table(
            ("question", "verdict", "status", "ms", "found", "what to do"),
            [
                (p["name"], p["verdict"], p["status"], p["latency_ms"], p["detail"], p["hint"])
                for p in report["probes"]
            ],
        )
    return EXIT_PASS if report["ok"] else EXIT_FAIL


async def _registered(connection: Connection, agent_id: str) -> AgentRegistration:
    agent = (await Latest(connection, AGENTS, AgentRegistration).read()).get(agent_id)
    if agent is None:
        raise CliError(f"no agent {agent_id} is registered: see `windtunnel agents list`")
    return agent


def _document(agent: AgentRegistration) -> dict[str, object]:
    try:
        return document_of(agent)
    except ValueError:
        raise CliError(
            f"what is registered as {agent.agent_id} is no document: register it again"
        ) from None


def _place(agent: AgentRegistration) -> str:
    if agent.code is None:
        return agent.endpoint
    return agent.code.origin_ref or f"{agent.code.origin} {agent.code.source_hash[:8]}"
