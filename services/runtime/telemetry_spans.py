"""From events to spans. Pure: the same event makes the same span, whoever reads it."""

from __future__ import annotations

from schemas.trajectory import USER as BY_USER
from schemas.trajectory import EndReason, SessionStarted, TrajectoryEvent
from services.runtime import telemetry_names as n
from services.runtime.telemetry_attributes import asked, common, of_event, used
from services.runtime.telemetry_context import (
    session_event,
    span_id,
    trace_id,
    turn_event,
)
from services.runtime.telemetry_span import Span, known, message

USER_SIMULATOR = "user_simulator"
UNANSWERED = "unanswered"
_UNKNOWN_TOOL = "tool_unknown"


def session_span(
    started: SessionStarted, started_at_ms: int, ended: TrajectoryEvent, agent_name: str
) -> Span:
    """The root of a session's trace, from its start to its end."""
    end = ended.session_ended
    assert end is not None
    error = end.reason if end.reason in EndReason.INVALID else ""
    return Span(
        name=f"{n.INVOKE_WORKFLOW} {started.scenario_id}",
        trace_id=trace_id(ended.session_id),
        span_id=span_id(session_event(ended.session_id)),
        parent_id=None,
        start_ms=started_at_ms,
        end_ms=ended.at_ms,
        attributes=known(
            *common(n.SESSION, ended.run_id, session_event(ended.session_id)),
            (n.WORKFLOW, started.scenario_id),
            (n.AGENT_ID, started.agent_id),
            (n.AGENT_NAME, agent_name),
            (n.SUITE, started.suite),
            (n.SCENARIO, started.scenario_id),
            (n.CATEGORY, started.category),
            (n.TRIAL, started.trial),
            (n.ATTEMPT, started.attempt),
            (n.END_REASON, end.reason),
            (n.TURNS, end.turns),
            (n.TOOL_CALLS, end.tool_calls),
            (n.ERROR_TYPE, error),
        ),
        error=error,
    )


def turn_span(
    event: TrajectoryEvent,
    *,
    agent_id: str,
    agent_name: str,
    user_text: str | None = None,
    contents: bool = False,
) -> Span:
    """A turn at the agent, from posting it to the whole answer."""
    turn = event.agent_turn
    assert turn is not None
    error = "" if turn.outcome == "ok" else turn.error_code or turn.outcome
    told = [(n.RESPONSE_MODEL, turn.usage.model)] if turn.usage is not None else []
    said = []
    if contents and user_text is not None:
        said.append((n.INPUT_MESSAGES, message("user", user_text)))
    if contents and turn.outcome == "ok":
        said.append((n.OUTPUT_MESSAGES, message("assistant", turn.final_response)))
    return Span(
        name=f"{n.INVOKE_AGENT} {agent_name}",
        trace_id=trace_id(event.session_id),
        span_id=span_id(event.event_id),
        parent_id=span_id(session_event(event.session_id)),
        start_ms=max(event.at_ms - turn.latency_ms, 0),
        end_ms=event.at_ms,
        attributes=known(
            *of_event(n.TURN, event),
            (n.AGENT_ID, agent_id),
            (n.AGENT_NAME, agent_name),
            (n.OUTCOME, turn.outcome),
            (n.ERROR_TYPE, error),
            *told,
            *used(turn.usage),
            *said,
        ),
        error=error,
        outgoing=True,
    )


def unanswered_span(
    ended: TrajectoryEvent, turn: int, since_ms: int, *, agent_id: str, agent_name: str
) -> Span:
    """The turn that was at the agent when its session ended: nothing records it, and the agent's
    spans and tool calls hang under it."""
    end = ended.session_ended
    assert end is not None
    event_id = turn_event(ended.session_id, turn)
    return Span(
        name=f"{n.INVOKE_AGENT} {agent_name}",
        trace_id=trace_id(ended.session_id),
        span_id=span_id(event_id),
        parent_id=span_id(session_event(ended.session_id)),
        start_ms=since_ms,
        end_ms=ended.at_ms,
        attributes=known(
            *common(n.TURN, ended.run_id, event_id),
            (n.CONVERSATION, ended.conversation),
            (n.TURN_NUMBER, turn),
            (n.AGENT_ID, agent_id),
            (n.AGENT_NAME, agent_name),
            (n.OUTCOME, UNANSWERED),
            (n.ERROR_TYPE, end.reason),
        ),
        error=end.reason,
        outgoing=True,
    )


def user_span(event: TrajectoryEvent, *, contents: bool = False) -> Span:
    """The user simulator making up a turn, or a call of a tool of the user's own."""
    turn, acted = event.user_turn, event.user_acted
    body = turn or acted
    assert body is not None
    spoilt = turn is not None and turn.invalid is not None
    error = EndReason.SIMULATOR_INVALID if spoilt else ""
    said = turn.text if turn is not None and contents else ""
    return Span(
        name=f"{n.INVOKE_AGENT} {USER_SIMULATOR}",
        trace_id=trace_id(event.session_id),
        span_id=span_id(event.event_id),
        parent_id=span_id(session_event(event.session_id)),
        start_ms=max(event.at_ms - body.latency_ms, 0),
        end_ms=event.at_ms,
        attributes=known(
            *of_event(n.USER, event),
            (n.AGENT_NAME, USER_SIMULATOR),
            (n.ENDING, turn.ending if turn is not None else None),
            (n.ACT, acted.tool if acted is not None else None),
            (n.ERROR_TYPE, error),
            *asked(body.usage),
            (n.OUTPUT_MESSAGES, message("assistant", said) if said else None),
        ),
        error=error,
    )


def tool_span(
    event: TrajectoryEvent,
    *,
    parent: int | None = None,
    delay_ms: int = 0,
    contents: bool = False,
) -> Span:
    """A tool call, until the caller has its answer.

    Args:
        parent: Id of the agent's span that made it; without one it hangs under its turn.
        delay_ms: How much of the latency is still to come when the event is recorded.
    """
    called = event.tool_called
    assert called is not None
    own = span_id(event.event_id)
    if called.requestor == BY_USER:
        parent_id, remote = span_id(f"{event.session_id}:c{called.call}"), False
    else:
        parent_id, remote = _parent_of(event, own, parent)
    start_ms = max(event.at_ms - max(called.latency_ms - delay_ms, 0), 0)
    error = called.error_code or ""
    injection = called.injection
    # What does not exist is called whatever the agent likes, and would make as many operations.
    named = error != _UNKNOWN_TOOL
    return Span(
        name=f"{n.EXECUTE_TOOL} {called.tool}" if named else n.EXECUTE_TOOL,
        trace_id=trace_id(event.session_id),
        span_id=own,
        parent_id=parent_id,
        start_ms=start_ms,
        end_ms=start_ms + called.latency_ms,
        attributes=known(
            *of_event(n.TOOL, event),
            (n.TOOL_NAME, called.tool),
            (n.TOOL_CALL_ID, event.event_id),
            (n.TOOL_TYPE, "function"),
            (n.REQUESTOR, called.requestor),
            (n.SOURCE, called.source),
            (n.INJECTION_KIND, injection.kind if injection is not None else None),
            (n.INJECTION_RULE, injection.rule_id if injection is not None else None),
            (n.ACTOR, called.actor),
            (n.ERROR_TYPE, error),
            *asked(called.usage),
            (n.TOOL_ARGUMENTS, called.arguments if contents else None),
            (n.TOOL_RESULT, called.response if contents else None),
        ),
        error=error,
        parent_is_remote=remote,
    )


def trace_span(event: TrajectoryEvent, parent: int | None = None) -> Span:
    """What the agent's runtime reported: a span without duration, where it was reported from."""
    trace = event.trace
    assert trace is not None
    own = span_id(event.event_id)
    parent_id, remote = _parent_of(event, own, parent)
    return Span(
        name=f"report {trace.type}",
        trace_id=trace_id(event.session_id),
        span_id=own,
        parent_id=parent_id,
        start_ms=event.at_ms,
        end_ms=event.at_ms,
        attributes=known(
            *of_event(n.TRACE, event), (n.TRACE_TYPE, trace.type), (n.ACTOR, trace.actor)
        ),
        parent_is_remote=remote,
    )


def _parent_of(event: TrajectoryEvent, own: int, parent: int | None) -> tuple[int, bool]:
    """The id of a span's parent, and whether that is the agent's; nothing is its own parent."""
    if parent is None or parent == own:
        return span_id(turn_event(event.session_id, event.turn)), False
    return parent, True
