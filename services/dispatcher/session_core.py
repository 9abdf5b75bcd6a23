"""The dispatcher's part of a session, as a pure fold over its events.

Whose move is it? After *session started* the user's; after a user turn with text ours, to put it
to the agent; after the agent's answer the user's again - until somebody ends the session or a
bound is hit. `wants` names the one deed that is due. Before it says something the user may use
tools of its own; the agent's next turn waits for that, because the user's words do.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from schemas.trajectory import (
    AGENT_TURN,
    SESSION_ENDED,
    TOOL_CALLED,
    USER,
    USER_ACTED,
    USER_TURN,
    AgentTurn,
    EndReason,
    SessionStarted,
    TrajectoryEvent,
    Usage,
    UserActed,
    UserTurn,
)
from services.runtime.bus.records import Incoming

KINDS = frozenset(
    {"session_started", USER_TURN, AGENT_TURN, TOOL_CALLED, SESSION_ENDED, USER_ACTED}
)
TOOL_CALL_LIMIT = "tool_call_limit"
USER_CALL_MS = 120_000
"""So long a call of the user's may wait for the tool proxy: longer than it takes to fail over."""
_USER_ENDINGS = frozenset({EndReason.GOAL_MET, EndReason.GAVE_UP})


@dataclass(frozen=True, slots=True)
class Post:
    """Put a user turn to the agent."""

    turn: int


@dataclass(frozen=True, slots=True)
class End:
    """Append *session ended*."""

    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the run's coordinator."""


@dataclass(slots=True)
class SessionState:
    """What the dispatcher remembers of a session."""

    session_id: str
    run_id: str
    started: SessionStarted
    started_at_ms: int
    conversation: int = 1
    history: list[dict[str, str]] = field(default_factory=list)
    """Of the current conversation: what user and agent said before the turn at hand."""
    pending: tuple[int, str] | None = None
    """A user turn that the agent has not answered: its number and text."""
    pending_since_ms: int = 0
    acting: tuple[UserActed, int] | None = None
    """A call of the user's that the tool proxy has not answered, and when it was made."""
    posted: int = 0
    tool_calls: int = 0
    tool_call_refused: bool = False
    tokens: int = 0
    cost_usd: float = 0.0
    injected: dict[str, int] = field(default_factory=dict)
    due: End | None = None
    """Set once something in the log has ended the session; the first such thing counts."""
    expired: bool = False
    """Set from outside the log, when `expires_ms` is past."""
    ended: str | None = None
    notified: bool = False

    @property
    def expires_ms(self) -> int:
        """When the session ends unless something happens: with its wall time, or with that of a
        call of the user's."""
        if self.acting is None:
            return self.deadline_ms
        return min(self.deadline_ms, self.acting[1] + USER_CALL_MS)

    @property
    def deadline_ms(self) -> int:
        """When the session's wall time is used up."""
        return self.started_at_ms + self.started.limits.wall_ms


class DispatcherCore:
    """The fold. See `services.runtime.core.Core` for what each method owes."""

    def start(self, event: TrajectoryEvent) -> SessionState:
        assert event.session_started is not None
        return SessionState(
            event.session_id, event.run_id, event.session_started, started_at_ms=event.at_ms
        )

    def apply(self, state: SessionState, event: TrajectoryEvent) -> None:
        if state.ended is not None:
            return
        if event.user_turn is not None:
            self._user(state, event.turn, event.user_turn)
            state.pending_since_ms = event.at_ms
        elif event.agent_turn is not None:
            self._agent(state, event.turn, event.agent_turn)
        elif event.user_acted is not None:
            self._use(state, event.user_acted.usage)
            if state.pending is None and state.due is None:
                state.acting = event.user_acted, event.at_ms
            self._check_spending(state)
        elif event.tool_called is not None and event.tool_called.requestor == USER:
            if state.acting is not None and event.tool_called.call == state.acting[0].call:
                state.acting = None
        elif event.tool_called is not None:
            state.tool_calls += 1
            self._use(state, event.tool_called.usage)
            if event.tool_called.error_code == TOOL_CALL_LIMIT:
                state.tool_call_refused = True
            if injection := event.tool_called.injection:
                state.injected[injection.rule_id] = state.injected.get(injection.rule_id, 0) + 1
        elif event.session_ended is not None:
            state.ended = event.session_ended.reason

    def foreign(self, state: SessionState, incoming: Incoming) -> None:
        raise NotImplementedError("the dispatcher's sessions have no second topic")

    def wants(self, state: SessionState) -> Hashable | None:
        if state.ended is not None:
            return None if state.notified else Notify()
        if state.due is not None:
            return state.due
        if state.expired and state.acting is not None:
            # Neither agent nor user are slow then: the tool proxy has not answered.
            acted = state.acting[0]
            return End(
                EndReason.INFRASTRUCTURE_ERROR,
                f"the user's call {acted.call}, of {acted.tool}, was not answered",
            )
        if state.expired:
            limit = state.started.limits.wall_ms
            return End(EndReason.LIMIT_WALL_TIME, f"not over after {limit} ms")
        if state.pending is not None:
            return Post(state.pending[0])
        return None

    def finished(self, state: SessionState) -> bool:
        return state.notified

    def _user(self, state: SessionState, number: int, turn: UserTurn) -> None:
        self._use(state, turn.usage)
        state.acting = None
        limits = state.started.limits
        if turn.invalid is not None:
            state.due = End(EndReason.SIMULATOR_INVALID, turn.invalid)
        elif turn.ending in _USER_ENDINGS:
            state.due = End(str(turn.ending))
        elif turn.ending is not None:
            # The conversation is over and the next one begins with an empty history.
            state.conversation += 1
            state.history = []
            if state.conversation > state.started.conversations:
                state.due = End(
                    EndReason.SIMULATOR_INVALID,
                    f"the user ended conversation {state.started.conversations}, which is the last",
                )
        elif state.posted >= limits.turns:
            state.due = End(EndReason.LIMIT_TURNS, f"not over after {limits.turns} turns")
        else:
            state.pending = (number, turn.text)
        self._check_spending(state)

    def _agent(self, state: SessionState, number: int, turn: AgentTurn) -> None:
        if state.pending is None or state.pending[0] != number:
            return
        text = state.pending[1]
        state.pending = None
        state.posted += 1
        self._use(state, turn.usage)
        if turn.outcome == "timeout":
            state.due = End(EndReason.AGENT_TIMEOUT, turn.error_detail or "")
        elif turn.outcome == "infrastructure":
            state.due = End(EndReason.INFRASTRUCTURE_ERROR, turn.error_detail or "")
        elif turn.outcome != "ok":
            state.due = End(
                EndReason.AGENT_ERROR, f"{turn.error_code or 'error'}: {turn.error_detail or ''}"
            )
        else:
            state.history += [
                {"role": "user", "content": text},
                {"role": "assistant", "content": turn.final_response},
            ]
            if state.tool_call_refused:
                limit = state.started.limits.tool_calls
                state.due = End(EndReason.LIMIT_TOOL_CALLS, f"more than {limit} tool calls")
            elif turn.ended:
                state.due = End(EndReason.AGENT_ENDED)
        self._check_spending(state)

    def _use(self, state: SessionState, usage: Usage | None) -> None:
        if usage is not None:
            state.tokens += usage.input_tokens + usage.output_tokens
            state.cost_usd += usage.cost_usd

    def _check_spending(self, state: SessionState) -> None:
        limits = state.started.limits
        if state.due is not None:
            return
        if limits.tokens and state.tokens > limits.tokens:
            state.due = End(EndReason.LIMIT_TOKENS, f"{state.tokens} of {limits.tokens} tokens")
        elif limits.cost_usd and state.cost_usd > limits.cost_usd:
            state.due = End(
                EndReason.LIMIT_COST, f"{state.cost_usd:.4f} of {limits.cost_usd:.4f} USD"
            )
