"""Runs made up for the report's page, of any size and of any malice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from services.cli.report.page import document

START_MS = 1_700_000_000_000
HOSTILE = (
    "</script><script>window.broken = 1; alert('in')</script>"
    "<img src=x onerror=\"window.broken = 2\"><svg onload='window.broken = 3'>"
    "{{7*7}} ${7*7} <!-- ]]> --> &lt;b&gt; javascript:alert(1)"
)
CONTROLS = "red\x1b[31m\x07 back\u202eevil\u2066 \x00end \ud83d \u200d"
RIGHT_TO_LEFT = "שלום עולם, مرحبا بالعالم"


def session(number: int, *, passed: bool = True, baseline: bool = False, **more: Any) -> Any:
    """What the index says of a session."""
    return {
        "session_id": f"{'b' if baseline else 'a'}{number:031x}",
        "scenario_id": f"scenario-{number % 20}",
        "category": "happy",
        "trial": number // 20,
        "conversation_count": 1,
        "persona": "plain",
        "started_at_ms": START_MS,
        "ended_at_ms": START_MS + 5_000,
        "end_reason": "goal_met",
        "end_detail": "",
        "turns": 2,
        "tool_calls": 1,
        "injected_failures": 0,
        "agent_latency_ms_total": 120.0,
        "agent_latency_ms_max": 80.0,
        "input_tokens": 10,
        "output_tokens": 5,
        "cost_usd": 0.0,
        "valid": 1,
        "passed": int(passed),
        "baseline": baseline,
        **more,
    }


def index(sessions: list[Any], run_id: str = "made-up") -> Any:
    """The page's index over these sessions."""
    scenarios: dict[str, Any] = {}
    for one in sessions:
        entry = scenarios.setdefault(
            one["scenario_id"],
            {"scenario_id": one["scenario_id"], "category": "happy", "run": None, "before": None},
        )
        side = "before" if one["baseline"] else "run"
        counts = entry[side] or {"sessions": 0, "passed": 0, "invalid": 0, "unscored": 0}
        counts["sessions"] += 1
        counts["passed"] += one["passed"]
        entry[side] = {**counts, "injected": 0}
    run = {
        "run_id": run_id, "suite": "suite", "suite_hash": "h", "suite_version": "1",
        "agent_id": "agent", "agent_name": "agent", "agent_fingerprint": "f", "seed": 1,
        "trials": 1, "requested_by": "", "requested_at_ms": START_MS, "completed_at_ms": START_MS,
        "planned": len(sessions), "ended": len(sessions), "scored": len(sessions),
        "state": "aggregated", "pins": {"judge": "rules/1"},
    }  # fmt: skip
    has_baseline = any(one["baseline"] for one in sessions)
    return {
        "run": run,
        "verdict": None,
        "baseline": {**run, "run_id": "before"} if has_baseline else None,
        "scenarios": list(scenarios.values()),
        "sessions": sessions,
        "left_out": 0,
    }


def event(step: str, kind: str, turn: int, **body: Any) -> Any:
    return {
        "step": step,
        "kind": kind,
        "conversation": 1,
        "turn": turn,
        "at_ms": START_MS + 10 * turn,
        "body": body,
    }


def call(number: int, turn: int = 1, **more: Any) -> Any:
    """A tool call."""
    body = {
        "call": number, "tool": "find_order", "arguments": '{"id": 4}', "response": '{"ok": true}',
        "response_is_text": False, "source": "odyssey", "status": 200, "error_code": None,
        "injection": None, "latency_ms": 3, "actor": None, "state_patch": None,
        "requestor": "agent", **more,
    }  # fmt: skip
    return event(f"t{number}", "tool_called", turn, **body)


def exchange(count: int, user: str = "Where is it?", agent: str = "On its way.") -> list[Any]:
    """So many turns, each with a tool call."""
    events = []
    for turn in range(1, count + 1):
        events.append(event(f"u{turn}", "user_turn", turn, text=user, ending=None, latency_ms=1))
        events.append(call(turn, turn))
        events.append(
            event(
                f"a{turn}", "agent_turn", turn, outcome="ok", final_response=agent, latency_ms=40,
                usage={"input_tokens": 3, "output_tokens": 4}, soft_warnings=[],
            )
        )  # fmt: skip
    return events


def score(dimension: str, passed: bool, *citations: str, reason: str = "because") -> Any:
    return {
        "dimension": dimension, "kind": "gate", "value": float(passed), "passed": int(passed),
        "status": "scored", "reason": reason, "citations": list(citations), "evaluator": "rules/1",
    }  # fmt: skip


def write(path: Path, of_index: Any, details: Mapping[str, Any] | Iterator[tuple[str, Any]]) -> str:
    """The page as a file; its URL."""
    pairs = details.items() if isinstance(details, Mapping) else details
    with path.open("w", encoding="utf-8") as file:
        file.writelines(document("made-up", of_index, pairs))
    return path.as_uri()
