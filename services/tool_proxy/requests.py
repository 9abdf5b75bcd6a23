"""Reading requests: token, actor, keys, and bodies capped while they arrive."""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Any

import orjson
from starlette.requests import Request

from services.runtime.clock import Clock
from services.runtime.tokens import Claims, TokenRefused, Tokens
from services.tool_proxy.answer import MAX_BODY_BYTES
from services.tool_proxy.errors import Refused
from services.tool_proxy.jsons import JsonObject

_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,63}"
ACTOR = re.compile(rf"{_LABEL}(/{_LABEL}){{0,15}}", re.ASCII)
KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
TRACE_TYPES = ("reasoning", "plan", "handoff", "state", "custom")


def claims_of(request: Request, tokens: Tokens, clock: Clock) -> Claims:
    """What the request's run token says.

    Raises:
        Refused: token_invalid. Why is not told.
    """
    given = {value.strip() for value in request.headers.getlist("x-pipelines-run-token")}
    for value in request.headers.getlist("authorization"):
        scheme, _, token = value.partition(" ")
        given.add(token.strip() if scheme.lower() == "bearer" else "")
    if len(given) != 1:
        raise Refused("token_invalid")
    try:
        claims = tokens.open(given.pop(), clock.now_ms())
    except TokenRefused:
        raise Refused("token_invalid") from None
    path_id = request.path_params.get("path_id")
    if path_id is not None and not secrets.compare_digest(path_id.encode(), claims.jti.encode()):
        raise Refused("token_invalid")
    return claims


def actor_of(request: Request) -> str | None:
    """The acting sub-agent's call path, if the agent says. Raises Refused: actor_id_invalid."""
    values = request.headers.getlist("x-pipelines-actor-id")
    if not values:
        return None
    if len(values) > 1 or not ACTOR.fullmatch(values[0]):
        raise Refused("actor_id_invalid")
    return values[0]


def idempotency_key_of(request: Request) -> str | None:
    """The caller's key for repeating this call. Raises Refused: idempotency_key_invalid."""
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not KEY.fullmatch(values[0]):
        raise Refused("idempotency_key_invalid")
    return values[0]


async def body_of(request: Request, timeout_s: float) -> tuple[str, JsonObject]:
    """The body's text and the JSON object in it.

    Raises:
        Refused: body_too_large as soon as that is known, body_timeout, body_invalid.
        ClientDisconnect: nobody is waiting for an answer.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        raise Refused("body_too_large")
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise Refused("body_too_large")
    except TimeoutError:
        raise Refused("body_timeout") from None
    try:
        value: Any = orjson.loads(body)
        orjson.dumps(value)
        text = body.decode()
    except (orjson.JSONDecodeError, TypeError, UnicodeDecodeError) as error:
        raise Refused("body_invalid", problem=str(error)[:200]) from None
    if not isinstance(value, dict):
        raise Refused("body_invalid", problem=f"expected an object, got {type(value).__name__}")
    return text, value


def trace_of(body: JsonObject) -> tuple[str, JsonObject]:
    """Type and payload of a trace event. Raises Refused: trace_invalid."""
    kind, payload = body.get("type"), body.get("payload")
    if set(body) != {"type", "payload"} or not isinstance(payload, dict):
        raise Refused("trace_invalid")
    if not isinstance(kind, str) or kind not in TRACE_TYPES:
        raise Refused("trace_invalid", types=list(TRACE_TYPES))
    return kind, payload
