"""A state table over the trajectories: what every session-keeping service is built on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

from schemas.topics import TRAJECTORIES, Topic
from schemas.trajectory import SESSION_STARTED, TrajectoryEvent
from services.runtime.core import Core, Stream
from services.runtime.service import Service
from services.runtime.state_table import StateTable

St = TypeVar("St")

SESSIONS: Stream[TrajectoryEvent] = Stream(
    topic=TRAJECTORIES,
    record=TrajectoryEvent,
    key_of=lambda event: event.session_id,
    step_of=lambda event: event.event_id,
    starts=lambda event: event.kind == SESSION_STARTED,
)


class SessionTable(StateTable[TrajectoryEvent, St]):
    """The sessions of the owned partitions of `trajectories`."""

    def __init__(
        self,
        service: Service[Any],
        core: Core[TrajectoryEvent, St],
        act: Callable[[St, Hashable], Awaitable[None]] | None = None,
        *,
        foreign: Topic | None = None,
        concurrency: int = 1000,
    ) -> None:
        super().__init__(service, SESSIONS, core, act, foreign=foreign, concurrency=concurrency)
        self.measured()
