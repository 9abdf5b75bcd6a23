"""The attributes that several kinds of spans share. Pure."""

from __future__ import annotations

from schemas.trajectory import TrajectoryEvent, Usage
from services.runtime import telemetry_names as n
from services.runtime.telemetry_span import Value

Pairs = list[tuple[n.Attribute, Value | None]]


def of_event(kind: str, event: TrajectoryEvent) -> Pairs:
    """Where in a session a span of one event belongs."""
    return [
        *common(kind, event.run_id, event.event_id),
        (n.CONVERSATION, event.conversation),
        (n.TURN_NUMBER, event.turn),
    ]


def common(kind: str, run_id: str, event_id: str) -> Pairs:
    """What every span says."""
    session_id, _, step = event_id.rpartition(":")
    return [
        (n.KIND, kind),
        (n.OPERATION, n.OPERATIONS.get(kind)),
        (n.CONVERSATION_ID, session_id),
        (n.RUN_ID, run_id),
        (n.EVENT, step),
    ]


def asked(usage: Usage | None) -> Pairs:
    """What a model of ours consumed."""
    if usage is None or not usage.model:
        return []
    return [(n.REQUEST_MODEL, usage.model), *used(usage)]


def used(usage: Usage | None) -> Pairs:
    """Tokens and cost."""
    if usage is None:
        return []
    return [
        (n.INPUT_TOKENS, usage.input_tokens),
        (n.OUTPUT_TOKENS, usage.output_tokens),
        (n.COST, usage.cost_usd or None),
    ]
