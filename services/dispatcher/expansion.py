"""From a run request to its sessions: scenario x trial, and how many of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from schemas.briefs import split
from schemas.registry import AgentRegistration, Suite
from schemas.runs import RunRequest
from schemas.scenario import Category, Scenario
from schemas.trajectory import SESSION_STARTED, Limits, SessionStarted, TrajectoryEvent
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.ids import decimal_id, session_id, session_seed


class RequestRefused(Exception):
    """The run request cannot be carried out; every reason is in `errors`."""

    def __init__(self, errors: Sequence[str]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(errors))


@dataclass(frozen=True, slots=True)
class Planned:
    """One session to come."""

    session_id: str
    scenario_id: str
    trial: int
    copy: int


@dataclass(frozen=True, slots=True)
class Phase:
    """Sessions that are admitted together; a phase begins when the one before has ended."""

    sessions: tuple[Planned, ...]
    concurrency: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All sessions of a run, in the order of their admission."""

    scenarios: dict[str, Scenario]
    phases: tuple[Phase, ...]
    categories: dict[str, str]
    """Of the whole suite, also of scenarios that this run leaves out."""

    @property
    def size(self) -> int:
        return sum(len(phase.sessions) for phase in self.phases)

    def per_scenario(self) -> dict[str, int]:
        """Planned sessions by scenario id."""
        counts = dict.fromkeys(self.scenarios, 0)
        for phase in self.phases:
            for planned in phase.sessions:
                counts[planned.scenario_id] += 1
        return counts


def check_request(request: RunRequest) -> None:
    """Refuse what can be seen to be wrong without looking anything up.

    Raises:
        RequestRefused: with every problem found.
    """
    bounds = (
        ("trials", request.trials, 1, 10_000),
        ("concurrency", request.concurrency, 1, 100_000),
        ("tool_calls_per_minute", request.tool_calls_per_minute, 1, 10_000_000),
        ("deadline_s", request.deadline_s, 1, 7 * 86_400),
    )
    errors = [
        f"{name} is {value}; expected {low} to {high}"
        for name, value, low, high in bounds
        if not low <= value <= high
    ]
    for name in ("run_id", "suite", "agent_id"):
        if not getattr(request, name).strip():
            errors.append(f"{name} is empty")
    if not 0 <= request.failure_multiplier <= 1000:
        errors.append(f"failure_multiplier is {request.failure_multiplier}; expected 0 to 1000")
    if request.baseline not in ("accepted", "none"):
        errors.append(f"baseline is {request.baseline!r}; expected 'accepted' or 'none'")
    if errors:
        raise RequestRefused(errors)


def make_plan(request: RunRequest, scenarios: Sequence[Scenario], *, can_improvise: bool) -> Plan:
    """The run's sessions. Load scenarios get a phase of their own each, at their concurrency.

    `can_improvise`: a user model is configured, so scenarios without a written agenda can be
    played.

    Raises:
        RequestRefused: unknown scenario ids, or scenarios that nobody here can play.
    """
    by_id = {scenario.id: scenario for scenario in scenarios}
    errors = [
        f"scenario {name!r} is not in the suite" for name in request.scenarios if name not in by_id
    ]
    chosen = {
        name: scenario
        for name, scenario in sorted(by_id.items())
        if not request.scenarios or name in request.scenarios
    }
    errors += [
        f"scenario {name!r} has no user goals, only a simulation_context: set "
        f"WINDTUNNEL_USER_MODEL so that a model can play it, or write `user.goals`"
        for name, scenario in chosen.items()
        if not can_improvise and not scenario.all_conversations()
    ]
    if not chosen and not errors:
        errors.append("the suite has no scenarios")
    if errors:
        raise RequestRefused(errors)

    def planned(scenario: Scenario, copies: int) -> list[Planned]:
        return [
            Planned(session_id(request.run_id, scenario.id, trial, copy), scenario.id, trial, copy)
            for trial in range(request.trials)
            for copy in range(copies)
        ]

    together: list[Planned] = []
    phases: list[Phase] = []
    for scenario in chosen.values():
        if scenario.category is Category.LOAD and scenario.load is not None:
            sessions = tuple(planned(scenario, scenario.load.sessions))
            phases.append(Phase(sessions, scenario.load.concurrency))
        else:
            together += planned(scenario, 1)
    if together:
        phases.insert(0, Phase(tuple(together), request.concurrency))
    categories = {name: str(scenario.category) for name, scenario in sorted(by_id.items())}
    return Plan(chosen, tuple(phases), categories)


def started_event(
    request: RunRequest,
    plan: Plan,
    planned: Planned,
    suite: Suite,
    agent: AgentRegistration,
    at_ms: int,
) -> TrajectoryEvent:
    """The *session started* event of a planned session."""
    scenario = plan.scenarios[planned.scenario_id]
    seed = session_seed(request.seed, scenario.id, planned.trial, planned.copy)
    briefs = split(
        scenario,
        agent,
        seed,
        failure_multiplier=request.failure_multiplier,
        calls_per_minute=request.tool_calls_per_minute,
    )
    limits = scenario.limits
    copies = scenario.load.sessions if scenario.load else 1
    return TrajectoryEvent(
        event_id=f"{planned.session_id}:start",
        session_id=planned.session_id,
        run_id=request.run_id,
        kind=SESSION_STARTED,
        at_ms=at_ms,
        session_started=SessionStarted(
            scenario_id=scenario.id,
            scenario_version=scenario.version,
            category=str(scenario.category),
            trial=planned.trial * copies + planned.copy,
            seed=seed,
            suite=suite.name,
            suite_hash=suite.suite_hash,
            agent_id=agent.agent_id,
            agent_fingerprint=fingerprint(agent),
            task_id=decimal_id("task", planned.session_id),
            user_brief=briefs.user.model_dump_json(),
            tool_brief=briefs.tool.model_dump_json(),
            task_input=orjson.dumps(dict(briefs.task_input)).decode(),
            conversations=max(1, len(scenario.all_conversations())),
            limits=Limits(
                turns=limits.turns,
                tool_calls=limits.tool_calls,
                wall_ms=int(limits.wall_s * 1000),
                tokens=limits.tokens,
                cost_usd=limits.cost_usd,
            ),
            planned_at_ms=at_ms,
            variation=briefs.variation,
        ),
    )
