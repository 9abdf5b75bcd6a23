"""What the dispatcher tells of its sessions: their spans, and those of the agent's turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from schemas.registry import AgentRegistration
from schemas.trajectory import TrajectoryEvent
from services.dispatcher.session_core import SessionState
from services.runtime.core import Core
from services.runtime.telemetry import Telemetry, Traced
from services.runtime.telemetry_span import Span
from services.runtime.telemetry_spans import session_span, turn_span, unanswered_span

DispatchCore = Core[TrajectoryEvent, SessionState]
AgentOf = Callable[[str, str], AgentRegistration | None]


def traced(core: DispatchCore, telemetry: Telemetry | None, agent_of: AgentOf) -> DispatchCore:
    """The core, telling of its sessions if there is somebody to tell."""
    if telemetry is None:
        return core
    contents = telemetry.contents
    return Traced(core, telemetry, lambda state, event: spans(state, event, agent_of, contents))


def spans(
    state: SessionState, event: TrajectoryEvent, agent_of: AgentOf, contents: bool
) -> Iterator[Span]:
    """The spans that an event completes, of the state before it. Pure, as `agent_of` is."""
    if state.ended is not None:
        return
    started, pending = state.started, state.pending
    agent = agent_of(started.agent_id, started.agent_fingerprint)
    name = agent.name if agent is not None else started.agent_id
    if event.agent_turn is not None and pending is not None and pending[0] == event.turn:
        yield turn_span(
            event, agent_id=started.agent_id, agent_name=name, user_text=pending[1],
            contents=contents,
        )  # fmt: skip
    elif event.session_ended is not None:
        if pending is not None:
            yield unanswered_span(
                event, pending[0], state.pending_since_ms, agent_id=started.agent_id,
                agent_name=name,
            )  # fmt: skip
        yield session_span(started, state.started_at_ms, event, name)
