"""A trajectory as text for a model to judge: one JSON object a line, each with its step's name.

JSON keeps what agents, users and tools say inside its string: no text in a trajectory can start a
line of its own and pass for another step. The whole stands between two boundary lines whose name is
a hash over all of it, which nobody who wrote a part of it could know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from schemas.trajectory import AgentTurn, ToolCalled, TrajectoryEvent
from services.judge.trajectory import Trajectory

FIELD_CHARS = 20_000
TOTAL_CHARS = 400_000


class TranscriptTooLong(Exception):
    """The trajectory does not fit; leaving steps out could hide what matters."""


def render(trajectory: Trajectory) -> tuple[str, str]:
    """The delimited transcript and its boundary.

    A single text above 20,000 characters is cut, visibly.

    Raises:
        TranscriptTooLong: more than 400,000 characters.
    """
    lines = [
        json.dumps({"step": event.step, **fields}, ensure_ascii=False)
        for event in trajectory.events
        if (fields := _fields(event)) is not None
    ]
    text = "\n".join(lines)
    if len(text) > TOTAL_CHARS:
        raise TranscriptTooLong(f"the transcript has {len(text)} characters, {TOTAL_CHARS} fit")
    digest = hashlib.sha256(f"{trajectory.session_id}\n{text}".encode()).hexdigest()
    boundary = f"trajectory-{digest[:32]}"
    return f"<<<{boundary}\n{text}\n{boundary}>>>", boundary


def _fields(event: TrajectoryEvent) -> dict[str, Any] | None:
    """What the model sees of an event; None where there is nothing to see."""
    shown: dict[str, Any] = {}
    if event.session_started:
        if event.session_started.task_input == "{}":
            return None
        shown = {"task_input": event.session_started.task_input}
    elif event.user_turn:
        turn = event.user_turn
        shown = {"conversation": event.conversation, "user": turn.text, "ending": turn.ending}
    elif event.agent_turn:
        shown = dict(_agent(event.agent_turn))
    elif event.tool_called:
        shown = dict(_call(event.tool_called))
    elif event.trace:
        trace = event.trace
        shown = {"trace": trace.type, "payload": trace.payload, "actor": trace.actor}
    elif event.session_ended:
        shown = {"ended": event.session_ended.reason}
    return {key: _cut(value) for key, value in shown.items() if value is not None}


def _agent(turn: AgentTurn) -> Iterator[tuple[str, Any]]:
    if turn.outcome != "ok":
        yield "agent_failed", turn.error_code or turn.outcome
    else:
        yield "agent", turn.final_response
    yield "messages", turn.messages
    yield "says_task_is_over", turn.ended or None


def _call(call: ToolCalled) -> Iterator[tuple[str, Any]]:
    yield "tool", call.tool
    yield "arguments", call.arguments
    yield "response", call.response
    yield "refused", call.error_code
    yield "actor", call.actor
    if call.injection:
        yield "injected_failure", call.injection.kind


def _cut(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= FIELD_CHARS:
        return value
    return f"{value[:FIELD_CHARS]}[... {len(value) - FIELD_CHARS} more characters]"
