"""From a decided call to the event that records it, and from a recorded call to its reply. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from schemas.trajectory import TOOL_CALLED, USER, ToolCalled, TrajectoryEvent
from services.tool_proxy.answer import Call, Outcome
from services.tool_proxy.errors import BY_CODE, Refused
from services.tool_proxy.jsons import JsonObject, difference
from services.tool_proxy.jsons import state_hash as hash_of
from services.tool_proxy.session import SessionState


def event_of(
    state: SessionState, call: Call, outcome: Outcome, *, at_ms: int, latency_ms: int
) -> TrajectoryEvent:
    """The event that records an answered call. `latency_ms` includes the injected delay."""
    by_user = call.requestor == USER
    ordinal = (state.user_calls if by_user else state.calls) + 1
    code = outcome.error_code
    patch: list[JsonObject] = []
    if state.current is not None and state.initial is not None:
        if state.calls == state.user_calls == 0:
            # With this the world's end state follows from the trajectory alone.
            patch.append({"op": "replace", "path": "", "value": orjson.loads(state.initial)})
        if outcome.after is not None:
            patch += difference(state.current, outcome.after)
    current = outcome.after if outcome.after is not None else state.current
    called = ToolCalled(
        call=ordinal,
        tool=call.tool,
        arguments=call.raw,
        response=outcome.response,
        response_is_text=outcome.response_is_text,
        source=outcome.source,
        status=200 if code is None else BY_CODE[code].status,
        error_code=code,
        matched_rule_index=outcome.rule_index,
        injection=outcome.injection,
        validation=outcome.validation,
        latency_ms=latency_ms,
        actor=call.actor,
        actor_declared=None if call.actor is None else _declared(state, call.actor),
        idempotency_key=call.idempotency_key,
        state_patch=orjson.dumps(patch).decode() if patch else None,
        state_hash=None if current is None else hash_of(current),
        dispatch_id=call.posting.dispatch_id,
        dispatched_at_ms=call.posting.issued_at_ms,
        requestor=call.requestor,
        usage=outcome.usage,
    )
    return TrajectoryEvent(
        event_id=f"{state.session_id}:{'r' if by_user else 't'}{ordinal}",
        session_id=state.session_id,
        run_id=state.run_id,
        kind=TOOL_CALLED,
        conversation=call.conversation,
        turn=call.turn,
        at_ms=at_ms,
        tool_called=called,
    )


def _declared(state: SessionState, actor: str) -> bool:
    """A call path is declared as a whole, or label by label."""
    actors = state.brief.actors
    return actor in actors or all(label in actors for label in actor.split("/"))


@dataclass(frozen=True, slots=True)
class Reply:
    """What leaves the proxy: always JSON."""

    status: int
    body: bytes
    retry_after_s: int | None = None


def reply_of(called: ToolCalled) -> Reply:
    """The answer to a recorded call, the same whenever it is asked for."""
    if called.error_code is not None:
        return Reply(called.status, called.response.encode())
    text = called.response_is_text
    envelope: JsonObject = {
        "tool_name": called.tool,
        "response": called.response if text else orjson.Fragment(called.response),
        "source": called.source,
        "latency_ms": called.latency_ms,
        "matched_rule_index": called.matched_rule_index,
    }
    if called.source == "odyssey" and called.validation is not None:
        envelope["validation"] = orjson.Fragment(called.validation)
    return Reply(200, orjson.dumps(envelope))


def refusal(error: Refused) -> Reply:
    """The answer to a request that is refused without being recorded."""
    return Reply(error.row.status, error.body, error.retry_after_s)
