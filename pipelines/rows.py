"""Records as rows of the store's tables (deploy/clickhouse). Pure; one function a table.

Rows are deterministic and keyed by deterministic ids, so writing them again changes nothing. Where
two records share an id, the greater `version` stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from schemas.gate import BaselineAccepted, GateStatus
from schemas.runs import RunState, RunStatus
from schemas.scores import RunAggregates, SessionScored
from schemas.trajectory import AGENT, EndReason, TrajectoryEvent

Row = dict[str, object]

_STATES = (
    RunState.ACCEPTED, RunState.RUNNING, RunState.SESSIONS_DONE, RunState.AGGREGATED,
    RunState.REJECTED, RunState.FAILED,
)  # fmt: skip
_OVER = (RunState.SESSIONS_DONE, RunState.AGGREGATED, RunState.REJECTED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class Logged:
    """An event or score with its place in the log."""

    partition: int
    offset: int
    record: TrajectoryEvent | SessionScored


def events_in_order(logged: Sequence[Logged]) -> list[tuple[Logged, TrajectoryEvent]]:
    """One session's events by offset; of several with one id the lowest offset counts."""
    first: dict[str, tuple[Logged, TrajectoryEvent]] = {}
    for entry in sorted(logged, key=lambda e: (e.partition, e.offset)):
        if isinstance(entry.record, TrajectoryEvent):
            first.setdefault(entry.record.event_id, (entry, entry.record))
    return list(first.values())


def first_score(logged: Sequence[Logged]) -> SessionScored | None:
    """One session's score; of several the one with the lowest offset counts."""
    for entry in sorted(logged, key=lambda e: (e.partition, e.offset)):
        if isinstance(entry.record, SessionScored):
            return entry.record
    return None


def event_rows(events: Sequence[tuple[Logged, TrajectoryEvent]], scenario_id: str) -> Iterator[Row]:
    """Table trajectory_events: every event whole in `payload_json`, what is asked for often beside
    it."""
    for entry, event in events:
        call, turn, trace = event.tool_called, event.agent_turn, event.trace
        latency: float | None = None
        for timed in (call, turn, event.user_turn):
            if timed is not None:
                latency = float(timed.latency_ms)
        body = getattr(event, event.kind, None)
        yield {
            "run_id": event.run_id,
            "session_id": event.session_id,
            "scenario_id": scenario_id,
            "position": entry.offset,
            "partition": entry.partition,
            "event_id": event.event_id,
            "kind": event.kind,
            "conversation": event.conversation,
            "turn": event.turn,
            "actor": (call.actor if call else trace.actor if trace else None) or "",
            "tool": call.tool if call else "",
            "source": call.source if call else "",
            "injection": call.injection.kind if call and call.injection else "",
            "latency_ms": latency,
            "text": _text(event),
            "payload_json": _json(body),
            "at_ms": event.at_ms,
            # The lowest offset wins in the store as well, whoever wrote it there.
            "version": (1 << 63) - 1 - entry.offset,
        }


def session_row(
    events: Sequence[TrajectoryEvent], score: SessionScored | None, version: int
) -> Row | None:
    """Table sessions; None when neither the session's start nor its score is known."""
    start = next((e for e in events if e.session_started), None)
    end = next((e for e in events if e.session_ended), None)
    started = start.session_started if start else None
    ended = end.session_ended if end else None
    if started is None and score is None:
        return None
    scenario_id, category, trial = (
        (started.scenario_id, started.category, started.trial)
        if started
        else (score.scenario_id, score.category, score.trial)
        if score
        else ("", "", 0)
    )
    first = events[0] if events else None
    turns = [e.agent_turn for e in events if e.agent_turn]
    calls = [e.tool_called for e in events if e.tool_called and e.tool_called.requestor == AGENT]
    usage = [turn.usage for turn in turns if turn.usage]
    latencies = [float(turn.latency_ms) for turn in turns]
    end_reason = ended.reason if ended else score.end_reason if score else ""
    valid = score.valid if score else bool(ended) and end_reason not in EndReason.INVALID
    return {
        "run_id": first.run_id if first else score.run_id if score else "",
        "session_id": first.session_id if first else score.session_id if score else "",
        "scenario_id": scenario_id,
        "category": category,
        "trial": trial,
        "conversation_count": started.conversations if started else 1,
        "persona": _persona(started.user_brief) if started else "",
        "started_at_ms": start.at_ms if start else first.at_ms if first else version,
        "ended_at_ms": end.at_ms if end else None,
        "end_reason": end_reason,
        "end_detail": ended.detail if ended else "",
        "turns": ended.turns if ended else len(turns),
        "tool_calls": ended.tool_calls if ended else len(calls),
        "injected_failures": sum(call.injection is not None for call in calls),
        "agent_latency_ms_total": sum(latencies, 0.0),
        "agent_latency_ms_max": max(latencies, default=0.0),
        "input_tokens": sum(u.input_tokens for u in usage),
        "output_tokens": sum(u.output_tokens for u in usage),
        "cost_usd": sum((u.cost_usd for u in usage), 0.0),
        "valid": int(valid),
        "passed": None if score is None or score.passed is None else int(score.passed),
        "version": version,
    }


def score_rows(score: SessionScored, version: int) -> Iterator[Row]:
    """Table scores: one row a dimension."""
    for dimension in score.dimensions:
        yield {
            "run_id": score.run_id,
            "session_id": score.session_id,
            "scenario_id": score.scenario_id,
            "category": score.category,
            "trial": score.trial,
            "dimension": dimension.dimension,
            "kind": dimension.kind,
            "value": dimension.value,
            "passed": None if dimension.passed is None else int(dimension.passed),
            "status": dimension.status,
            "reason": dimension.reason,
            "citations": list(dimension.citations),
            "evaluator": dimension.evaluator,
            "version": version,
        }


def aggregate_rows(run: RunAggregates) -> Iterator[Row]:
    """Table score_aggregates: a row per scenario and dimension, and one per scenario as a whole,
    whose dimension is all_gates."""
    for scenario in run.scenarios:
        common: Row = {
            "run_id": run.run_id,
            "suite": run.suite,
            "agent_name": run.agent_name,
            "scenario_id": scenario.scenario_id,
            "category": scenario.category,
            "sessions": scenario.planned,
            "invalid": scenario.invalid,
            "computed_at_ms": run.at_ms,
            "version": run.at_ms,
        }
        valid = scenario.passed + scenario.failed + scenario.unscored
        yield (
            common
            | {
                "dimension": "all_gates",
                "kind": "gate",
                "scored": scenario.passed + scenario.failed,
                # Lost sessions too: they never pass and never leave the denominator.
                "unscored": scenario.unscored + scenario.lost,
                "passed": scenario.passed,
                "failed": scenario.failed,
                "pass_rate": scenario.passed / (valid + scenario.lost)
                if valid + scenario.lost
                else None,
                "pass_hat_k_k": list(range(1, len(scenario.pass_hat_k) + 1)),
                "pass_hat_k_value": list(scenario.pass_hat_k),
            }
            | dict.fromkeys(("mean", "variance", "min", "max", "p50", "p90", "p99"))
        )
        for d in scenario.dimensions:
            asked = d.passed + d.failed + d.unscored
            figures: Row = {
                "mean": d.mean,
                "variance": d.variance,
                "min": d.minimum,
                "max": d.maximum,
                "p50": d.p50,
                "p90": d.p90,
                "p99": d.p99,
            }
            yield (
                common
                | {
                    "dimension": d.dimension,
                    "kind": d.kind,
                    "scored": d.scored,
                    "unscored": d.unscored,
                    "passed": d.passed,
                    "failed": d.failed,
                    "pass_rate": d.passed / asked if d.kind == "gate" and asked else None,
                    "pass_hat_k_k": [],
                    "pass_hat_k_value": [],
                }
                | (figures if d.scored else dict.fromkeys(figures))
            )


def run_row(status: RunStatus) -> Row:
    """Table runs, from the run's last status."""
    request = status.request
    state = _STATES.index(status.state) if status.state in _STATES else 0
    return {
        "run_id": status.run_id,
        "suite": status.suite or (request.suite if request else ""),
        "suite_hash": status.suite_hash,
        "suite_version": status.suite_version,
        "agent_id": request.agent_id if request else "",
        "agent_name": status.agent_name,
        "agent_fingerprint": status.agent_fingerprint,
        "seed": request.seed if request else 0,
        "trials": max(request.trials, 0) if request else 0,
        "requested_by": request.requested_by if request else "",
        "requested_at_ms": status.requested_at_ms,
        "completed_at_ms": status.at_ms if status.state in _OVER else None,
        "planned": status.planned,
        "ended": status.ended,
        "scored": status.scored,
        "state": status.state,
        "pins_json": _json(dict(status.pins)),
        # Two statuses can be of one millisecond; the later state is the newer one.
        "version": max(status.at_ms, 0) * 8 + state,
    }


def verdict_row(status: GateStatus) -> Row:
    """Table verdicts."""
    return {
        "run_id": status.run_id,
        "suite": status.suite,
        "suite_version": status.suite_version,
        "agent_id": status.agent_id,
        "agent_name": status.agent_name,
        "agent_fingerprint": status.agent_fingerprint,
        "baseline_run_id": status.baseline_run_id or "",
        "verdict": status.verdict,
        "reasons": [f"{r.effect}: {r.code}: {r.message}" for r in status.reasons],
        "diff_json": _json(status.diff),
        "decided_at_ms": status.at_ms,
        "version": max(status.at_ms, 0),
    }


def baseline_row(accepted: BaselineAccepted) -> Row:
    """Table baselines: the history, one row an acceptance."""
    return {
        "name": accepted.name,
        "run_id": accepted.run_id,
        "author": accepted.author,
        "reason": accepted.reason,
        "accepted_at_ms": accepted.accepted_at_ms,
        "diff_json": _json(accepted.diff),
        "version": max(accepted.accepted_at_ms, 0),
    }


def _text(event: TrajectoryEvent) -> str:
    """What a person reads first of an event."""
    if event.user_turn:
        return event.user_turn.text
    if event.agent_turn:
        return event.agent_turn.final_response or event.agent_turn.error_detail or ""
    if event.tool_called:
        return event.tool_called.response
    if event.trace:
        return event.trace.payload
    if event.session_ended:
        return event.session_ended.detail or event.session_ended.reason
    return ""


def _persona(user_brief: str) -> str:
    try:
        brief = json.loads(user_brief)
    except ValueError:
        return ""
    persona = brief.get("persona") if isinstance(brief, Mapping) else None
    return str(persona.get("name", "")) if isinstance(persona, Mapping) else ""


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
