"""What the user simulator tells of its sessions: a span of each turn and act of the user's."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.trajectory import TrajectoryEvent
from services.runtime.core import Core
from services.runtime.telemetry import Telemetry, Traced
from services.runtime.telemetry_span import Span
from services.runtime.telemetry_spans import user_span
from services.user_simulator.core import UserSide

UserCore = Core[TrajectoryEvent, UserSide]


def traced(core: UserCore, telemetry: Telemetry | None) -> UserCore:
    """The core, telling of its sessions if there is somebody to tell."""
    if telemetry is None:
        return core
    contents = telemetry.contents
    return Traced(core, telemetry, lambda state, event: spans(state, event, contents))


def spans(state: UserSide, event: TrajectoryEvent, contents: bool) -> Iterator[Span]:
    """The span of an event of the user's own. Pure."""
    if not state.ended and (event.user_turn is not None or event.user_acted is not None):
        yield user_span(event, contents=contents)
