"""Calls of real tools: what goes to one, what comes back, and what the agent is told of it. Pure.

See docs/passthrough.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.briefs import ToolSpec
from services.runtime.agents.redaction import REDACTED
from services.tool_proxy import injection, rules
from services.tool_proxy.answer import (
    MAX_BODY_BYTES,
    Call,
    Forward,
    Outcome,
    body_bytes,
    injected,
    is_tool_error,
    refused,
)
from services.tool_proxy.jsons import is_text
from services.tool_proxy.session import SessionState

_MIN_SECRET_CHARS = 6
"""Anything shorter is no secret, and may stand in an answer by chance."""


@dataclass(frozen=True, slots=True)
class RealCall:
    """All that leaves for a real tool, and where to: nothing about run, token or agent."""

    tool: str
    spec: ToolSpec
    arguments: str
    key: str
    session_id: str
    """For keeping sessions apart here; it does not leave."""


@dataclass(frozen=True, slots=True)
class RealAnswer:
    """What came of it. `fault` is for the operator's log."""

    body: str = ""
    failed: bool = False
    """The body tells that, and why, there is no answer."""
    error_code: str | None = None
    """A row of the error table: the call could not be made for a fault of this deployment."""
    fault: str = ""


CallRealTool = Callable[[RealCall], Awaitable[RealAnswer]]
"""Returns whatever happens, within the tool's time limit, and calls the tool once at most."""


def failure(code: str, message: str, *, status: int | None = None, **details: Any) -> RealAnswer:
    """A real tool that gave no answer, as data that the agent has to deal with (ADR 0003)."""
    error: dict[str, Any] = {"code": code, "message": message}
    if status is not None:
        error["status"] = status
    body = orjson.dumps({"error": error | details}).decode()
    return RealAnswer(body, failed=True)


def timed_out(tool: str) -> RealAnswer:
    """As an injected timeout looks."""
    return failure("timeout", f"{tool} did not answer in time.", status=504)


def unavailable(tool: str, reason: str) -> RealAnswer:
    """As an injected outage looks, but for the reason."""
    return failure("outage", f"{tool} is unavailable.", status=503, reason=reason)


def too_large(tool: str) -> RealAnswer:
    return failure("response_too_large", f"The answer of {tool} is larger than 1 MiB.")


def undecodable(tool: str) -> RealAnswer:
    return failure("response_undecodable", f"The answer of {tool} is not text that can be read.")


def decoded(body: str) -> Any:
    """A body as the agent gets it (R04)."""
    return body if is_text(body) else orjson.loads(body)


def outcome_of(state: SessionState, call: Call, forward: Forward, answer: RealAnswer) -> Outcome:
    """What the agent is answered, with a failure that was to be injected into it."""
    if answer.error_code is not None:
        return refused(answer.error_code, fault=answer.fault)
    outcome = _altered(state, forward, answer) or _as_it_is(answer)
    if body_bytes(outcome) > MAX_BODY_BYTES:
        return _as_it_is(too_large(call.tool))
    return outcome


def _as_it_is(answer: RealAnswer) -> Outcome:
    return Outcome(
        response=answer.body,
        response_is_text=is_text(answer.body),
        source="transport_error" if answer.failed else "passthrough",
        fault=answer.fault,
    )


def _altered(state: SessionState, forward: Forward, answer: RealAnswer) -> Outcome | None:
    if forward.failure is None:
        return None
    rule = rules.striking(state.brief, state.matched, forward.failure)
    value = decoded(answer.body)
    if rule.kind != "slow" and (answer.failed or is_tool_error(value)):
        return None
    struck = injection.altering(rule, value)
    return None if struck is None else injected(state, forward.failure, rule, struck)


def key_of(session_id: str, call: Call, alike: bytes, number: int) -> str:
    """The Idempotency-Key for the real tool: the caller's, or the same whenever the same call is
    made for this turn - the `number`-th of those that are alike - also by another replica."""
    if call.idempotency_key is not None:
        return call.idempotency_key
    text = f"{session_id}\0{call.turn}\0{number}\0".encode()
    return hashlib.blake2b(text + alike, digest_size=16).hexdigest()


def redacted(body: str, auth: Mapping[str, str]) -> str:
    """Without the credentials that were sent: some tools echo what they get."""
    for value in auth.values():
        for secret in (value, value.rpartition(" ")[2]):
            for spelt in (secret, json.dumps(secret)[1:-1]):
                if len(secret) >= _MIN_SECRET_CHARS and spelt in body:
                    body = body.replace(spelt, REDACTED)
    return body
