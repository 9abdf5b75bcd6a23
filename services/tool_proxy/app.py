"""The HTTP contract of the proxy (R02-R10, R21, R22): routes, and every refusal by the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from schemas.traces import json_schema
from services.runtime import metrics as m
from services.runtime.clock import Clock
from services.runtime.http import Below
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.telemetry import Telemetry
from services.runtime.telemetry_context import HEADER
from services.runtime.tokens import Tokens
from services.tool_proxy.answer import Call
from services.tool_proxy.errors import TABLE, Refused
from services.tool_proxy.openapi import BASE, TRACE_SCHEMA_PATH, document
from services.tool_proxy.proxy import ToolProxy, Trace
from services.tool_proxy.recording import Reply, refusal
from services.tool_proxy.requests import (
    Caller,
    actor_of,
    body_of,
    caller_of,
    idempotency_key_of,
    traces_of,
)
from services.tool_proxy.session import Posting

_MAX_NAME = 128
Endpoint = Callable[[Request], Awaitable[Reply]]


class ProxyApp:
    """The proxy's endpoints over HTTP."""

    def __init__(
        self,
        proxy: ToolProxy,
        tokens: Tokens,
        clock: Clock,
        metrics: Metrics,
        log: Log,
        *,
        body_timeout_s: float = 30.0,
        max_requests: int = 4096,
        telemetry: Telemetry | None = None,
    ) -> None:
        """`max_requests`: under way at once, injected delays included; more are turned away."""
        self._proxy = proxy
        self._tokens = tokens
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._body_timeout_s = body_timeout_s
        self._max_requests = max_requests
        self._telemetry = telemetry
        self._under_way = 0
        for row in TABLE:
            metrics.zero(m.TOOL_REFUSALS, code=row.code)

    def routes(self) -> list[BaseRoute]:
        """What to add to the service's application."""
        tools, trace = self._endpoint(self._tools), self._endpoint(self._trace)
        paths = [
            Route("/tools/{name}", tools, methods=["POST"]),
            Route("/runs/{path_id}/tools/{name}", tools, methods=["POST"]),
            Route("/trace", trace, methods=["POST"]),
            Route("/runs/{path_id}/trace", trace, methods=["POST"]),
            _static("/openapi.json", document()),
        ]
        handlers = {404: self._elsewhere, 405: self._elsewhere}
        app = Starlette(routes=paths, exception_handlers=handlers)
        # Neither here nor at the base: a redirect would have the client send its token again, to
        # wherever Host says.
        app.router.redirect_slashes = False
        return [
            Below(BASE, app=app),
            Route(
                BASE, self._nothing, methods=["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
            ),
            _static(TRACE_SCHEMA_PATH, json_schema()),
        ]

    def _caller(self, request: Request) -> Caller:
        caller = caller_of(request, self._tokens, self._clock)
        if self._proxy.has_ended(caller.claims.session_id):
            raise Refused("token_invalid")  # before anything else about the request is judged
        return caller

    async def _tools(self, request: Request) -> Reply:
        caller = self._caller(request)
        claims = caller.claims
        actor = actor_of(request)
        key = idempotency_key_of(request)
        raw, arguments = await body_of(request, self._body_timeout_s, caller)
        name = caller.redact(request.path_params["name"])
        call = Call(
            # Longer names belong to no tool, and "..." keeps a cut one from looking like a tool's.
            tool=name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 3] + "...",
            raw=raw,
            arguments=arguments,
            posting=Posting(claims.issued_at_ms, claims.dispatch_id),
            turn=claims.turn,
            conversation=claims.conversation,
            actor=actor,
            idempotency_key=key,
            parent=self._parent(request, claims.session_id),
        )
        return await self._proxy.call(claims.session_id, call)

    async def _trace(self, request: Request) -> Reply:
        caller = self._caller(request)
        claims = caller.claims
        actor = actor_of(request)
        _, body = await body_of(request, self._body_timeout_s, caller)
        parent = self._parent(request, claims.session_id)
        events = [
            Trace(
                type=event["type"],
                payload=event["payload"],
                version=event.get("version", 1),
                posting=Posting(claims.issued_at_ms, claims.dispatch_id),
                turn=claims.turn,
                conversation=claims.conversation,
                actor=actor,
                parent=parent,
            )
            for event in traces_of(body)
        ]
        await self._proxy.trace(claims.session_id, events)
        return Reply(202, b'{"accepted":true}')

    def _parent(self, request: Request, session_id: str) -> int | None:
        if self._telemetry is None:
            return None
        return self._telemetry.parent(request.headers.getlist(HEADER), session_id)

    def _endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self._under_way += 1
            try:
                if self._under_way > self._max_requests:
                    raise Refused("overloaded")
                return _response(await endpoint(request))
            except Refused as refused:
                return self._refused(refused, request)
            except ClientDisconnect:
                return Response(status_code=400)  # goes nowhere: the client has left
            except Exception as error:
                # Not the path: what an agent puts in a URL may be a secret.
                self._log.error("request failed", endpoint=endpoint.__name__, exc_info=error)
                return self._refused(Refused("internal_error"), request)
            finally:
                self._under_way -= 1

        return answer

    async def _nothing(self, request: Request) -> Response:
        return self._refused(Refused("path_unknown"), request)

    async def _elsewhere(self, request: Request, error: Exception) -> Response:
        if not isinstance(error, HTTPException) or error.status_code != 405:
            return self._refused(Refused("path_unknown"), request)
        response = self._refused(Refused("method_not_allowed"), request)
        response.headers["Allow"] = (error.headers or {}).get("Allow", "POST")
        return response

    def _refused(self, error: Refused, request: Request) -> Response:
        self._metrics.add(m.TOOL_REFUSALS, code=error.row.code)
        response = _response(refusal(error))
        if error.row.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        if error.row.status == 415:
            response.headers["Accept-Encoding"] = "identity"
        if error.row.code == "body_timeout" or "expect" in request.headers:
            # Whoever waits to be asked for the body may send something else next instead of it.
            response.headers["Connection"] = "close"
        return response


def _static(path: str, value: dict[str, Any]) -> Route:
    body = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    async def serve(_: Request) -> Response:
        return Response(body, media_type="application/json")

    return Route(path, serve, methods=["GET"])


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status, media_type="application/json")
    if reply.retry_after_s is not None:
        response.headers["Retry-After"] = str(reply.retry_after_s)
    return response
