"""Every metric there is: name, kind, labels, who shows it, meaning, what to do when it looks wrong.

A service asks for a metric by its constant, so a misspelt name is a type error. No label grows
with runs or sessions.
"""

from __future__ import annotations

from itertools import product
from typing import get_args

from schemas.faults import InjectionKind
from schemas.scenario import Category
from schemas.scores import Dimension
from schemas.topics import ALL
from schemas.topics import DEAD_LETTERS as LETTERS
from schemas.trajectory import EndReason
from services.runtime.metering import EXPOSITION as EXPOSITION
from services.runtime.metering import SECONDS as SECONDS
from services.runtime.metering import Metric as Metric
from services.runtime.metering import Metrics as Metrics
from services.runtime.metering import Values

_SESSIONS = ("dispatcher", "tool_proxy", "user_simulator", "judge")
_ALL = (*_SESSIONS, "gate", "control", "pipelines")
_STORE = "embedded_store"
_CATEGORIES = tuple(map(str, Category))
_STAGES = ("aggregate", "load")
_TABLES = (
    "runs", "sessions", "trajectory_events", "scores", "score_aggregates", "verdicts", "baselines",
)  # fmt: skip
_SOURCES = ("odyssey", "injected", "passthrough", "error", "transport_error")
_PLAIN: Values = ((),)
_OPEN: Values = ()


def _by(*services: str, start: Values = _PLAIN) -> dict[str, Values]:
    return dict.fromkeys(services, start)


def _each(*values: tuple[str, ...]) -> Values:
    return tuple(product(*values))


# Any service: the log.

EVENTS_PRODUCED = Metric(
    name="windtunnel_events_produced_total",
    kind="counter",
    meaning="Records acknowledged by the broker.",
    when_wrong="Flat while sessions are active: look at the broker and at windtunnel_ready.",
    labels=("topic",),
    by={
        service: tuple((t.name,) for t in ALL if service in t.written_by or t is LETTERS)
        for service in _ALL
    },
)
EVENTS_CONSUMED = Metric(
    name="windtunnel_events_consumed_total",
    kind="counter",
    meaning="Records read and taken in; what a service skips by its header is not among them.",
    when_wrong="Flat while others produce: the service has lost its partitions or stands still.",
    labels=("topic",),
    by=_by(*_ALL, start=_OPEN),
)
CONSUMER_LAG = Metric(
    name="windtunnel_consumer_lag_records",
    kind="gauge",
    meaning="Records between what this process has taken in and the end of the partitions that it "
    "reads, as of its last fetch.",
    when_wrong="Growing: it is slower than who writes; add replicas, up to one a partition.",
    labels=("topic",),
    by=_by(*_ALL, start=_OPEN),
)
EVENTS_IGNORED = Metric(
    name="windtunnel_events_ignored_total",
    kind="counter",
    meaning="Events that changed nothing: duplicate id, session unknown, or session finished.",
    when_wrong="A burst after a restart is normal replay; a steady rate means two writers.",
    labels=("why",),
    by={
        **_by(*_SESSIONS, start=_each(("duplicate", "unknown", "finished"))),
        "gate": _each(("decided",)),
    },
)
DEAD_LETTERS = Metric(
    name="windtunnel_dead_letters_total",
    kind="counter",
    meaning="Records that could not be read.",
    when_wrong="Read them with `windtunnel dead-letters list`; a deploy with another schema?",
    labels=("topic",),
    # Of the topics that a service reads in a group; its job reads these two besides.
    by={**_by(*_ALL, start=_OPEN), "pipelines": _each(("trajectories", "scores"))},
)
RETRIES = Metric(
    name="windtunnel_retries_total",
    kind="counter",
    meaning="What was tried again: an action while the broker was away (action), a question to an "
    "agent's own model (agent_model), its call of the tool proxy (agent_tool_call), a call of a "
    "model of ours (model_call), a call of an MCP server that had forgotten the session "
    "(mcp_call), a session that its simulated user spoilt (session), a run's job (job), rows that "
    "the store did not take (rows).",
    when_wrong="A steady rate of one kind: what stands behind it fails now and then.",
    labels=("what",),
    by={
        "dispatcher": _each(("action", "agent_model", "agent_tool_call", "session")),
        "tool_proxy": _each(("action", "model_call", "mcp_call")),
        "user_simulator": _each(("action", "model_call")),
        "judge": _each(("action", "model_call")),
        "pipelines": _each(("job", "rows")),
    },
)

# Services that keep sessions.

SESSIONS_HELD = Metric(
    name="windtunnel_sessions_held",
    kind="gauge",
    meaning="Sessions whose state this process holds.",
    when_wrong="Growing without end: sessions do not end; look at windtunnel_sessions_ended_total.",
    by=_by(*_SESSIONS),
)
_BOUNDS: dict[str, Values] = {  # and of models, where one is configured
    **_by(*_SESSIONS, start=_each(("actions",))),
    "dispatcher": _each(("actions", "sandboxes")),
}
ACTIONS_RUNNING = Metric(
    name="windtunnel_actions_running",
    kind="gauge",
    meaning="What this process is doing right now, by the bound it is under: actions for sessions "
    "(of users, those who write), calls of models of ours, and turns in sandboxes.",
    when_wrong="At windtunnel_actions_limit for long: add replicas or raise the bound.",
    labels=("bound",),
    by=_BOUNDS,
)
ACTIONS_WAITING = Metric(
    name="windtunnel_actions_waiting",
    kind="gauge",
    meaning="What is due and waits because as much is being done as the bound allows.",
    when_wrong="Above 0 for long: this process is saturated; add replicas or raise the bound.",
    labels=("bound",),
    by=_BOUNDS,
)
ACTIONS_LIMIT = Metric(
    name="windtunnel_actions_limit",
    kind="gauge",
    meaning="How much this process may do at once, by its settings.",
    when_wrong="Reached by windtunnel_actions_running: see windtunnel_actions_waiting.",
    labels=("bound",),
    by=_BOUNDS,
)
ACTION_SECONDS = Metric(
    name="windtunnel_action_seconds",
    kind="histogram",
    meaning="How long one action for a session or run took, its events' acknowledgement included. "
    "The judge's `score` is the latency of judging a session. A user's pauses for thought are "
    "part of `user`: see windtunnel_user_turn_seconds.",
    when_wrong="Slow `post`: look at the agent; slow `score`: at the judge's model.",
    labels=("action",),
    by={
        "dispatcher": _each(("post", "end", "notify", "accept", "admit", "complete")),
        "tool_proxy": _each(("user",)),
        "user_simulator": _each(("user",)),
        "judge": _each(("score", "notify")),
    },
)
LOW_WATER_LAG = Metric(
    name="windtunnel_low_water_lag_records",
    kind="gauge",
    meaning="Records between the oldest unfinished session and the end of what was read.",
    when_wrong="Large for long: a restart replays that much; look for sessions that do not end.",
    by=_by(*_SESSIONS),
)
LOW_WATER_AGE = Metric(
    name="windtunnel_low_water_age_seconds",
    kind="gauge",
    meaning="How long ago the oldest session began that this process has not finished; 0 when "
    "there is none.",
    when_wrong="Above the longest that a session may take (limits.wall_s): something holds it.",
    by=_by(*_SESSIONS),
)

# The dispatcher.

RUNS_ACTIVE = Metric(
    name="windtunnel_runs_active",
    kind="gauge",
    meaning="Runs this coordinator is conducting.",
    when_wrong="Stuck above 0: see the run's status on windtunnel.run-status.",
    by=_by("dispatcher"),
)
ADMISSION_QUEUE = Metric(
    name="windtunnel_admission_queue_sessions",
    kind="gauge",
    meaning="Sessions of active runs that are not admitted yet, by what they wait for: that "
    "another one ends (room), that their time comes in an open loop (arrival), or that the "
    "scenarios before theirs are through (phase).",
    when_wrong="`room` above 0 in an open loop: sessions start late; the bound on concurrency is "
    "below what the arrival rate needs. Not falling: see windtunnel_sessions_ended_total.",
    labels=("waiting_for",),
    by=_by("dispatcher", start=_each(("room", "arrival", "phase"))),
)
SESSIONS_STARTED = Metric(
    name="windtunnel_sessions_started_total",
    kind="counter",
    meaning="Sessions admitted.",
    when_wrong="Flat during a run: admission waits; see windtunnel_admission_queue_sessions.",
    labels=("category",),
    by=_by("dispatcher", start=_each(_CATEGORIES)),
)
SESSIONS_ENDED = Metric(
    name="windtunnel_sessions_ended_total",
    kind="counter",
    meaning="Sessions ended, by reason.",
    when_wrong="agent_error or agent_timeout rising: the agent is down; simulator_invalid: the "
    "suite.",
    labels=("category", "reason"),
    by=_by("dispatcher", start=_each(_CATEGORIES, EndReason.ALL)),
)
TURN_SECONDS = Metric(
    name="windtunnel_agent_turn_seconds",
    kind="histogram",
    meaning="From posting a turn to the whole answer.",
    when_wrong="Rising with concurrency: the agent saturates.",
    labels=("outcome",),
    by=_by("dispatcher", start=_each(("ok", "timeout", "error", "infrastructure"))),
)

# The user simulator.

USER_TURN_SECONDS = Metric(
    name="windtunnel_user_turn_seconds",
    kind="histogram",
    meaning="From when a user's turn may be written to when it is in the log: the simulator's own "
    "time and its model's, without the user's pauses for thought.",
    when_wrong="Slow with a model: the provider. Slow without: the broker, or the machine.",
    by=_by("user_simulator"),
)

# The tool proxy.

TOOL_CALLS = Metric(
    name="windtunnel_tool_calls_total",
    kind="counter",
    meaning="Tool calls answered, by source.",
    when_wrong="error rising: agents call with bad arguments, or a world fails.",
    labels=("source", "injection"),
    by=_by(
        "tool_proxy",
        start=(
            *((source, "") for source in _SOURCES if source != "injected"),
            *(("injected", kind) for kind in get_args(InjectionKind)),
        ),
    ),
)
TOOL_REFUSALS = Metric(
    name="windtunnel_tool_refusals_total",
    kind="counter",
    meaning="Tool calls refused, by error code.",
    when_wrong="See docs/tool-proxy-errors.md for each code.",
    labels=("code",),
    by=_by("tool_proxy", start=_OPEN),
)
TOOL_SECONDS = Metric(
    name="windtunnel_tool_call_seconds",
    kind="histogram",
    meaning="From a tool call to its answer, injected delay included, as trajectories have it: "
    "without the acknowledgement of the answer's event.",
    when_wrong="High for odyssey: a slow world, or calls of one session that wait for one another.",
    labels=("source",),
    by=_by("tool_proxy", start=_each(_SOURCES)),
)
TOOL_OVERHEAD = Metric(
    name="windtunnel_tool_proxy_overhead_seconds",
    kind="histogram",
    meaning="What the proxy itself adds to a tool call: until its event is acknowledged, without "
    "injected delay and without the time at the real tool or at the model that plays it.",
    when_wrong="High at low load: the broker acknowledges slowly. High under load: add replicas.",
    labels=("source",),
    by=_by("tool_proxy", start=_each(_SOURCES)),
)

# The judge, and whoever asks a model.

SCORES = Metric(
    name="windtunnel_scores_total",
    kind="counter",
    meaning="Dimension scores given.",
    when_wrong="unscored rising: the judge's model is missing or failing.",
    labels=("dimension", "status"),
    by=_by("judge", start=_each(Dimension.GATES, ("scored", "unscored", "not_applicable"))),
)
MODEL_CALLS = Metric(
    name="windtunnel_model_calls_total",
    kind="counter",
    meaning="Calls to the models that play users and tools and that judge.",
    when_wrong="error rising: provider outage, limits or a wrong key.",
    labels=("role", "outcome"),
    by={
        "user_simulator": _each(("user",), ("ok", "retry", "error")),
        "tool_proxy": _each(("world",), ("ok", "retry", "error", "malformed")),
        "judge": _each(
            ("judge",), ("ok", "timeout", "too_long", "error", "refused", "unusable")
        ),
    },
)  # fmt: skip
MODEL_TOKENS = Metric(
    name="windtunnel_model_tokens_total",
    kind="counter",
    meaning="Tokens of these models.",
    when_wrong="Faster than sessions: prompts have grown.",
    labels=("role", "model", "direction"),
    by=_by("tool_proxy", "user_simulator", "judge", start=_OPEN),
)
MODEL_COST = Metric(
    name="windtunnel_model_cost_usd_total",
    kind="counter",
    meaning="US dollars that calls to models cost, where the model's price is known.",
    when_wrong="0 while tokens grow: the price is not known. Too much: fewer samples, or a batch.",
    labels=("role", "model"),
    by=_by("tool_proxy", "user_simulator", "judge", start=_OPEN),
)
JUDGE_MAJORITIES = Metric(
    name="windtunnel_judge_majorities_total",
    kind="counter",
    meaning="Criteria that were sampled repeatedly, by how far the samples agree.",
    when_wrong="disagree rising: the criterion is vague, or the model is too weak for it.",
    labels=("outcome",),
    by=_by("judge", start=_each(("unanimous", "majority", "disagree", "no_verdict"))),
)
JUDGE_ORDER_PAIRS = Metric(
    name="windtunnel_judge_order_pairs_total",
    kind="counter",
    meaning="Pairs of samples that were shown a criterion in opposite order, by whether verdicts "
    "agree.",
    when_wrong="flipped above a tenth: the verdicts hang on the order; take more samples or "
    "another model.",
    labels=("outcome",),
    by=_by("judge", start=_each(("same", "flipped"))),
)

# The pipelines, and the gate.

PIPELINE_PIECES = Metric(
    name="windtunnel_pipeline_pieces_total",
    kind="counter",
    meaning="Pieces of the log that finished jobs have read: a job cuts its run's stretches into "
    "pieces of at most WINDTUNNEL_READ_PIECE offsets, which are read in parallel.",
    when_wrong="Many a job while jobs are slow: larger pieces, or more workers.",
    labels=("stage",),
    by=_by("pipelines", start=_each(_STAGES)),
)
PIPELINE_ROWS = Metric(
    name="windtunnel_pipeline_rows_total",
    kind="counter",
    meaning="Rows written to the store.",
    when_wrong="Flat after runs end: the store is down; verdicts are given all the same.",
    labels=("table",),
    by=_by("pipelines", start=_each(_TABLES)),
)
PIPELINE_SECONDS = Metric(
    name="windtunnel_pipeline_seconds",
    kind="histogram",
    meaning="How long a job of a run took: its aggregation (aggregated), its load into the store "
    "(stored, not_stored), or either in vain (failed).",
    when_wrong="Growing faster than runs do: more workers, or a distributed runner.",
    labels=("outcome",),
    by=_by("pipelines", start=_each(("aggregated", "stored", "not_stored", "failed"))),
)
WATERMARK_DELAY = Metric(
    name="windtunnel_pipeline_watermark_delay_seconds",
    kind="histogram",
    meaning="When a job is through with a run: how long ago the newest record that it read was "
    "written. Event time against processing time.",
    when_wrong="Above windtunnel_pipeline_seconds: jobs wait for one another, or were repeated.",
    labels=("stage",),
    by=_by("pipelines", start=_each(_STAGES)),
)
VERDICTS = Metric(
    name="windtunnel_gate_verdicts_total",
    kind="counter",
    meaning="Verdicts given.",
    when_wrong="INCONCLUSIVE rising: baselines missing, pins changed or sessions unscored.",
    labels=("verdict",),
    by=_by("gate", start=_each(("PASS", "FAIL", "INCONCLUSIVE"))),
)

# Traces: only where a collector is configured does anything happen to these.

SPANS = Metric(
    name="windtunnel_spans_total",
    kind="counter",
    meaning="Spans of sessions: exported, failed at the collector, or dropped before they got "
    "there.",
    when_wrong="failed or dropped rising: the collector is down, refuses, or is too slow; runs go "
    "on without it, their traces have gaps.",
    labels=("outcome",),
    by=_by(*_SESSIONS, start=_each(("exported", "failed", "dropped"))),
)
TRACEPARENTS = Metric(
    name="windtunnel_traceparents_total",
    kind="counter",
    meaning="What became of the traceparent headers of agents' tool calls and trace events: "
    "joined, or ignored as malformed, of a foreign trace, or unsampled.",
    when_wrong="malformed or foreign rising: the agent does not go on with the trace it is given.",
    labels=("outcome",),
    by=_by("tool_proxy", start=_each(("joined", "malformed", "foreign", "unsampled"))),
)

# The control API, the embedded store, and any process.

CONTROL_REQUESTS = Metric(
    name="windtunnel_control_requests_total",
    kind="counter",
    meaning="Requests to the control API, by route and status.",
    when_wrong="See docs/control-api-errors.md; 503 rising: look at the broker.",
    labels=("route", "status"),
    by=_by("control", start=(("none", "404"),)),
)
CONTROL_SECONDS = Metric(
    name="windtunnel_control_request_seconds",
    kind="histogram",
    meaning="Time the control API took for a request.",
    when_wrong="Slow writes: the broker acknowledges slowly; slow tests of connections: the "
    "agents.",
    labels=("route",),
    by=_by("control", start=_OPEN),
)
STORE_SECONDS = Metric(
    name="windtunnel_store_statement_seconds",
    kind="histogram",
    meaning="How long the embedded store took for a statement, waiting for its turn included.",
    when_wrong="Growing: the one-machine stack's store has reached its size; use a ClickHouse.",
    labels=("outcome",),
    by=_by(_STORE, start=_each(("ok", "error"))),
)
STORE_WAITING = Metric(
    name="windtunnel_store_statements_waiting",
    kind="gauge",
    meaning="Statements that are under way or wait for their turn in the embedded store.",
    when_wrong="At its bound (32) the store refuses more, and rows wait where they come from.",
    by=_by(_STORE),
)
READY = Metric(
    name="windtunnel_ready",
    kind="gauge",
    meaning="1 when the service is ready, else 0.",
    when_wrong="0 after start: it cannot reach the broker or is still replaying.",
    by=_by(*_ALL, _STORE),
)

CATALOGUE: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
