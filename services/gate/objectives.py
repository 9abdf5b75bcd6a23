"""Service-level objectives of load scenarios: exact figures against the scenario's own bounds.

An objective that the figures break fails the run, baseline or not. One that too few turns or
sessions speak for is undecided, which is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from schemas.gate import Reason
from schemas.scores import LoadFigures, ScenarioAggregate
from services.gate import wording
from services.gate.wording import FAIL, INCONCLUSIVE, NOTE

PERCENTILES = {"turn_p50_ms": 10, "turn_p95_ms": 20, "turn_p99_ms": 100}
"""Turns that a percentile needs: with fewer, the higher ones are nothing but the slowest turn."""
MIN_SESSIONS = 10
"""Sessions that a rate of them needs."""
_DO = "Make the agent or its deployment faster, or lower the load that it has to stand."
_MORE = "Raise `load.sessions` or the request's trials, then run again."


def under_load(scenario: ScenarioAggregate) -> Iterator[Reason]:
    """What a load scenario's figures say; nothing for other scenarios."""
    load = scenario.load or LoadFigures()
    for name, bound in sorted(scenario.objectives.items()):
        yield from _objective(scenario, load, name, bound)
    if load.late_sessions:
        yield wording.of_scenario(
            "late_starts", NOTE, scenario,
            f"{scenario.scenario_id}: {load.late_sessions} of {load.sessions} sessions started "
            f"late, by up to {load.late_max_ms} ms, because `load.concurrency` were running. The "
            "wait is in the time of their first turns. Raise it to see more of the agent's limit.",
        )  # fmt: skip


def _objective(
    scenario: ScenarioAggregate, load: LoadFigures, name: str, bound: float
) -> Iterator[Reason]:
    if name in PERCENTILES:
        found, needed = load.timed_turns, PERCENTILES[name]
        yield from _judged(
            scenario, name, f"{getattr(load, name)} ms over {found} turns", f"at most {bound:g} ms",
            broken=getattr(load, name) > bound, found=found, needed=needed, of="turns",
        )  # fmt: skip
    elif name == "error_rate":
        allowed = Fraction(bound).limit_denominator(1_000_000)
        needed = math.ceil(1 / allowed) if allowed else PERCENTILES["turn_p95_ms"]
        rate = load.failed_turns / load.turns if load.turns else 0.0
        yield from _judged(
            scenario, name, f"{rate:.4g} ({load.failed_turns} of {load.turns} turns failed)",
            f"at most {bound:g}", broken=load.failed_turns > allowed * load.turns,
            found=load.turns, needed=needed, of="turns",
        )  # fmt: skip
    elif name == "sessions_per_s":
        rate = 1000 * load.sessions / load.duration_ms if load.duration_ms else 0.0
        yield from _judged(
            scenario, name,
            f"{rate:.4g} ({load.sessions} sessions in {load.duration_ms / 1000:g} s)",
            f"at least {bound:g}",
            broken=1000 * load.sessions < Fraction(bound) * load.duration_ms,
            found=load.sessions if load.duration_ms else 0, needed=MIN_SESSIONS, of="sessions",
        )  # fmt: skip
    elif name == "completion_rate":
        yield from _completion(scenario, bound)
    else:
        yield wording.of_scenario(
            "objective_undecided", INCONCLUSIVE, scenario,
            f"{scenario.scenario_id}: this gate knows no objective {name}. Upgrade the gate, then "
            "run again.",
            name,
        )  # fmt: skip


def _judged(
    scenario: ScenarioAggregate,
    name: str,
    figure: str,
    wanted: str,
    *,
    broken: bool,
    found: int,
    needed: int,
    of: str,
) -> Iterator[Reason]:
    said = f"{scenario.scenario_id}: {name} is {figure}; the objective is {wanted}"
    if found < needed:
        yield wording.of_scenario(
            "objective_undecided", INCONCLUSIVE, scenario,
            f"{said}, and {found} {of} are too few to tell: it takes {needed}. {_MORE}", name,
        )  # fmt: skip
    elif broken:
        yield wording.of_scenario("objective_missed", FAIL, scenario, f"{said}. {_DO}", name)


def _completion(scenario: ScenarioAggregate, bound: float) -> Iterator[Reason]:
    """Sessions of which nobody knows whether they passed decide nothing, either way."""
    wanted = Fraction(bound).limit_denominator(1_000_000) * scenario.planned
    unknown = scenario.unscored + scenario.invalid + scenario.lost
    said = (
        f"{scenario.scenario_id}: {scenario.passed} of {scenario.planned} sessions passed; the "
        f"objective completion_rate is at least {bound:g}"
    )
    if scenario.passed + unknown < wanted:
        yield wording.of_scenario(
            "objective_missed", FAIL, scenario, f"{said}. Fix the agent, or its deployment, and "
            "run again.", "completion_rate",
        )  # fmt: skip
    elif scenario.passed < wanted:
        yield wording.of_scenario(
            "objective_undecided", INCONCLUSIVE, scenario,
            f"{said}, and of {unknown} nobody can tell. See what spoilt them, then run again.",
            "completion_rate",
        )  # fmt: skip
