"""The agents topic as the API uses it: reads that see every earlier write, writes that are told
when another came first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from schemas.registry import AgentRegistration
from schemas.topics import AGENTS
from services.control.errors import Refused
from services.runtime import metrics as m
from services.runtime.bus.errors import BusError, RecordTooLarge
from services.runtime.bus.records import Incoming, Outgoing
from services.runtime.lookup import REMEMBERED, Lookup
from services.runtime.service import Publication, Service

Decide = Callable[[AgentRegistration | None], AgentRegistration | None]
"""From what is registered to what should be, None for nothing; may raise Refused."""


class Registry(Lookup[AgentRegistration]):
    """Agents by id. Any number of replicas may read and write at once."""

    def __init__(
        self, service: Service[Any], *, append_timeout_s: float, read_timeout_s: float
    ) -> None:
        super().__init__(service, AGENTS, AgentRegistration)
        self._append_timeout_s, self._read_timeout_s = append_timeout_s, read_timeout_s
        self._writing = asyncio.Lock()
        self._watched: str | None = None
        self._heard: list[AgentRegistration | None] = []
        self._reading: asyncio.Task[None] | None = None
        self._next_reading: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether one more agent would make every service forget another."""
        return len(self._values) >= REMEMBERED

    async def current(self, agent_id: str) -> AgentRegistration | None:
        """What is registered, every write before this call included, whoever made it.

        Raises:
            Refused: log_unavailable.
        """
        await self._refresh()
        return self.get(agent_id)

    async def all(self) -> list[AgentRegistration]:
        """All agents by id, as `current` reads them."""
        await self._refresh()
        return sorted(self.values(), key=lambda agent: agent.agent_id)

    async def write(self, agent_id: str, decide: Decide) -> AgentRegistration | None:
        """Replace what is registered by what `decide` makes of it; returning means that the
        broker has acknowledged it and that `current` gives it. The same again writes nothing.

        Writes of one replica are done one after the other. Where two replicas write one agent in
        the same instant, both records are in the log and the later stands; the one who wrote it
        without having seen the other is told.

        Raises:
            Refused: what `decide` raises, log_unavailable, write_unconfirmed, write_crossed,
                registration_too_large.
        """
        async with self._writing:
            before = await self.current(agent_id)
            after = decide(before)
            if after == before:
                return after
            self._watched, self._heard = agent_id, []
            try:
                await self._append(agent_id, after)
                await self._refresh()
            except RecordTooLarge:
                raise Refused("registration_too_large") from None
            except (BusError, Refused) as error:
                self._service.log.warning("a write was not confirmed", error=_reason(error))
                raise Refused("write_unconfirmed") from None
            finally:
                self._watched = None
            if self._heard[:1] != [after]:
                raise Refused("write_crossed")
            return after

    def apply(self, incoming: Incoming) -> None:
        super().apply(incoming)
        if incoming.key == self._watched:
            self._heard.append(self.get(incoming.key))

    async def _append(self, agent_id: str, agent: AgentRegistration | None) -> None:
        timeout_s = self._append_timeout_s
        if agent is not None:
            publication = Publication(AGENTS, agent_id, agent)
            await self._service.publish(publication, timeout_s=timeout_s)
            return
        tombstone = Outgoing(AGENTS.full_name, agent_id, b"")
        await self._service.producer.append([tombstone], timeout_s=timeout_s)
        self._service.metrics.add(m.EVENTS_PRODUCED, topic=AGENTS.name)

    async def _refresh(self) -> None:
        """Read to the end of the topic. Callers share a reading that begins after they came."""
        if self._next_reading is None:
            self._next_reading = asyncio.create_task(self._read_after(self._reading))
            # Whoever waited may have left, and an outage is no reason for an unheard complaint.
            self._next_reading.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._next_reading)

    async def _read_after(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        # Who comes from here on may have missed the question where the topic ends.
        self._reading, self._next_reading = self._next_reading, None
        try:
            async with asyncio.timeout(self._read_timeout_s):
                await self.catch_up(self._read_timeout_s)
        except (BusError, TimeoutError) as error:
            self._service.log.warning("agents cannot be read", error=_reason(error))
            raise Refused("log_unavailable") from None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
