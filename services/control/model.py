"""What the control API answers with, as its OpenAPI document shows it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schemas.agent_document import AgentDocument, CodeDocument
from schemas.registry import AgentRegistration
from services.runtime.agents.connection import ConnectionReport
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.clock import iso


class AgentSummary(BaseModel):
    """An agent, without what only its own document shows."""

    agent_id: str
    name: str = Field(description="Shared by the builds that are compared with one another.")
    kind: str
    endpoint: str
    tools: int = Field(description="How many.")
    fingerprint: str = Field(description="A hash over everything registered but the time.")
    registered_at: str = Field(description="RFC 3339, UTC.")

    @classmethod
    def of(cls, agent: AgentRegistration) -> AgentSummary:
        return cls(
            agent_id=agent.agent_id,
            name=agent.name,
            kind=agent.kind,
            endpoint=agent.endpoint,
            tools=len(agent.tools),
            fingerprint=fingerprint(agent),
            registered_at=iso(agent.registered_at_ms),
        )


class AgentPage(BaseModel):
    """Agents by id."""

    agents: list[AgentSummary]
    next_cursor: str | None = Field(description="Asks for the next page; null on the last.")


class AgentFingerprint(BaseModel):
    """What an agent was registered as, in one hash, and when."""

    agent_id: str
    fingerprint: str
    registered_at: str


class ConnectionProbe(BaseModel):
    """One question to an agent and what became of it."""

    name: str = Field(description="ping, ping_wrong_auth, ping_no_auth, open; models, status.")
    status: int | None = Field(description="The HTTP status; null where no answer came.")
    latency_ms: int
    verdict: Literal["ok", "warning", "failed"]
    detail: str
    hint: str = Field(description="What to do about it; empty if nothing.")


class ConnectionAnswer(BaseModel):
    """What was found out about an agent."""

    agent_id: str
    kind: str
    endpoint: str
    ok: bool = Field(description="Whether no probe failed; warnings are allowed.")
    reachable: bool = Field(description="Whether turns can be put to the agent.")
    probes: list[ConnectionProbe]

    @classmethod
    def of(cls, report: ConnectionReport) -> ConnectionAnswer:
        return cls(
            agent_id=report.agent_id,
            kind=report.kind,
            endpoint=report.endpoint,
            ok=report.ok,
            reachable=report.reachable,
            probes=[ConnectionProbe(**dataclasses.asdict(probe)) for probe in report.probes],
        )


class ErrorBody(BaseModel):
    """A row of docs/control-api-errors.md."""

    code: str
    message: str
    retryable: bool
    details: dict[str, Any] = Field(default_factory=dict)


class ErrorAnswer(BaseModel):
    """Every refusal."""

    error: ErrorBody


class UploadedCode(CodeDocument):
    """Source of a code agent: exactly one of paste, zip, git and published."""

    path: None = Field(default=None, description="For files beside a registration; not here.")


class NewAgent(AgentDocument):
    """An agent under test. Secrets by reference alone: `env:NAME` or `file:PATH`, resolved where
    the services run, at the moment of use."""

    code: UploadedCode | None = None


class ToolMode(BaseModel):
    """How one tool is to be answered. Passing through needs a target, once."""

    model_config = ConfigDict(extra="forbid")

    mode: Literal["sandbox", "passthrough"]
    target: str | None = Field(default=None, description="URL of the real tool.")
    target_kind: Literal["http", "mcp"] = "http"
    target_tool: str | None = None
    target_auth_header: str | None = None
    target_auth_ref: str | None = None
    target_timeout_s: int = Field(default=30, ge=1, le=300)


class AgentChanges(NewAgent):
    """What is to change; what is not given stays, and null drops a field. `tools` replaces the
    whole list; `tool_modes` flips single tools by name and leaves the others alone. A tool that
    goes to the sandbox loses its target."""

    tool_modes: dict[str, ToolMode] | None = None
