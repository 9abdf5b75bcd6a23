"""The HTTP contract of the proxy (R02-R10, R21, R22): routes, and every refusal by the table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from services.runtime import metrics as m
from services.runtime.clock import Clock
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.tokens import Tokens
from services.tool_proxy.answer import Call, Reply, refusal
from services.tool_proxy.errors import Refused
from services.tool_proxy.proxy import ToolProxy, Trace
from services.tool_proxy.requests import (
    actor_of,
    body_of,
    claims_of,
    idempotency_key_of,
    trace_of,
)
from services.tool_proxy.session import Posting

BASE = "/api/odyssey-proxy"
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
    ) -> None:
        """`max_requests`: under way at once, injected delays included; more are turned away."""
        self._proxy = proxy
        self._tokens = tokens
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._body_timeout_s = body_timeout_s
        self._max_requests = max_requests
        self._under_way = 0

    def routes(self) -> list[Mount]:
        """What to add to the service's application."""
        tools, trace = self._endpoint(self._tools), self._endpoint(self._trace)
        paths = [
            Route("/tools/{name}", tools, methods=["POST"]),
            Route("/runs/{path_id}/tools/{name}", tools, methods=["POST"]),
            Route("/trace", trace, methods=["POST"]),
            Route("/runs/{path_id}/trace", trace, methods=["POST"]),
        ]
        handlers = {404: self._elsewhere, 405: self._elsewhere}
        return [Mount(BASE, app=Starlette(routes=paths, exception_handlers=handlers))]

    async def _tools(self, request: Request) -> Reply:
        claims = claims_of(request, self._tokens, self._clock)
        actor = actor_of(request)
        key = idempotency_key_of(request)
        raw, arguments = await body_of(request, self._body_timeout_s)
        name = request.path_params["name"]
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
        )
        return await self._proxy.call(claims.session_id, call)

    async def _trace(self, request: Request) -> Reply:
        claims = claims_of(request, self._tokens, self._clock)
        actor = actor_of(request)
        _, body = await body_of(request, self._body_timeout_s)
        kind, payload = trace_of(body)
        trace = Trace(
            type=kind,
            payload=payload,
            posting=Posting(claims.issued_at_ms, claims.dispatch_id),
            turn=claims.turn,
            conversation=claims.conversation,
            actor=actor,
        )
        await self._proxy.trace(claims.session_id, trace)
        return Reply(202, b'{"accepted":true}')

    def _endpoint(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            self._under_way += 1
            try:
                if self._under_way > self._max_requests:
                    raise Refused("overloaded")
                return _response(await endpoint(request))
            except Refused as refused:
                return self._refused(refused)
            except ClientDisconnect:
                return Response(status_code=400)  # goes nowhere: the client has left
            except Exception as error:
                self._log.error("request failed", path=request.url.path, exc_info=error)
                return self._refused(Refused("internal_error"))
            finally:
                self._under_way -= 1

        return answer

    async def _elsewhere(self, request: Request, error: Exception) -> Response:
        wrong_method = isinstance(error, HTTPException) and error.status_code == 405
        response = self._refused(Refused("method_not_allowed" if wrong_method else "path_unknown"))
        if wrong_method:
            response.headers["Allow"] = "POST"
        return response

    def _refused(self, error: Refused) -> Response:
        self._metrics.add(m.TOOL_REFUSALS, code=error.row.code)
        response = _response(refusal(error))
        if error.row.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        if error.row.code in ("body_too_large", "body_timeout"):
            # The rest of the body is not wanted; keeping the connection would mean reading it.
            response.headers["Connection"] = "close"
        return response


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status, media_type="application/json")
    if reply.retry_after_s is not None:
        response.headers["Retry-After"] = str(reply.retry_after_s)
    return response
