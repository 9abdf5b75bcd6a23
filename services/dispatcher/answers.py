"""What is recorded of an agent's answer: no more than fits. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson

from schemas.agent_response import ParsedResponse
from schemas.trajectory import AgentTurn, TrajectoryEvent

MAX_DETAIL = 1000
MAX_WARNINGS = 20
MAX_WARNING = 300


def answered(parsed: ParsedResponse) -> AgentTurn:
    """The turn of a usable answer."""
    warnings = [warning[:MAX_WARNING] for warning in parsed.soft_warnings]
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS - 1 :] = [f"{len(warnings) - MAX_WARNINGS + 1} more warnings"]
    return AgentTurn(
        outcome="ok",
        final_response=parsed.final_response,
        messages=None if parsed.messages is None else orjson.dumps(parsed.messages).decode(),
        metadata=None if parsed.metadata is None else orjson.dumps(parsed.metadata).decode(),
        soft_warnings=tuple(warnings),
        usage=parsed.usage,
        ended=parsed.ended,
    )


def failed(outcome: str, code: str, detail: str) -> AgentTurn:
    """The turn of an agent that gave no usable answer, or of none."""
    return AgentTurn(outcome=outcome, error_code=code, error_detail=detail[:MAX_DETAIL])


def fitting(
    event: TrajectoryEvent, size_of: Callable[[TrajectoryEvent], int], limit: int, guarded: bool
) -> TrajectoryEvent:
    """The event of an agent's turn, without what makes it larger than a record can be.

    Messages go first, then metadata; an answer whose text alone is too large is an error, and so
    is one without the messages that the rich-transcript guard asks for.

    Args:
        size_of: Bytes of the encoded event.
        limit: The most that are taken.
    """
    if size_of(event) <= limit:
        return event
    turn = event.agent_turn
    assert turn is not None
    if turn.messages is not None:
        warning = f"messages dropped: they do not fit into a record of {limit} bytes"
        turn = replace(turn, messages=None, soft_warnings=(*turn.soft_warnings, warning))
        if guarded:
            return _refused(event, turn, "no_gradeable_message", warning)
        event = replace(event, agent_turn=turn)
    if turn.metadata is not None and size_of(event) > limit:
        warning = f"metadata dropped: it does not fit into a record of {limit} bytes"
        turn = replace(turn, metadata=None, soft_warnings=(*turn.soft_warnings, warning))
        event = replace(event, agent_turn=turn)
    if size_of(event) <= limit:
        return event
    detail = f"the answer does not fit into a record of {limit} bytes"
    return _refused(event, turn, "response_too_large", detail)


def _refused(event: TrajectoryEvent, turn: AgentTurn, code: str, detail: str) -> TrajectoryEvent:
    refused = replace(
        failed("error", code, detail),
        usage=turn.usage,
        latency_ms=turn.latency_ms,
        dispatch_id=turn.dispatch_id,
    )
    return replace(event, agent_turn=refused)
