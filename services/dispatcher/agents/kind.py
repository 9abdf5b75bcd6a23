"""What the dispatcher needs of an agent, whatever kind it is."""

from __future__ import annotations

from typing import Protocol

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration
from services.runtime.agents.client import TurnRequest


class Superseded(Exception):
    """The turn was posted again by somebody else, whose answer it is to give."""


class AgentKind(Protocol):
    """Puts turns to agents of one kind. One per process; safe for any number of turns at once."""

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        """Put one turn to the agent and return its usable answer.

        Bounded in time by the agent's own timeout and in size by the kind's limits.

        Raises:
            AgentFailed: no usable answer; the fault is the agent's.
            SecretMissing: a secret of the agent cannot be resolved.
            LookupError: something that is not the agent's fault is missing here.
            Superseded: nothing is to be recorded.
        """

    async def check(self, agent: AgentRegistration, timeout_s: float) -> None:
        """Return when the agent is there and lets us in, as far as can be told without a turn.

        Raises:
            AgentFailed, SecretMissing, LookupError
        """

    async def close(self) -> None:
        """Release what is held; turns under way are not waited for."""
