"""Scores of sessions, and what the pipeline makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from schemas.record import record
from schemas.runs import OffsetRange


class Dimension:
    """The dimensions every session is scored on; scenarios may add criteria of their own."""

    TASK_COMPLETION = "task_completion"
    SAFETY = "safety"
    POLICY = "policy_adherence"
    RECOVERY = "failure_recovery"
    TOOL_USE = "tool_use"
    BUDGETS = "budgets"
    CRITERIA = "criteria"
    # Only of scenarios that say something of `actors`.
    ACTORS = "actors"
    # Only of scenarios that name a task of tau2's.
    TAU2 = "tau2_reward"
    # Quality: rated by a model; compared, never pass or fail by themselves.
    TONE = "tone"
    EMPATHY = "empathy"
    OVERALL_QUALITY = "overall_quality"
    # Quality by rules: 1 where nothing shows that the agent takes the session for a test.
    EVAL_UNAWARE = "eval_unaware"
    # Measures: compared like quality, never pass or fail by themselves.
    TURNS = "turns"
    TOOL_CALLS = "tool_calls"
    AGENT_LATENCY = "agent_latency_ms"
    TOKENS = "tokens"
    COST = "cost_usd"
    # Of users with a recording: the share of their turns that was said again; never compared.
    REPLAYED = "replayed"

    GATES = (TASK_COMPLETION, SAFETY, POLICY, RECOVERY, TOOL_USE, BUDGETS, CRITERIA)
    QUALITY = (TONE, EMPATHY, OVERALL_QUALITY)
    MEASURES = (TURNS, TOOL_CALLS, AGENT_LATENCY, TOKENS, COST)


@record
class DimensionScore:
    """One dimension of one session."""

    dimension: Annotated[str, "What was looked at."]
    kind: Annotated[str, "gate decides, quality and measure are compared only."] = "gate"
    status: Annotated[str, "scored, unscored or not_applicable."] = "scored"
    value: Annotated[float | None, "0..1 for gate and quality, its unit for a measure."] = None
    passed: Annotated[bool | None, "Gates: whether it passed; null when not scored."] = None
    reason: Annotated[str, "Why, in a sentence or two."] = ""
    citations: Annotated[tuple[str, ...], "Steps of the trajectory the reason rests on."] = ()
    evaluator: Annotated[str, "Which evaluator in which version, or which model."] = ""


@record
class SessionTiming:
    """When a session of a load scenario ran, and how long the agent took in it."""

    planned_at_ms: Annotated[int, "When it was to start."]
    started_at_ms: Annotated[int, "When it did; what lies between is its lateness."]
    ended_at_ms: Annotated[int, "When it ended."]
    turn_ms: Annotated[
        tuple[int, ...],
        "The agent's turns that were answered or timed out; the first one from "
        "the planned start, so that waiting to be let in counts.",
    ] = ()
    failed_turns: Annotated[int, "Turns with an error or a timeout; errors are not in turn_ms."] = 0
    turns: Annotated[int, "All turns put to the agent."] = 0


@record
class SessionScored:
    """Every dimension of one session, judged over its whole trajectory."""

    run_id: Annotated[str, "The run."]
    session_id: Annotated[str, "The session, which is also the record's key."]
    scenario_id: Annotated[str, "Its scenario."]
    scenario_version: Annotated[str, "The scenario's version."] = "1"
    category: Annotated[str, "Its scenario's category."]
    trial: Annotated[int, "Its trial."]
    end_reason: Annotated[str, "Why the session ended."]
    valid: Annotated[bool, "False when simulator, injection or infrastructure spoilt it."] = True
    invalid_reason: Annotated[str, "What spoilt it."] = ""
    passed: Annotated[bool | None, "All gates passed; null when a gate is unscored."] = None
    dimensions: Annotated[tuple[DimensionScore, ...], "The scores."] = ()
    judge: Annotated[str, "The judge's version and model pins."] = ""
    at_ms: Annotated[int, "When it was judged."] = 0
    attempt: Annotated[
        int, "0; above that a trial played again, spoilt by its simulator before."
    ] = 0
    timing: Annotated[SessionTiming | None, "Of sessions of load scenarios."] = None


@record
class Example:
    """A session that shows what a figure is about."""

    session_id: Annotated[str, "The session."]
    trial: Annotated[int, "Its trial."]
    reason: Annotated[str, "The score's reason."]
    citations: Annotated[tuple[str, ...], "Steps of its trajectory."] = ()


@record
class DimensionAggregate:
    """Statistics of one dimension over a scenario's sessions."""

    dimension: Annotated[str, "The dimension."]
    kind: Annotated[str, "gate, quality or measure."]
    scored: Annotated[int, "Sessions with a score."] = 0
    unscored: Annotated[int, "Sessions that could not be scored; they never pass."] = 0
    not_applicable: Annotated[int, "Sessions in which the question did not arise."] = 0
    passed: Annotated[int, "Scored sessions that passed."] = 0
    failed: Annotated[int, "Scored sessions that failed."] = 0
    mean: Annotated[float, "Mean of the values."] = 0.0
    variance: Annotated[float, "Sample variance of the values, 0 below two."] = 0.0
    minimum: Annotated[float, "Smallest value."] = 0.0
    maximum: Annotated[float, "Largest value."] = 0.0
    p50: Annotated[float, "Median, nearest rank."] = 0.0
    p90: Annotated[float, "90th percentile, nearest rank."] = 0.0
    p99: Annotated[float, "99th percentile, nearest rank."] = 0.0
    examples: Annotated[
        tuple[Example, ...], "Failed sessions, at most three, lowest trial first."
    ] = ()


@record
class LoadFigures:
    """What a load scenario's sessions took together. Invalid and repeated sessions are left out."""

    sessions: Annotated[int, "Valid sessions with times."] = 0
    turns: Annotated[int, "Turns put to the agent."] = 0
    failed_turns: Annotated[int, "Of them those with an error or a timeout."] = 0
    timed_turns: Annotated[int, "Turns whose time is in the percentiles."] = 0
    turn_p50_ms: Annotated[int, "Median of a turn, nearest rank, from when it was due."] = 0
    turn_p95_ms: Annotated[int, "95th percentile, likewise."] = 0
    turn_p99_ms: Annotated[int, "99th percentile, likewise."] = 0
    turn_max_ms: Annotated[int, "The longest turn."] = 0
    late_sessions: Annotated[int, "Sessions that started later than planned by over 100 ms."] = 0
    late_max_ms: Annotated[int, "The most by which one did."] = 0
    duration_ms: Annotated[int, "From first planned start to last end, over all repetitions."] = 0


@record
class ScenarioAggregate:
    """All sessions of one scenario in one run; every planned one is in exactly one count."""

    scenario_id: Annotated[str, "The scenario."]
    scenario_version: Annotated[str, "The scenario's version."] = "1"
    category: Annotated[str, "Its category."]
    planned: Annotated[int, "Sessions planned."] = 0
    passed: Annotated[int, "Valid sessions that passed all gates."] = 0
    failed: Annotated[int, "Valid sessions that failed a gate."] = 0
    unscored: Annotated[int, "Valid sessions with a gate nobody could score."] = 0
    invalid: Annotated[int, "Sessions that simulator, injection or infrastructure spoilt."] = 0
    lost: Annotated[int, "Sessions planned that never ended."] = 0
    pass_hat_k: Annotated[tuple[float, ...], "pass^k for k = 1, 2, ...: all of k trials pass."] = ()
    end_reasons: Annotated[Mapping[str, int], "Sessions by end reason."] = field(
        default_factory=dict
    )
    invalid_reasons: Annotated[tuple[str, ...], "Why sessions were invalid, at most three."] = ()
    dimensions: Annotated[tuple[DimensionAggregate, ...], "Per dimension, by name."] = ()
    retried: Annotated[
        int, "Sessions played again, spoilt by their simulator; not in `invalid`."
    ] = 0
    load: Annotated[LoadFigures | None, "Load scenarios: times and errors."] = None
    objectives: Annotated[Mapping[str, float], "Bounds that must hold under load, by name."] = (
        field(default_factory=dict)
    )


@record
class RunAggregates:
    """Everything the gate needs to know about a run."""

    run_id: Annotated[str, "The run."]
    suite: Annotated[str, "The suite's name."]
    suite_hash: Annotated[str, "The suite's content hash."]
    suite_version: Annotated[str, "The suite's version."]
    agent_id: Annotated[str, "The registered agent."]
    agent_name: Annotated[str, "The agent's name, shared by its builds."]
    agent_fingerprint: Annotated[str, "Hash of what was registered for this build."]
    baseline: Annotated[str, "What the request wants to be compared with: accepted or none."] = (
        "accepted"
    )
    seed: Annotated[int, "The run's seed."] = 0
    trials: Annotated[int, "Trials of each scenario."] = 1
    partial: Annotated[bool, "The request asked for some of the suite's scenarios only."] = False
    pins: Annotated[Mapping[str, str], "Pinned simulator and judge versions and models."] = field(
        default_factory=dict
    )
    planned: Annotated[int, "Sessions planned."] = 0
    ended: Annotated[int, "Sessions ended."] = 0
    scored: Annotated[int, "Sessions judged."] = 0
    scenarios: Annotated[tuple[ScenarioAggregate, ...], "Per scenario, by id."] = ()
    incomplete_categories: Annotated[
        tuple[str, ...], "Categories with fewer than five scenarios in the suite."
    ] = ()
    ranges: Annotated[tuple[OffsetRange, ...], "The stretches of the log this was made from."] = ()
    at_ms: Annotated[int, "When it was made."] = 0
