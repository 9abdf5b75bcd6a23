"""One place around every endpoint: tokens, bounds, errors as the table has them, metrics."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from schemas.errors import InvalidDocument
from services.control.errors import Refused, invalid
from services.control.requests import Bearers
from services.runtime import metrics as m
from services.runtime.clock import Clock
from services.runtime.logs import Log
from services.runtime.metrics import Metrics

Endpoint = Callable[[Request], Awaitable[Response]]
_UNREAD = ("body_too_large", "body_timeout", "media_type_unsupported")


class Gatekeeper:
    """Lets requests through to endpoints."""

    def __init__(
        self, bearers: Bearers, clock: Clock, metrics: Metrics, log: Log, max_requests: int
    ) -> None:
        """`max_requests`: under way at once; more are turned away."""
        self._bearers, self._clock, self._metrics, self._log = bearers, clock, metrics, log
        self._max_requests = max_requests
        self._under_way = 0

    def guarded(self, route: str, endpoint: Endpoint, query: Collection[str]) -> Endpoint:
        """An endpoint that answers authorised requests, and any error by the table.

        Args:
            route: The path's template, for metrics and logs.
            query: The parameters it knows; others are refused, so that none is misspelt in vain.
        """

        self._metrics.zero(m.CONTROL_REQUESTS, route=route, status="503")
        self._metrics.zero(m.CONTROL_SECONDS, route=route)

        @functools.wraps(endpoint)
        async def answer(request: Request) -> Response:
            began = self._clock.monotonic()
            self._under_way += 1
            try:
                response = await self._answer(route, endpoint, query, request)
            finally:
                self._under_way -= 1
            self._metrics.add(m.CONTROL_REQUESTS, route=route, status=str(response.status_code))
            self._metrics.observe(m.CONTROL_SECONDS, self._clock.monotonic() - began, route=route)
            return response

        return answer

    async def _answer(
        self, route: str, endpoint: Endpoint, query: Collection[str], request: Request
    ) -> Response:
        try:
            self._bearers.check(request)
            if self._under_way > self._max_requests:
                raise Refused("overloaded")
            if not set(request.query_params) <= set(query):
                known = ", ".join(query) or "no parameters"
                raise Refused("query_invalid", unknown=f"expected {known}")
            return await endpoint(request)
        except Refused as error:
            return refusal(error)
        except InvalidDocument as error:
            return refusal(invalid(error))
        except ClientDisconnect:
            return Response(status_code=400)  # goes nowhere: the client has left
        except Exception as error:
            # Not the path and not the message: what was sent may be in either.
            self._log.error("request failed", route=route, error=type(error).__name__)
            return refusal(Refused("internal_error"))

    async def elsewhere(self, request: Request, error: Exception) -> Response:
        """The answer where there is no endpoint."""
        wrong_method = isinstance(error, HTTPException) and error.status_code == 405
        response = refusal(Refused("method_not_allowed" if wrong_method else "path_unknown"))
        if wrong_method and isinstance(error, HTTPException):
            response.headers["Allow"] = (error.headers or {}).get("Allow", "")
        self._metrics.add(m.CONTROL_REQUESTS, route="none", status=str(response.status_code))
        return response


def refusal(error: Refused) -> Response:
    """The response of a row of the table."""
    headers = {"Cache-Control": "no-store"}
    if error.row.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.row.code in _UNREAD:
        # The rest of the body is not wanted; keeping the connection would mean reading it.
        headers["Connection"] = "close"
    return Response(error.body, error.row.status, headers, "application/json")
