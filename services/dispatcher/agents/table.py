"""The agent kinds there are, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration
from services.dispatcher.agents.chat import ChatAgent
from services.dispatcher.agents.kind import AgentKind
from services.dispatcher.agents.proxy_calls import ProxyCalls
from services.dispatcher.agents.rasa import RasaAgent
from services.runtime.agents.client import AgentClient, TurnRequest
from services.runtime.agents.exchange import Exchanger
from services.runtime.clock import Clock


class AgentKinds:
    """An AgentKind that leaves each agent to its kind."""

    def __init__(
        self,
        max_connections: int,
        clock: Clock,
        more: Mapping[str, AgentKind] | None = None,
        *,
        retried: Callable[[str], None],
    ) -> None:
        """`more`: kinds that do not speak HTTP, by the name that registrations give. `retried`
        hears of every second try, and of what: agent_model, agent_tool_call.
        """
        self._exchanger = Exchanger(max_connections)
        proxy = ProxyCalls(self._exchanger, retried=partial(retried, "agent_tool_call"))
        self._kinds: dict[str, AgentKind] = {
            "http": AgentClient(max_connections, self._exchanger),
            "openai": ChatAgent(
                self._exchanger, proxy, clock, retried=partial(retried, "agent_model")
            ),
            "rasa": RasaAgent(self._exchanger, proxy),
            **(more or {}),
        }

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        return await self._of(agent).turn(agent, request)

    async def check(self, agent: AgentRegistration, timeout_s: float) -> None:
        await self._of(agent).check(agent, timeout_s)

    async def close(self) -> None:
        for kind in self._kinds.values():
            await kind.close()
        await self._exchanger.close()

    def _of(self, agent: AgentRegistration) -> AgentKind:
        kind = self._kinds.get(agent.kind)
        if kind is None:
            raise LookupError(f"agents of kind {agent.kind!r} cannot be run here")
        return kind
