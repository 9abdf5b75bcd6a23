"""A run's coordinator, as a pure fold over the request and the notices about its sessions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from schemas.codec import Codec
from schemas.registry import AgentRegistration, Suite
from schemas.runs import OffsetRange, RunRequest, SessionNotice
from schemas.trajectory import EndReason
from services.dispatcher.expansion import MAX_ATTEMPTS, Phase, Plan, Planned, budget, retries
from services.runtime.bus.records import Incoming

QUEUES = ("room", "arrival", "phase")
"""What a session can wait for: the end of another, its time in an open loop, its phase."""


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
    phases: list[Phase] = field(default_factory=list)
    """Those of the plan, and after each the one in which its spoilt sessions are played again."""
    began_ms: dict[str, int] = field(default_factory=dict)
    """When the clock of open-loop phases started, by name."""
    retries_left: int = 0
    superseded: set[str] = field(default_factory=set)
    """Sessions that the simulator spoilt and that are played again under another id."""
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
        return self.phases[self.phase].sessions

    @property
    def size(self) -> int:
        """All sessions, those that are played again included."""
        return sum(len(phase.sessions) for phase in self.phases)

    def accept(self, plan: Plan) -> None:
        """Take the plan; sessions that ended before it was known are counted now."""
        self.plan = plan
        self.phases = list(plan.phases)
        self.retries_left = budget(self.request, plan)
        self._index()
        number = 0
        while number < len(self.phases):
            self._retry(number)
            number += 1

    def count_ended(self, session_id: str) -> None:
        if (number := self.phase_of.get(session_id)) is not None:
            self.ended_in_phase[number] += 1
            self._retry(number)

    def room(self) -> int:
        """How many sessions may be started now, as far as the bound goes.

        After a takeover `admitted` counts again from 0 while ended sessions count already;
        what was ended is skipped when it is admitted again, so the bound still holds.
        """
        phase = self.phases[self.phase]
        running = self.admitted - self.ended_in_phase[self.phase]
        return min(phase.concurrency - running, len(phase.sessions) - self.admitted)

    def due_ms(self, ahead: int = 0) -> int | None:
        """When the session that comes `ahead` after the next is to start; None in a closed loop."""
        phase = self.phases[self.phase]
        if not phase.arrivals:
            return None
        return self.began_ms[phase.name] + phase.arrivals[self.admitted + ahead]

    def due(self, now_ms: int) -> int:
        """How many sessions have arrived and are not started; in a closed loop, all are there."""
        phase = self.phases[self.phase]
        if not phase.arrivals:
            return len(phase.sessions) - self.admitted
        return bisect_right(phase.arrivals, now_ms - self.began_ms[phase.name]) - self.admitted

    def queued(self, now_ms: int) -> Mapping[str, int]:
        """How many planned sessions are not started, by which of `QUEUES` they stand in."""
        found = dict.fromkeys(QUEUES, 0)
        if self.plan is None or self.overdue or self.completed:
            return found
        phase = self.phases[self.phase]
        # After a takeover those that ended are admitted again, and skipped.
        left = len(phase.sessions) - max(self.admitted, self.ended_in_phase[self.phase])
        if not phase.arrivals:
            found["room"] = left
        elif phase.name not in self.began_ms:
            found["arrival"] = left
        else:
            found["room"] = min(left, self.due(now_ms))
            found["arrival"] = left - found["room"]
        later = range(self.phase + 1, len(self.phases))
        found["phase"] = sum(len(self.phases[n].sessions) - self.ended_in_phase[n] for n in later)
        return found

    def _index(self) -> None:
        self.phase_of = {
            planned.session_id: number
            for number, phase in enumerate(self.phases)
            for planned in phase.sessions
        }
        self.ended_in_phase = [
            sum(one.session_id in self.ended for one in phase.sessions) for phase in self.phases
        ]

    def _retry(self, number: int) -> None:
        """Once a phase is over, add the one in which its spoilt sessions are played again.

        Not before: who of several is, where the budget is not enough, must not depend on who ended
        first.
        """
        phase = self.phases[number]
        over = self.ended_in_phase[number] == len(phase.sessions)
        if not over or any(one.session_id in self.superseded for one in phase.sessions):
            return
        spoilt = [
            one
            for one in phase.sessions
            if self.ended[one.session_id] == EndReason.SIMULATOR_INVALID
            and one.attempt + 1 < MAX_ATTEMPTS
        ][: self.retries_left]
        again = retries(phase, spoilt, self.request.run_id)
        if again is None:
            return
        assert self.plan is not None
        self.retries_left -= len(spoilt)
        for one in spoilt:
            self.superseded.add(one.session_id)
            category = self.plan.categories[one.scenario_id]
            self.ended_categories[category] = self.ended_categories.get(category, 1) - 1
        self.phases.insert(number + 1, again)
        self._index()


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
            count = state.ended_categories.get(notice.category, 0)
            state.ended_categories[notice.category] = count + 1
            state.count_ended(notice.session_id)
        elif notice.what == "scored":
            state.scored.add(notice.session_id)
        state.dirty = True

    def wants(self, state: RunState) -> Hashable | None:
        if state.plan is None:
            return Accept()
        planned = state.size
        if state.overdue or (len(state.ended) >= planned and len(state.scored) >= planned):
            return Complete()
        if state.admitted < len(state.current()) or state.phase + 1 < len(state.phases):
            if self._phase_is_over(state):
                return Admit(state.phase + 1, len(state.ended))
            if state.room() > 0:
                return Admit(state.phase, len(state.ended))
        return None

    def finished(self, state: RunState) -> bool:
        return state.completed

    def _phase_is_over(self, state: RunState) -> bool:
        if state.phase + 1 >= len(state.phases):
            return False
        return state.ended_in_phase[state.phase] == len(state.current())
