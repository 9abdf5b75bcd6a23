"""From scores, and the calls of the judge's model, to spans. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from schemas.scores import DimensionScore, SessionScored
from schemas.trajectory import Usage
from services.runtime import telemetry_names as n
from services.runtime.model_calls import ModelCall
from services.runtime.telemetry_attributes import asked, common, used
from services.runtime.telemetry_context import session_event, span_id, trace_id
from services.runtime.telemetry_span import Span, SpanEvent, Value, known


def judge_spans(
    scored: SessionScored,
    *,
    start_ms: int,
    end_ms: int,
    calls: Sequence[ModelCall] = (),
    contents: bool = False,
) -> list[Span]:
    """The judging of a session, with an event for each dimension, and each call of its model."""
    event_id = f"{scored.session_id}:score"
    judging = Span(
        name=f"{n.EVALUATE} {scored.scenario_id}",
        trace_id=trace_id(scored.session_id),
        span_id=span_id(event_id),
        parent_id=span_id(session_event(scored.session_id)),
        start_ms=start_ms,
        end_ms=end_ms,
        attributes=known(
            *common(n.JUDGE, scored.run_id, event_id),
            (n.AGENT_NAME, n.JUDGE),
            (n.SCENARIO, scored.scenario_id),
            (n.CATEGORY, scored.category),
            (n.TRIAL, scored.trial),
            (n.ATTEMPT, scored.attempt),
            (n.END_REASON, scored.end_reason),
            (n.VALID, scored.valid),
            (n.PASSED, scored.passed),
            *asked(_together(calls)),
        ),
        events=tuple(
            SpanEvent(n.EVALUATION_EVENT, end_ms, _evaluation(score, contents))
            for score in scored.dimensions
        ),
    )
    alike: Counter[str] = Counter()
    spans = [judging]
    for call in calls:
        # Equal calls are told apart by which came first, as nothing else tells them apart.
        alike[call.key] += 1
        own = span_id(f"{event_id}:{call.key}:{alike[call.key]}")
        spans.append(_call_span(scored.run_id, event_id, own, call))
    return spans


def _call_span(run_id: str, event_id: str, own: int, call: ModelCall) -> Span:
    return Span(
        name=f"{n.CHAT} {call.model}",
        trace_id=trace_id(event_id.rpartition(":")[0]),
        span_id=own,
        parent_id=span_id(event_id),
        start_ms=call.started_ms,
        end_ms=call.ended_ms,
        attributes=known(
            *common(n.JUDGE_CALL, run_id, event_id),
            (n.REQUEST_MODEL, call.model),
            (n.RESPONSE_MODEL, call.answered_by),
            (n.ERROR_TYPE, call.error),
            *used(call.usage),
        ),
        error=call.error,
        outgoing=True,
    )


def _evaluation(score: DimensionScore, contents: bool) -> Mapping[str, Value]:
    label = score.status if score.passed is None else "pass" if score.passed else "fail"
    return known(
        (n.EVALUATION_NAME, score.dimension),
        (n.EVALUATION_VALUE, score.value),
        (n.EVALUATION_LABEL, label),
        (n.EVALUATION_EXPLANATION, score.reason if contents else None),
    )


def _together(calls: Sequence[ModelCall]) -> Usage | None:
    """What the calls consumed, if any was answered."""
    usages = [call.usage for call in calls if call.usage is not None]
    if not usages:
        return None
    return Usage(
        model=usages[0].model,
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cost_usd=sum(usage.cost_usd for usage in usages),
    )
