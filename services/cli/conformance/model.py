"""What is asked of the conformance kit and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.registry import ToolRegistration

Level = Literal["must", "should"]
Outcome = Literal["passed", "failed", "not_applicable"]


@dataclass(frozen=True, slots=True)
class AgentTarget:
    """An agent's endpoint and what to ask of it.

    Only `url` is needed; the more is told, the more checks apply. About twenty turns are posted,
    none of them with side effects outside the agent: its tool calls are answered by the kit.
    """

    url: str
    """Where turns are posted."""
    auth_header: str | None = None
    """The agent's own auth header, such as Authorization, if it has one."""
    auth_value: str | None = field(default=None, repr=False)
    """That header's value: a secret, shown nowhere."""
    tools: Sequence[ToolRegistration] | None = None
    """The tools the agent is registered with."""
    instruction: str = "Where is my order 4521?"
    """What the user says. Best something for which the agent calls a tool, or better two."""
    task_input: Mapping[str, Any] = field(default_factory=dict)
    """The state that comes with the instruction: the body's `input.input`."""
    responses: Mapping[str, Any] = field(default_factory=dict)
    """What tools answer, by name. Else it is made from the tool's output schema, if known."""
    timeout_s: float = 300.0
    """Seconds for each turn; `run_timeout_s` of the registration."""
    listen_host: str = "127.0.0.1"
    """Address of this machine on which the kit's proxy listens, on a free port."""
    advertised_host: str | None = None
    """The name by which the agent reaches it, if that is another one."""
    sessions: int = 4
    """How many turns are posted at once to see that they keep apart."""
    slow_tool_s: float = 6.0
    """How long a slow tool takes. The contract says 3 to 20 seconds."""
    settle_s: float = 1.0
    """How long to wait, at the end, for calls that come after the answer."""


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """One check: what it proves and how to mend what it finds."""

    id: str
    requirement: str
    level: Level
    expected: str
    mend: str


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found. `seen` is the reason where the check was not applicable."""

    id: str
    requirement: str
    level: Level
    outcome: Outcome
    expected: str
    seen: str
    mend: str
    """How to mend it; empty unless it failed."""

    @property
    def blocks(self) -> bool:
        """Whether the agent breaks the contract: a failed check that is a must."""
        return self.outcome == "failed" and self.level == "must"
