"""From a run request to its sessions: scenario x trial, and how many of them at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import orjson

from schemas.briefs import split
from schemas.injection_plan import excessive, recorded_plan
from schemas.registry import AgentRegistration, Suite
from schemas.runs import RunRequest, ScenarioObjectives
from schemas.scenario import Category, Scenario
from schemas.trajectory import SESSION_STARTED, Limits, SessionStarted, TrajectoryEvent
from services.dispatcher.arrivals import arrivals
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.ids import decimal_id, session_id, session_seed

MAX_ATTEMPTS = 3
"""So often one trial is played at most, where its simulator spoils it."""


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
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """Sessions that are admitted together; a phase begins when the one before has ended."""

    sessions: tuple[Planned, ...]
    concurrency: int
    name: str = ""
    arrivals: tuple[int, ...] = ()
    """Open loop: milliseconds after the phase's start at which each session arrives."""


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
    if not 0 <= request.retry_budget <= 1:
        errors.append(f"retry_budget is {request.retry_budget}; expected 0 to 1")
    if not 0 <= request.failure_multiplier <= 1000:
        errors.append(f"failure_multiplier is {request.failure_multiplier}; expected 0 to 1000")
    if request.baseline not in ("accepted", "none"):
        errors.append(f"baseline is {request.baseline!r}; expected 'accepted' or 'none'")
    if errors:
        raise RequestRefused(errors)


def make_plan(request: RunRequest, scenarios: Sequence[Scenario], *, can_improvise: bool) -> Plan:
    """The run's sessions. Load scenarios get a phase of their own each, at their concurrency; where
    sessions arrive by the clock, a phase for each trial.

    `can_improvise`: a user model is configured, so scenarios without a written agenda can be
    played.

    Raises:
        RequestRefused: unknown scenario ids, scenarios that nobody here can play, arrivals that
            the run's deadline comes before, or failure rates that are multiplied to above 1.
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
        if not (can_improvise or scenario.all_conversations() or _is_recorded(scenario))
    ]
    errors += [
        f"scenario {name!r} names a corpus whose texts it does not have: publish its suite with "
        f"`windtunnel run`, which puts them in"
        for name, scenario in chosen.items()
        if _lacks_texts(scenario)
    ]
    errors += [
        f"scenario {name!r}, {reason}"
        for name, scenario in chosen.items()
        for reason in excessive(scenario.failures, request.failure_multiplier)
    ]
    if not chosen and not errors:
        errors.append("the suite has no scenarios")
    if errors:
        raise RequestRefused(errors)

    together: list[Planned] = []
    phases: list[Phase] = []
    for scenario in chosen.values():
        if is_load(scenario):
            phases += _load_phases(request, scenario)
        else:
            together += _planned(request, scenario, range(request.trials), 1)
    for phase in phases:
        if phase.arrivals and phase.arrivals[-1] >= request.deadline_s * 1000:
            last_s = phase.arrivals[-1] / 1000
            errors.append(
                f"scenario {phase.sessions[0].scenario_id!r}: the last session arrives after "
                f"{last_s:.0f} s, and the run's deadline is {request.deadline_s} s"
            )
    if errors:
        raise RequestRefused(errors)
    if together:
        phases.insert(0, Phase(tuple(together), request.concurrency))
    categories = {name: str(scenario.category) for name, scenario in sorted(by_id.items())}
    return Plan(chosen, tuple(phases), categories)


def _lacks_texts(scenario: Scenario) -> bool:
    pushed = any(conversation.pushes for conversation in scenario.all_conversations())
    return any(failure.corpus and not failure.texts for failure in scenario.failures) or (
        scenario.user is not None and bool(scenario.user.pushes_from) and not pushed
    )


def is_load(scenario: Scenario) -> bool:
    """Whether a scenario's sessions are many, and run by themselves."""
    return scenario.category is Category.LOAD and scenario.load is not None


def retries(phase: Phase, spoilt: Iterable[Planned], run_id: str) -> Phase | None:
    """The phase in which spoilt sessions are played again; None if there are none.

    Without arrivals: what the clock wanted is over.
    """
    sessions = tuple(
        replace(
            one,
            attempt=one.attempt + 1,
            session_id=session_id(run_id, one.scenario_id, one.trial, one.copy, one.attempt + 1),
        )
        for one in spoilt
    )
    return Phase(sessions, phase.concurrency) if sessions else None


def budget(request: RunRequest, plan: Plan) -> int:
    """How many sessions of a run may be played again."""
    return math.ceil(round(request.retry_budget * plan.size, 6))


def objectives(plan: Plan) -> Iterator[ScenarioObjectives]:
    """What must hold under the load of the plan's scenarios, by id."""
    for name, scenario in sorted(plan.scenarios.items()):
        if is_load(scenario) and scenario.load and scenario.load.objectives:
            bounds = scenario.load.objectives.model_dump(exclude_none=True)
            if bounds:
                yield ScenarioObjectives(
                    scenario_id=name, bounds={key: float(v) for key, v in bounds.items()}
                )


def _load_phases(request: RunRequest, scenario: Scenario) -> Iterator[Phase]:
    load, trials = scenario.load, range(request.trials)
    assert load is not None
    if load.arrival is None:
        yield Phase(
            tuple(_planned(request, scenario, trials, load.sessions)), load.concurrency, scenario.id
        )
        return
    for trial in trials:
        yield Phase(
            tuple(_planned(request, scenario, [trial], load.sessions)),
            load.concurrency,
            f"{scenario.id}#{trial}",
            arrivals(load.arrival, load.sessions, f"{request.seed}:{scenario.id}:{trial}:arrivals"),
        )


def _planned(
    request: RunRequest, scenario: Scenario, trials: Iterable[int], copies: int
) -> list[Planned]:
    return [
        Planned(session_id(request.run_id, scenario.id, trial, copy), scenario.id, trial, copy)
        for trial in trials
        for copy in range(copies)
    ]


def _is_recorded(scenario: Scenario) -> bool:
    return scenario.user is not None and bool(scenario.user.recording)


def started_event(
    request: RunRequest,
    plan: Plan,
    planned: Planned,
    suite: Suite,
    agent: AgentRegistration,
    at_ms: int,
    planned_at_ms: int | None = None,
) -> TrajectoryEvent:
    """The *session started* event of a planned session, which was to start at `planned_at_ms`.

    A trial that is played again has the same user, world and failures; only the user's words are
    drawn anew.
    """
    scenario = plan.scenarios[planned.scenario_id]
    seed = session_seed(request.seed, scenario.id, planned.trial, planned.copy)
    briefs = split(
        scenario,
        agent,
        seed,
        failure_multiplier=request.failure_multiplier,
        calls_per_minute=request.tool_calls_per_minute,
    )
    user = briefs.user
    if planned.attempt:
        anew = session_seed(request.seed, scenario.id, planned.trial, planned.copy, planned.attempt)
        user = user.model_copy(update={"seed": anew})
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
            user_brief=user.model_dump_json(),
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
            planned_at_ms=at_ms if planned_at_ms is None else planned_at_ms,
            variation=briefs.variation,
            injection_plan=recorded_plan(
                scenario.failures, seed, request.failure_multiplier, limits.tool_calls
            ),
            attempt=planned.attempt,
        ),
    )
