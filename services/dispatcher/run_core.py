"""A run's coordinator, as a pure fold over the request and the notices about its sessions."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from schemas.codec import Codec
from schemas.registry import AgentRegistration, Suite
from schemas.runs import OffsetRange, RunRequest, SessionNotice
from services.dispatcher.expansion import Plan, Planned
from services.runtime.bus.records import Incoming


@dataclass(frozen=True, slots=True)
class Accept:
    """Check the request, look up what it names, and say whether it is accepted."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Start sessions; `ended` sessions have made room since the last time."""

    phase: int
    ended: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Everything is through: say where the run's records are."""


@dataclass(slots=True)
class RunState:
    """What the coordinator remembers of a run; the counts are what run-status reports."""

    request: RunRequest
    plan: Plan | None = None
    suite: Suite | None = None
    agent: AgentRegistration | None = None
    accepted_at_ms: int = 0
    begin: tuple[OffsetRange, ...] = ()
    phase: int = 0
    admitted: int = 0
    """How many of the current phase's sessions were started, from its beginning."""
    started: int = 0
    ended: dict[str, str] = field(default_factory=dict)
    """End reason by session."""
    phase_of: dict[str, int] = field(default_factory=dict)
    ended_in_phase: list[int] = field(default_factory=list)
    ended_categories: dict[str, int] = field(default_factory=dict)
    scored: set[str] = field(default_factory=set)
    overdue: bool = False
    completed: bool = False
    dirty: bool = False
    """Something has changed since the last report."""

    def current(self) -> tuple[Planned, ...]:
        """The sessions of the current phase."""
        assert self.plan is not None
        return self.plan.phases[self.phase].sessions

    def accept(self, plan: Plan) -> None:
        """Take the plan; sessions that ended before it was known are counted now."""
        self.plan = plan
        self.phase_of = {
            planned.session_id: number
            for number, phase in enumerate(plan.phases)
            for planned in phase.sessions
        }
        self.ended_in_phase = [0] * len(plan.phases)
        for session_id in self.ended:
            self.count_ended(session_id)

    def count_ended(self, session_id: str) -> None:
        if (number := self.phase_of.get(session_id)) is not None:
            self.ended_in_phase[number] += 1

    def room(self) -> int:
        """How many sessions may be started now.

        After a takeover `admitted` counts again from 0 while ended sessions count already;
        what was ended is skipped when it is admitted again, so the bound still holds.
        """
        assert self.plan is not None
        phase = self.plan.phases[self.phase]
        running = self.admitted - self.ended_in_phase[self.phase]
        return min(phase.concurrency - running, len(phase.sessions) - self.admitted)


class RunCore:
    """The fold. See `services.runtime.core.Core` for what each method owes."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def start(self, request: RunRequest) -> RunState:
        return RunState(request)

    def apply(self, state: RunState, request: RunRequest) -> None:
        raise ValueError("a run id is requested once")

    def foreign(self, state: RunState, incoming: Incoming) -> None:
        notice = self._codec.decode(SessionNotice, incoming.value)
        if notice.what == "ended" and notice.session_id not in state.ended:
            state.ended[notice.session_id] = notice.reason
            state.count_ended(notice.session_id)
            count = state.ended_categories.get(notice.category, 0)
            state.ended_categories[notice.category] = count + 1
        elif notice.what == "scored":
            state.scored.add(notice.session_id)
        state.dirty = True

    def wants(self, state: RunState) -> Hashable | None:
        if state.plan is None:
            return Accept()
        planned = state.plan.size
        if state.overdue or (len(state.ended) >= planned and len(state.scored) >= planned):
            return Complete()
        if state.admitted < len(state.current()) or state.phase + 1 < len(state.plan.phases):
            if self._phase_is_over(state):
                return Admit(state.phase + 1, len(state.ended))
            if state.room() > 0:
                return Admit(state.phase, len(state.ended))
        return None

    def finished(self, state: RunState) -> bool:
        return state.completed

    def _phase_is_over(self, state: RunState) -> bool:
        assert state.plan is not None
        if state.phase + 1 >= len(state.plan.phases):
            return False
        return state.ended_in_phase[state.phase] == len(state.current())
