"""What the doctor was asked, and what it has found out so far."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.registry import AgentRegistration, ToolRegistration
from services.cli.connection import Where
from services.cli.doctor.application import Application
from services.cli.doctor.model import Settled, failed
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import SecretMissing, resolve


@dataclass(frozen=True, slots=True)
class Request:
    """What the doctor is asked. Empty means: not asked.

    Attributes:
        app: `module:attribute` of an ASGI application; or else `url`, or else `file`.
        path: Where the application takes turns; found out if empty.
        python: The interpreter that the application is imported under.
        cwd: The directory that it is imported from.
        timeout_s: For each single question to the agent or the proxy.
        import_timeout_s: For the import, and again for the start of the application.
        turn_timeout_s: For each turn of the conformance checks.
        responses: What tools answer in them: a document of responses by tool.
    """

    app: str = ""
    url: str = ""
    file: Path | None = None
    auth_header: str = ""
    auth_value_ref: str = ""
    path: str = ""
    python: str = sys.executable
    cwd: Path = Path()
    proxy: str = ""
    tools: Path | None = None
    fix_tools: Path | None = None
    csv: Path | None = None
    conformance: bool = False
    instruction: str = ""
    responses: Path | None = None
    where: Where = field(default_factory=lambda: Where(Path(".windtunnel")))
    timeout_s: float = 10.0
    import_timeout_s: float = 30.0
    turn_timeout_s: float = 60.0

    @property
    def has_agent(self) -> bool:
        return bool(self.app or self.url or self.file)


@dataclass(slots=True)
class Context:
    """What is known so far."""

    request: Request
    application: Application | None = None
    posts: tuple[str, ...] = ()
    """Paths that the application takes POST at, if it tells."""
    agent: AgentRegistration | None = None
    """The agent to talk to, once it is known where it is."""
    tools_list: Any = None
    """The tools list as somebody wrote it, and its file."""
    tools_file: str = ""
    tools: tuple[ToolRegistration, ...] | None = None
    """The tools, once the list was found to be right."""
    redactor: Redactor = field(default_factory=lambda: Redactor([]))
    """Takes the agent's auth value out of findings, once it is known."""

    def the_agent(self) -> AgentRegistration:
        """The agent. Only for steps that need a check which sets it."""
        assert self.agent is not None
        return self.agent

    def auth_value(self, check: str) -> str | None:
        """The value of the agent's auth header, if it has one. May read a file.

        Raises:
            Settled: it is not where the reference says.
        """
        agent = self.the_agent()
        if not agent.auth_header or not agent.auth_value_ref:
            return None
        try:
            value = resolve(agent.auth_value_ref, "the agent")
        except SecretMissing as error:
            raise Settled(failed(check, str(error), "set it, and run the doctor again")) from None
        self.redactor = Redactor([value])
        return value

    def output(self) -> tuple[str, ...]:
        """What the application printed last."""
        if self.application is None:
            return ()
        return tuple(f"application: {line}" for line in self.application.output())
