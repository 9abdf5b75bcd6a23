"""Every metric there is: name, kind, labels, meaning, and what to do when it looks wrong.

A service asks for a metric by its constant, so a misspelt name is a type error. No label grows
with runs or sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


@dataclass(frozen=True, slots=True)
class Metric:
    """One entry of the catalogue."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    when_wrong: str
    labels: tuple[str, ...] = ()


EVENTS_PRODUCED = Metric(
    "windtunnel_events_produced_total", "counter", "Records acknowledged by the broker.",
    "Flat while sessions are active: look at the broker and at windtunnel_ready.", ("topic",),
)  # fmt: skip
EVENTS_CONSUMED = Metric(
    "windtunnel_events_consumed_total", "counter", "Records read and folded into state.",
    "Flat while others produce: the service has lost its partitions or stands still.", ("topic",),
)  # fmt: skip
EVENTS_IGNORED = Metric(
    "windtunnel_events_ignored_total", "counter",
    "Events that changed nothing: duplicate id, session unknown, or session finished.",
    "A burst after a restart is normal replay; a steady rate means two writers.", ("why",),
)  # fmt: skip
DEAD_LETTERS = Metric(
    "windtunnel_dead_letters_total", "counter", "Records that could not be read.",
    "Read them with `windtunnel dead-letters list`; a deploy with another schema?", ("topic",),
)  # fmt: skip
SESSIONS_HELD = Metric(
    "windtunnel_sessions_held", "gauge", "Sessions whose state this process holds.",
    "Growing without end: sessions do not end; look at windtunnel_sessions_ended_total.",
)  # fmt: skip
ACTIONS_RUNNING = Metric(
    "windtunnel_actions_running", "gauge", "Things this process is doing for sessions right now.",
    "At its bound for long: add replicas or raise the bound.",
)  # fmt: skip
ACTION_SECONDS = Metric(
    "windtunnel_action_seconds", "histogram", "How long one action for a session took.",
    "Slow turns: look at the agent; slow judging: at the judge's model.", ("action",),
)  # fmt: skip
LOW_WATER_LAG = Metric(
    "windtunnel_low_water_lag_records", "gauge",
    "Records between the oldest unfinished session and the end of what was read.",
    "Large for long: a restart replays that much; look for sessions that do not end.",
)  # fmt: skip
SESSIONS_STARTED = Metric(
    "windtunnel_sessions_started_total", "counter", "Sessions admitted.",
    "Flat during a run: admission waits for ends; see windtunnel_sessions_held.", ("category",),
)  # fmt: skip
SESSIONS_ENDED = Metric(
    "windtunnel_sessions_ended_total", "counter", "Sessions ended, by reason.",
    "agent_error or agent_timeout rising: the agent is down; simulator_invalid: the suite.",
    ("category", "reason"),
)  # fmt: skip
TURN_SECONDS = Metric(
    "windtunnel_agent_turn_seconds", "histogram", "From posting a turn to the whole answer.",
    "Rising with concurrency: the agent saturates.", ("outcome",),
)  # fmt: skip
TOOL_CALLS = Metric(
    "windtunnel_tool_calls_total", "counter", "Tool calls answered, by source.",
    "error rising: agents call with bad arguments, or a world fails.", ("source", "injection"),
)  # fmt: skip
TOOL_REFUSALS = Metric(
    "windtunnel_tool_refusals_total", "counter", "Tool calls refused, by error code.",
    "See docs/tool-proxy-errors.md for each code.", ("code",),
)  # fmt: skip
TOOL_SECONDS = Metric(
    "windtunnel_tool_call_seconds", "histogram", "Time the proxy took, injected delay included.",
    "High at low load: the broker acknowledges slowly.", ("source",),
)  # fmt: skip
SCORES = Metric(
    "windtunnel_scores_total", "counter", "Dimension scores given.",
    "unscored rising: the judge's model is missing or failing.", ("dimension", "status"),
)  # fmt: skip
MODEL_CALLS = Metric(
    "windtunnel_model_calls_total", "counter", "Calls to user-simulator and judge models.",
    "error rising: provider outage, limits or a wrong key.", ("role", "outcome"),
)  # fmt: skip
MODEL_TOKENS = Metric(
    "windtunnel_model_tokens_total", "counter", "Tokens of user-simulator and judge models.",
    "Faster than sessions: prompts have grown.", ("role", "model", "direction"),
)  # fmt: skip
MODEL_COST = Metric(
    "windtunnel_model_cost_usd_total", "counter",
    "US dollars that calls to models cost, where the model's price is known.",
    "0 while tokens grow: the price is not known. Too much: fewer samples, or a batch.",
    ("role", "model"),
)  # fmt: skip
JUDGE_MAJORITIES = Metric(
    "windtunnel_judge_majorities_total", "counter",
    "Criteria that were sampled repeatedly, by how far the samples agree.",
    "disagree rising: the criterion is vague, or the model is too weak for it.", ("outcome",),
)  # fmt: skip
JUDGE_ORDER_PAIRS = Metric(
    "windtunnel_judge_order_pairs_total", "counter",
    "Pairs of samples that were shown a criterion in opposite order, by whether verdicts agree.",
    "flipped above a tenth: the verdicts hang on the order; take more samples or another model.",
    ("outcome",),
)  # fmt: skip
RUNS_ACTIVE = Metric(
    "windtunnel_runs_active", "gauge", "Runs this coordinator is conducting.",
    "Stuck above 0: see the run's status on windtunnel.run-status.",
)  # fmt: skip
PIPELINE_ROWS = Metric(
    "windtunnel_pipeline_rows_total", "counter", "Rows written to the store.",
    "Flat after runs end: the store is down; verdicts are given all the same.", ("table",),
)  # fmt: skip
PIPELINE_SECONDS = Metric(
    "windtunnel_pipeline_seconds", "histogram", "How long the aggregation of a run took.",
    "Growing faster than runs do: more workers, or a distributed runner.", ("outcome",),
)  # fmt: skip
VERDICTS = Metric(
    "windtunnel_gate_verdicts_total", "counter", "Verdicts given.",
    "INCONCLUSIVE rising: baselines missing, pins changed or sessions unscored.", ("verdict",),
)  # fmt: skip
CONTROL_REQUESTS = Metric(
    "windtunnel_control_requests_total", "counter",
    "Requests to the control API, by route and status.",
    "See docs/control-api-errors.md; 503 rising: look at the broker.", ("route", "status"),
)  # fmt: skip
CONTROL_SECONDS = Metric(
    "windtunnel_control_request_seconds", "histogram", "Time the control API took for a request.",
    "Slow writes: the broker acknowledges slowly; slow tests of connections: the agents.",
    ("route",),
)  # fmt: skip
READY = Metric(
    "windtunnel_ready", "gauge", "1 when the service is ready, else 0.",
    "0 after start: it cannot reach the broker or is still replaying.",
)  # fmt: skip

CATALOGUE: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)


class Metrics:
    """The metrics of one process. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._collectors: dict[str, Counter | Gauge | Histogram] = {}

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Count. The metric must be a counter."""
        collector = self._collector(metric)
        assert isinstance(collector, Counter), metric.name
        (collector.labels(**labels) if labels else collector).inc(amount)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        collector = self._collector(metric)
        assert isinstance(collector, Gauge), metric.name
        (collector.labels(**labels) if labels else collector).set(value)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add an observation, in the metric's unit, to a histogram."""
        collector = self._collector(metric)
        assert isinstance(collector, Histogram), metric.name
        (collector.labels(**labels) if labels else collector).observe(value)

    def measure(self, metric: Metric, function: Callable[[], float]) -> None:
        """Have a gauge computed whenever it is scraped."""
        collector = self._collector(metric)
        assert isinstance(collector, Gauge), metric.name
        collector.set_function(function)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    def _collector(self, metric: Metric) -> Counter | Gauge | Histogram:
        found = self._collectors.get(metric.name)
        if found is None:
            if metric.kind == "counter":
                found = Counter(metric.name, metric.meaning, metric.labels, registry=self.registry)
            elif metric.kind == "gauge":
                found = Gauge(metric.name, metric.meaning, metric.labels, registry=self.registry)
            else:
                found = Histogram(
                    metric.name, metric.meaning, metric.labels,
                    registry=self.registry, buckets=SECONDS,
                )  # fmt: skip
            self._collectors[metric.name] = found
        return found
