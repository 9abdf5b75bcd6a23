"""Records about runs: what was asked for, how far it is, and which sessions are through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from schemas.record import record


class RunState:
    """The states of a run, in order; `rejected` and `failed` are final as well."""

    ACCEPTED = "accepted"
    RUNNING = "running"
    SESSIONS_DONE = "sessions_done"
    AGGREGATED = "aggregated"
    REJECTED = "rejected"
    FAILED = "failed"


@record
class RunRequest:
    """Please run this suite against this agent. Publishing one is all it takes."""

    run_id: Annotated[str, "Chosen by the requester, unique; also the record's key."]
    suite: Annotated[str, "Name of a published suite, or its content hash for an exact one."]
    agent_id: Annotated[str, "A registered agent."]
    trials: Annotated[int, "How often each scenario is run, each time from another seed."] = 1
    seed: Annotated[int, "Same seed, same run."] = 0
    concurrency: Annotated[int, "Sessions at once, except where a load scenario asks for more."] = 8
    baseline: Annotated[
        str, "'accepted' compares with the accepted baseline, 'none' with none."
    ] = "accepted"
    scenarios: Annotated[tuple[str, ...], "Only these scenario ids; empty for all."] = ()
    requested_by: Annotated[str, "Who or what asks, for the record."] = ""
    labels: Annotated[Mapping[str, str], "Free labels, such as the commit under test."] = field(
        default_factory=dict
    )
    failure_multiplier: Annotated[float, "Factor on the probabilities of injected failures."] = 1.0
    tool_calls_per_minute: Annotated[int, "Rate limit of a session's run token."] = 60
    deadline_s: Annotated[int, "Seconds after which sessions not ended count as lost."] = 3600
    retry_budget: Annotated[
        float, "Share of the planned sessions that may be played again, spoilt by their simulator."
    ] = 0.1


@record
class OffsetRange:
    """A stretch of one partition that holds all of a run's records."""

    topic: Annotated[str, "The topic."]
    partition: Annotated[int, "The partition."]
    start: Annotated[int, "First offset."]
    end: Annotated[int, "Offset after the last."]


@record
class ScenarioObjectives:
    """What must hold under a scenario's load."""

    scenario_id: Annotated[str, "The scenario."]
    bounds: Annotated[Mapping[str, float], "By the names that scenarios give them."]


@record
class RunStatus:
    """How far a run is. The last one for a run id is the current one."""

    run_id: Annotated[str, "The run."]
    state: Annotated[str, "accepted, running, sessions_done, aggregated, rejected or failed."]
    errors: Annotated[tuple[str, ...], "What is wrong, when rejected or failed."] = ()
    request: Annotated[RunRequest | None, "The request as it was understood."] = None
    suite: Annotated[str, "The suite's name."] = ""
    suite_hash: Annotated[str, "The suite's content hash."] = ""
    suite_version: Annotated[str, "The suite's version."] = ""
    agent_name: Annotated[str, "The agent's name, shared by its builds."] = ""
    agent_fingerprint: Annotated[str, "Hash of what was registered for this build."] = ""
    pins: Annotated[Mapping[str, str], "Pinned simulator and judge versions and models."] = field(
        default_factory=dict
    )
    planned: Annotated[int, "Sessions that the run consists of."] = 0
    started: Annotated[int, "Sessions admitted so far."] = 0
    ended: Annotated[int, "Sessions ended so far."] = 0
    scored: Annotated[int, "Sessions judged so far."] = 0
    lost: Annotated[int, "Sessions given up at the run's deadline; never passes."] = 0
    reasons: Annotated[Mapping[str, int], "Ended sessions by reason."] = field(default_factory=dict)
    categories: Annotated[Mapping[str, int], "Ended sessions by category."] = field(
        default_factory=dict
    )
    scenario_plan: Annotated[Mapping[str, int], "Planned sessions by scenario id."] = field(
        default_factory=dict
    )
    scenario_categories: Annotated[
        Mapping[str, str], "Category by scenario id, of the whole suite."
    ] = field(default_factory=dict)
    retried: Annotated[int, "Sessions played again; the ones before are not in `ended`."] = 0
    objectives: Annotated[tuple[ScenarioObjectives, ...], "Of load scenarios, by id."] = ()
    arrivals_began_ms: Annotated[
        Mapping[str, int], "When the clock of each open-loop phase started, by the phase's name."
    ] = field(default_factory=dict)
    ranges: Annotated[tuple[OffsetRange, ...], "Where the run's records are, once it is done."] = ()
    stored: Annotated[bool, "Whether the run's rows are in the store."] = False
    reporter: Annotated[str, "Which service says this."] = ""
    requested_at_ms: Annotated[int, "When the run was accepted."] = 0
    at_ms: Annotated[int, "When this was said."] = 0


@record
class SessionNotice:
    """Tells a run's coordinator that one of its sessions ended, or was judged."""

    run_id: Annotated[str, "The run, which is also the record's key."]
    session_id: Annotated[str, "The session."]
    scenario_id: Annotated[str, "Its scenario."]
    category: Annotated[str, "Its scenario's category."]
    trial: Annotated[int, "Its trial."]
    what: Annotated[str, "ended or scored."]
    reason: Annotated[str, "The end's reason."] = ""
    valid: Annotated[bool, "False when simulator or infrastructure spoilt the session."] = True
    passed: Annotated[bool | None, "Scored: whether it passed; null when it cannot be said."] = None
    at_ms: Annotated[int, "When."] = 0
