"""The one way out of a sandbox: tool calls, to its own session's tool proxy and nowhere else.

The listener stands on the sandbox's own loopback and was handed out before any of the agent's code
ran; whoever connects to it inside is answered here. Only what the proxy offers agents passes; the
rest of the proxy's port, its metrics above all, cannot be asked for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import unquote, urlsplit

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

BASE = "/api/odyssey-proxy"
MAX_CONNECTIONS = 64
MAX_TARGET = 4096
_BACKLOG = 128
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
     "transfer-encoding", "upgrade", "host", "expect", "content-length", "accept-encoding"}
)  # fmt: skip
# What strangers send is nothing to log: a request that cannot be parsed may hold a token.
_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.disabled = True

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Upstream:
    """Where a session's tool calls go: the proxy of one URL, over connections that are shared."""

    def __init__(self, session: aiohttp.ClientSession, proxy_url: str) -> None:
        """`proxy_url` as the session's agent would be given it over HTTP."""
        parts = urlsplit(proxy_url)
        before, base, _ = parts.path.partition(BASE)
        self.path = parts.path
        """What the URL inside has after its host and port."""
        self._prefix = (before + base if base else parts.path).rstrip("/") + "/"
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._session = session

    def offers(self, target: str) -> bool:
        """Whether a request's target is one of the paths that are for agents."""
        path = unquote(target.partition("?")[0])
        return (
            len(target) <= MAX_TARGET
            and target.startswith(self._prefix)
            and path.startswith(self._prefix)
            and not {".", "..", ""} & set(path.removeprefix("/").split("/"))
            and "\\" not in path
            and path.isprintable()
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request from inside."""
        if not self.offers(request.raw_path):
            return _refused(404, "path_unknown", "There is nothing for agents at this path.", False)
        if request.method != "POST":
            answer = _refused(405, "method_not_allowed", "Only POST is answered here.", False)
            answer.headers["Allow"] = "POST"
            return answer
        headers = _end_to_end(request.headers)
        if request.content_length is not None:
            headers["Content-Length"] = str(request.content_length)
        try:
            return await self._forwarded(request, headers)
        except (aiohttp.ClientError, OSError):
            return _refused(
                502, "proxy_unreachable", "The tool proxy cannot be reached at the moment.", True
            )

    async def _forwarded(
        self, request: web.BaseRequest, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        async with self._session.post(
            URL(self._origin + request.raw_path, encoded=True),
            data=request.content if request.can_read_body else b"",
            headers=headers,
            skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_end_to_end(answer.headers)
            )
            response.content_length = answer.content_length
            # Where the proxy will not read on, the rest of the body must not pass for a request.
            if answer.headers.get("Connection", "").lower() == "close":
                response.force_close()
            await response.prepare(request)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
            except (aiohttp.ClientError, OSError):
                # Half an answer is on its way: to cut it is the only way left to say so.
                if request.transport is not None:
                    request.transport.close()
            return response


def new_session(max_connections: int) -> aiohttp.ClientSession:
    """The client that all relays of a process share."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=max_connections, keepalive_timeout=4.0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
    )


class Relay:
    """Answers the connections of one sandbox, for the length of its turn."""

    def __init__(self, listener: socket.socket, upstream: Upstream) -> None:
        self._listener = listener
        self._http = _Http(upstream.handle, logger=_SILENT, access_log=None)
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Relay:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._protocol, sock=self._listener, backlog=_BACKLOG
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._http.shutdown(0)

    def _protocol(self) -> asyncio.Protocol:
        return _Full() if self._http.open >= MAX_CONNECTIONS else self._http()


class _Http(web.Server):
    """Counts its connections from when they are accepted, not from when they are set up."""

    open = 0

    def __call__(self) -> web.RequestHandler:
        self.open += 1
        return super().__call__()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        self.open -= 1
        super().connection_lost(handler, exc)


class _Full(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict(
        (name, value)
        for name, value in headers.items()
        if name.lower() not in _HOP_BY_HOP and name.lower() not in named
    )


def _refused(status: int, code: str, message: str, retryable: bool) -> web.Response:
    """In the form of the tool proxy's refusals."""
    error = {"code": code, "message": message, "retryable": retryable}
    return web.Response(
        status=status, body=orjson.dumps({"error": error}), content_type="application/json"
    )
