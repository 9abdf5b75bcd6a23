"""Reading requests: token, actor, keys, and bodies capped while they arrive."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message

import orjson
from starlette.requests import Request

from schemas import traces
from services.runtime.agents.redaction import REDACTED
from services.runtime.clock import Clock
from services.runtime.strict_json import NotStrict, read_object
from services.runtime.tokens import Claims, TokenRefused, Tokens
from services.tool_proxy.answer import MAX_BODY_BYTES
from services.tool_proxy.errors import Refused
from services.tool_proxy.jsons import JsonObject

ACTOR = re.compile(traces.ACTOR_PATH, re.ASCII)
KEY = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)

_TOKEN = re.compile(r"gAAAAA[A-Za-z0-9_-]{60,}={0,2}")
_UTF8 = ("", "utf-8", "utf8", "us-ascii")
_PARSED_AT_ONCE_BYTES = 64 * 1024
"""Larger bodies are parsed in a thread: the loop has other sessions to serve meanwhile."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is calling, and what must not be recorded of it."""

    claims: Claims
    redact: Callable[[str], str]


def caller_of(request: Request, tokens: Tokens, clock: Clock) -> Caller:
    """What the request's run token says.

    The token is in Authorization as Bearer, or in X-Pipelines-Run-Token, or the same in both.

    Raises:
        Refused: token_invalid. Why is not told.
    """
    given = {value.strip(" \t") for value in request.headers.getlist("x-pipelines-run-token")}
    for value in request.headers.getlist("authorization"):
        scheme, _, token = value.partition(" ")
        given.add(token.strip(" \t") if scheme.lower() == "bearer" else "")
    if len(given) != 1:
        raise Refused("token_invalid")
    presented = given.pop()
    try:
        claims = tokens.open(presented, clock.now_ms())
    except TokenRefused:
        raise Refused("token_invalid") from None
    path_id = request.path_params.get("path_id")
    if path_id is not None and not secrets.compare_digest(path_id.encode(), claims.jti.encode()):
        raise Refused("token_invalid")
    return Caller(claims, _redactor(presented, tokens))


def _redactor(presented: str, tokens: Tokens) -> Callable[[str], str]:
    """Replaces the presented token, and any other that is ours, of whatever session and age."""

    def one(found: re.Match[str]) -> str:
        try:
            tokens.open(found[0], 0)
        except TokenRefused:
            return found[0]
        return REDACTED

    def redact(text: str) -> str:
        if "gAAAAA" not in text:  # as every Fernet message starts
            return text
        return _TOKEN.sub(one, text.replace(presented, REDACTED))

    return redact


def actor_of(request: Request) -> str | None:
    """The acting sub-agent's call path, if the agent says. Raises Refused: actor_id_invalid."""
    values = request.headers.getlist("x-pipelines-actor-id")
    if not values:
        return None
    if len(values) > 1 or not ACTOR.fullmatch(values[0]):
        raise Refused("actor_id_invalid")
    return values[0]


def idempotency_key_of(request: Request) -> str | None:
    """The caller's key for repeating this call; too short to hold a run token.

    Raises:
        Refused: idempotency_key_invalid.
    """
    values = request.headers.getlist("idempotency-key")
    if not values:
        return None
    if len(values) > 1 or not KEY.fullmatch(values[0]):
        raise Refused("idempotency_key_invalid")
    return values[0]


async def body_of(request: Request, timeout_s: float, caller: Caller) -> tuple[str, JsonObject]:
    """The body's text and the JSON object in it. The media type is not looked at: the body says
    whether it is JSON; how it is encoded, it cannot say.

    Raises:
        Refused: body_encoding_unsupported, body_too_large as soon as that is known,
            body_timeout, body_invalid.
        ClientDisconnect: nobody is waiting for an answer.
    """
    _check_encoding(request)
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
        if len(body) > _PARSED_AT_ONCE_BYTES:
            return await asyncio.to_thread(_read, bytes(body), caller.redact)
        return _read(bytes(body), caller.redact)
    except NotStrict as error:
        raise Refused("body_invalid", problem=str(error)) from None


def _read(body: bytes, redact: Callable[[str], str]) -> tuple[str, JsonObject]:
    """A body with a secret in it is replaced by the JSON of its redacted value, however the secret
    was spelt; any other stays the text that was sent."""
    value = read_object(body)
    plain = orjson.dumps(value).decode()
    redacted = redact(plain)
    return (body.decode(), value) if redacted == plain else (redacted, orjson.loads(redacted))


def _check_encoding(request: Request) -> None:
    codings = ",".join(request.headers.getlist("content-encoding")).lower().split(",")
    media = Message()
    media["content-type"] = request.headers.get("content-type", "")
    charset = media.get_param("charset", "")
    plain = all(coding.strip() in ("", "identity") for coding in codings)
    if not plain or not isinstance(charset, str) or charset.lower() not in _UTF8:
        raise Refused("body_encoding_unsupported")


def traces_of(body: JsonObject) -> list[JsonObject]:
    """The trace events in a body. Raises Refused: trace_invalid, trace_version_unknown."""
    try:
        return traces.parse(body)
    except traces.VersionUnknown:
        raise Refused("trace_version_unknown", versions=list(traces.VERSIONS)) from None
    except traces.TraceInvalid as error:
        raise Refused("trace_invalid", errors=error.problems) from None
