"""The agent's side of a dispatch, as one route of a Starlette or FastAPI application."""

from __future__ import annotations

import inspect
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from .kit import Envelope, EnvelopeError, set_current, to_json

MAX_DISPATCH_BYTES = 16 * 1024 * 1024
_log = logging.getLogger("agent_kit")

Handler = Callable[[Envelope], Any]
"""Takes the dispatch, gives the final response as text, or `{final_response, messages?,
metadata?}`, or an awaitable of either. Runs with the dispatch bound."""


class _Application(Protocol):
    def add_route(
        self, path: str, route: Callable[[Request], Awaitable[Response]], methods: list[str]
    ) -> None: ...


def register_dispatch_route(
    app: _Application,
    handler: Handler,
    *,
    path: str = "/dispatch",
    token: str | None = None,
    auth_header: str = "Authorization",
    allow_anonymous: bool = False,
    max_threads: int = 64,
) -> None:
    """Serve dispatches at `path`: authenticate, answer the ping, run the handler, check its answer.

    Args:
        app: a Starlette or FastAPI application.
        handler: a coroutine function, or a plain one, which then runs in a thread.
        token: the agent's own secret; without it, the variable AGENT_TOKEN's value. Callers send
            `Bearer <token>`, or the bare token where `auth_header` is another header.
        allow_anonymous: accept any caller that can reach the endpoint.
        max_threads: plain handlers that may run at once; more wait.

    Raises:
        ValueError: there is no token, or it does not fit into a header.
    """
    expected = None if allow_anonymous else _expected(token, auth_header)
    limiter: anyio.CapacityLimiter | None = None

    async def run(envelope: Envelope) -> Any:
        nonlocal limiter
        with set_current(envelope):
            if inspect.iscoroutinefunction(handler):
                return await handler(envelope)
            limiter = limiter or anyio.CapacityLimiter(max_threads)
            answer = await anyio.to_thread.run_sync(handler, envelope, limiter=limiter)
            return await answer if inspect.isawaitable(answer) else answer

    async def dispatch(request: Request) -> Response:
        if expected is not None and not _authorised(request, auth_header, expected):
            return _problem(401, "missing or invalid credentials")
        try:
            raw = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)  # goes nowhere
        if raw is None:
            return _problem(413, f"the body is larger than {MAX_DISPATCH_BYTES} bytes")
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            return _problem(400, "the body is not JSON")
        if isinstance(body, dict) and len(body) == 1 and body.get("ping") is True:
            return _json(200, {"ok": True})
        try:
            envelope = Envelope.from_request(body, request.headers)
        except EnvelopeError as error:
            return _problem(400, str(error))
        answer = await run(envelope)
        if isinstance(answer, str):
            answer = {"final_response": answer}
        if problem := _problem_with(answer):
            _log.error("run %s, task %s: %s", envelope.run_id, envelope.task_id, problem)
            return _problem(500, problem)
        return _json(200, answer)

    app.add_route(path, dispatch, methods=["POST"])


def _expected(token: str | None, auth_header: str) -> bytes:
    secret = os.environ.get("AGENT_TOKEN", "") if token is None else token
    if not secret:
        raise ValueError(
            "no token to authenticate dispatches with: set AGENT_TOKEN, pass token=, or say "
            "allow_anonymous=True"
        )
    if not all("!" <= sign <= "~" for sign in secret):
        raise ValueError("the agent's token must be printable ASCII without spaces")
    bearer = auth_header.lower() == "authorization"
    return f"Bearer {secret}".encode() if bearer else secret.encode()


def _authorised(request: Request, auth_header: str, expected: bytes) -> bool:
    given = request.headers.getlist(auth_header)
    return len(given) == 1 and secrets.compare_digest(given[0].encode("latin-1"), expected)


async def _body(request: Request) -> bytes | None:
    received = bytearray()
    async for chunk in request.stream():
        received += chunk
        if len(received) > MAX_DISPATCH_BYTES:
            return None
    return bytes(received)


def _problem_with(answer: Any) -> str | None:
    if not isinstance(answer, Mapping):
        return f"the handler gave {type(answer).__name__}, expected text or a mapping"
    final = answer.get("final_response")
    if not isinstance(final, str) or not final.strip():
        return "the handler gave no non-empty final_response"
    return None


def _problem(status: int, message: str) -> Response:
    response = _json(status, {"error": message})
    if status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(status: int, value: Any) -> Response:
    return Response(to_json(value), status, media_type="application/json")
