"""Lets the `mcp` package, which brings an HTTP client of its own, speak through our guarded one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2

from services.runtime.addresses import TargetRefused
from services.runtime.outbound import Answer, Outbound, OutboundError


@dataclass(slots=True)
class Causes:
    """What really went wrong with the requests of one call: the package tells it only vaguely,
    and some of it not at all."""

    errors: list[TargetRefused | OutboundError] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)


CAUSES: ContextVar[Causes | None] = ContextVar("mcp_causes", default=None)
"""Set by whoever makes a call; the package sends a call's requests in the caller's context."""


_HOP_BY_HOP = ("host", "connection", "content-length", "transfer-encoding")


def http_client(outbound: Outbound, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """The client that the package is given: it sends everything by `outbound`, with `headers`."""
    return httpx2.AsyncClient(
        transport=_Bridge(outbound),
        headers={"User-Agent": "windtunnel", **headers},
        follow_redirects=False,
        trust_env=False,
        timeout=None,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
    )


class _Bridge(httpx2.AsyncBaseTransport):
    """Never raises: the package ends the whole session over one request that fails here."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and "last-event-id" not in request.headers:
            # What a server sends of its own accord is of no use here, and the stream never ends.
            return httpx2.Response(405, request=request)
        causes = CAUSES.get() or Causes()
        headers = {k: v for k, v in request.headers.items() if k not in _HOP_BY_HOP}
        body = await request.aread()
        try:
            answer = await self._outbound.send(request.method, str(request.url), headers, body)
        except (TargetRefused, OutboundError) as error:
            causes.errors.append(error)
            return httpx2.Response(502, request=request)
        if answer.status >= 300:
            causes.statuses.append(answer.status)
        return httpx2.Response(
            answer.status,
            headers=list(answer.headers.items()),
            stream=_Stream(answer, causes),
            request=request,
        )


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, answer: Answer, causes: Causes) -> None:
        self._answer, self._causes = answer, causes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._answer.chunks():
                yield chunk
        except OutboundError as error:
            self._causes.errors.append(error)
            raise httpx2.StreamError(type(error).__name__) from error

    async def aclose(self) -> None:
        self._answer.close()
