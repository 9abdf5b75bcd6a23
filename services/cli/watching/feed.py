"""Reading what runs and sessions say, while it is watched: tails of topics, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from schemas.errors import WindtunnelSchemaError
from schemas.gate import GateStatus
from schemas.runs import RunStatus
from schemas.scores import SessionScored
from schemas.topics import GATE_STATUS, RUN_STATUS, SCORES, TRAJECTORIES, Topic
from schemas.trajectory import AGENT_TURN, SESSION_ENDED, SESSION_STARTED, TrajectoryEvent
from services.cli.connection import Connection
from services.cli.watching.figures import Failure
from services.runtime.bus.records import Incoming
from services.runtime.bus.table import BusTable

LOOK_BACK = 2_000
"""Records at the end of each partition that are read for what went on just before."""
_CLIENT_ID = "windtunnel-watch"
_TIMEOUT_S = 15.0
_STOP_S = 1.5
_KINDS = frozenset({SESSION_STARTED, SESSION_ENDED, AGENT_TURN})

T = TypeVar("T")


class Sessions(Protocol):
    """Who hears of sessions' records; `runs.Runs`, or one run."""

    def wants(self, run_id: str) -> bool: ...

    def event(self, event: TrajectoryEvent) -> None: ...

    def score(self, score: SessionScored) -> Failure | None: ...


class Statuses(Protocol):
    """Who hears of runs; `runs.Runs`."""

    def status(self, status: RunStatus) -> None: ...

    def verdict(self, verdict: GateStatus) -> None: ...


class Feed:
    """Hands records on while it is entered. Nobody's progress depends on it: it has no group."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._tables: list[BusTable] = []
        self._earliest: dict[tuple[str, int], tuple[int, int]] = {}

    async def follow_runs(self, statuses: Statuses) -> None:
        """Returns when all that was there was handed on. Raises BusError."""
        await self._follow(GATE_STATUS, GateStatus, statuses.verdict)
        await self._follow(RUN_STATUS, RunStatus, statuses.status)

    async def follow_sessions(
        self,
        sessions: Sessions,
        failed: Callable[[Failure], None] | None = None,
        *,
        last: int = 0,
    ) -> int:
        """Follow what sessions do from now on, and `last` records of each partition before.

        Returns since when everything is known, in ms; 0 when nothing before now was left out.
        Raises BusError.
        """

        def score(record: SessionScored) -> None:
            failure = sessions.score(record)
            if failure is not None and failed is not None:
                failed(failure)

        await asyncio.gather(
            self._follow(TRAJECTORIES, TrajectoryEvent, sessions.event, last, sessions.wants),
            self._follow(SCORES, SessionScored, score, last, sessions.wants),
        )
        return max((at for at, count in self._earliest.values() if count >= last), default=0)

    async def wait_failed(self) -> None:
        """Returns when it was stopped; raises what ended the reading, as BusError."""
        await asyncio.gather(*(table.wait_failed() for table in self._tables))

    async def stop(self) -> None:
        """Stop reading. Does not raise, and does not wait for a broker that is away."""
        tables, self._tables = self._tables, []
        await asyncio.gather(*(table.stop(_STOP_S) for table in tables))

    async def _follow(
        self,
        topic: Topic,
        cls: type[T],
        apply: Callable[[T], None],
        last: int | None = None,
        wants: Callable[[str], bool] = lambda run_id: True,
    ) -> None:
        def take(incoming: Incoming) -> None:
            if last:
                self._note(incoming)
            if incoming.is_tombstone or not wants(incoming.headers.get("run", "")):
                return
            if topic is TRAJECTORIES and incoming.headers.get("kind") not in _KINDS:
                return
            try:
                record: Any = self._connection.codec.decode(cls, incoming.value)
            except WindtunnelSchemaError:
                return  # the services' dead letter
            apply(record)

        table = BusTable(
            self._connection.settings.bus(), topic.full_name, take, _CLIENT_ID, last=last
        )
        self._tables.append(table)
        await table.start(_TIMEOUT_S)

    def _note(self, incoming: Incoming) -> None:
        """Remember where each partition begins to be known, while its past is read."""
        where = incoming.topic, incoming.partition
        at_ms, count = self._earliest.get(where, (incoming.timestamp_ms, 0))
        self._earliest[where] = at_ms, count + 1
