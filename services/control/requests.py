"""Reading requests: who asks, bodies capped while they arrive, conditions, pages."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from email.message import Message
from typing import Any

from starlette.requests import Request

from schemas.model import IDENTIFIER
from services.control.errors import Refused
from services.runtime.strict_json import NotStrict, read_object

MAX_BODY_BYTES = 12 * 1024 * 1024
MAX_PAGE = 500

JsonObject = dict[str, Any]
_SMALL_BYTES = 256 * 1024
_UTF8 = ("", "utf-8", "utf8", "us-ascii")
_ID = re.compile(IDENTIFIER, re.ASCII)


class Bearers:
    """The tokens that open this API; any of them does, so that one can be replaced in peace."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(token.encode()).digest() for token in tokens]

    def check(self, request: Request) -> None:
        """Raises Refused: token_invalid. Why is not told, and every token is compared."""
        values = request.headers.getlist("authorization")
        scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
        presented = hashlib.sha256(token.strip(" \t").encode("latin-1")).digest()
        matches = [secrets.compare_digest(presented, known) for known in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            raise Refused("token_invalid")


class Bodies:
    """Reads bodies. Large ones, which carry source, are read and worked on a few at a time."""

    def __init__(self, timeout_s: float, uploads: int) -> None:
        self._timeout_s = timeout_s
        self._uploads = asyncio.Semaphore(uploads)

    async def read(self, request: Request, held: AsyncExitStack) -> JsonObject:
        """The JSON object in a request's body.

        Args:
            held: Left when the request is done: until then a large body keeps its place.

        Raises:
            Refused: media_type_unsupported, body_too_large as soon as that is known,
                body_timeout, body_invalid.
            ClientDisconnect: nobody is waiting for an answer.
        """
        _check_media_type(request)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
            raise Refused("body_too_large")
        body = bytearray()
        try:
            async with asyncio.timeout(self._timeout_s):
                async for chunk in request.stream():
                    if len(body) <= _SMALL_BYTES < len(body) + len(chunk):
                        await held.enter_async_context(self._uploads)
                    body += chunk
                    if len(body) > MAX_BODY_BYTES:
                        raise Refused("body_too_large")
        except TimeoutError:
            raise Refused("body_timeout") from None
        if len(body) > _SMALL_BYTES:
            return await asyncio.to_thread(_parsed, bytes(body))
        return _parsed(bytes(body))


def _check_media_type(request: Request) -> None:
    codings = ",".join(request.headers.getlist("content-encoding")).lower().split(",")
    media = Message()
    media["content-type"] = request.headers.get("content-type", "")
    charset = media.get_param("charset", "")
    if (
        media.get_content_type() != "application/json"
        or not isinstance(charset, str)
        or charset.lower() not in _UTF8
        or any(coding.strip() not in ("", "identity") for coding in codings)
    ):
        raise Refused("media_type_unsupported")


def _parsed(body: bytes) -> JsonObject:
    try:
        return read_object(body)
    except NotStrict as error:
        raise Refused("body_invalid", problem=str(error)) from None


def check_match(request: Request, fingerprint: str) -> None:
    """Raises Refused: agent_changed, where If-Match names other states than the present one."""
    values = request.headers.getlist("if-match")
    named = [value.strip() for value in ",".join(values).split(",")]
    if values and "*" not in named and f'"{fingerprint}"' not in named:
        raise Refused("agent_changed", fingerprint=fingerprint)


def page_of(request: Request) -> tuple[int, str]:
    """How many agents are asked for, and after which id. Raises Refused: query_invalid."""
    limit, cursor = (_parameter(request, name) for name in ("limit", "cursor"))
    if limit is not None and not (
        limit.isascii() and limit.isdecimal() and len(limit) < 5 and 1 <= int(limit) <= MAX_PAGE
    ):
        raise Refused("query_invalid", limit=f"expected 1 to {MAX_PAGE}")
    if cursor is not None and not _ID.fullmatch(cursor):
        raise Refused("query_invalid", cursor="expected the next_cursor of an earlier page")
    return int(limit or 100), cursor or ""


def seconds_of(request: Request, name: str, default: int, most: int) -> int:
    """A parameter in whole seconds. Raises Refused: query_invalid."""
    value = _parameter(request, name)
    if value is None:
        return default
    if not (value.isascii() and value.isdecimal() and len(value) < 5 and 1 <= int(value) <= most):
        raise Refused("query_invalid", **{name: f"expected 1 to {most} seconds"})
    return int(value)


def _parameter(request: Request, name: str) -> str | None:
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise Refused("query_invalid", **{name: "expected once"})
    return values[0] if values else None
