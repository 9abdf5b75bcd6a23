"""The HTTP side of a service: health, readiness, metrics, and what the service adds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from services.runtime.http_protocol import BoundedHttp
from services.runtime.metrics import EXPOSITION, Metrics
from services.runtime.settings import ConfigurationError

_BACKLOG = 4096
_HOLD_S = 10.0
_MOST_HELD = 1024


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the service's own lifecycle has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(host: str, port: int) -> socket.socket:
    """A socket on which connections wait until somebody accepts them.

    Raises:
        ConfigurationError: the port is in use, or the address is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delays off only on sockets that say that they are TCP.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigurationError(
            f"WINDTUNNEL_HTTP_PORT: cannot listen on {host}:{port}: "
            f"{error.strerror}; choose another port, or 0 for a free one"
        ) from None
    return sock


def inherited(descriptor: int) -> socket.socket:
    """The listening socket that whoever started this process holds for it and its successors.

    Raises:
        ConfigurationError: the descriptor is no socket.
    """
    try:
        sock = socket.socket(fileno=descriptor, proto=socket.IPPROTO_TCP)
    except OSError as error:
        raise ConfigurationError(
            f"WINDTUNNEL_HTTP_FD: {descriptor} is not a listening socket: {error.strerror}; "
            "leave it empty to listen on WINDTUNNEL_HTTP_PORT"
        ) from None
    sock.set_inheritable(False)
    return sock


class HttpServer:
    """Serves one application on one port from the running loop."""

    def __init__(self, app: Starlette, host: str, port: int, fd: int | None = None) -> None:
        """`fd`: an inherited socket to serve on, in the place of host and port."""
        self._app, self._host, self._port, self._fd = app, host, port, fd
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen and serve; returns the port.

        Raises:
            ConfigurationError: as `listening` and `inherited` do.
        """
        sock = inherited(self._fd) if self._fd is not None else listening(self._host, self._port)
        config = uvicorn.Config(
            self._app, log_config=None, access_log=False, lifespan="off", backlog=_BACKLOG,
            timeout_graceful_shutdown=5, timeout_keep_alive=75, http=BoundedHttp,
        )  # fmt: skip
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[sock]), name="http")
        return int(sock.getsockname()[1])

    async def stop(self) -> None:
        """Finish what is under way, within uvicorn's grace, and close."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task


class Below(Mount):
    """A mount that takes every path below it; Starlette's own takes none with a line end in it."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        super().__init__(path, app=app)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


class Starting:
    """Everything that is not there yet while a service starts: held until it is, within bounds.

    A caller that comes early must not be told that there is nothing at a path that the service
    will have a moment later: one that comes back after a crash has its callers waiting already.
    """

    def __init__(self, app: Starlette, hold_s: float = _HOLD_S, most: int = _MOST_HELD) -> None:
        self._router = app.router
        self._hold_s, self._most, self._held = hold_s, most, 0
        self._started = asyncio.Event()
        self._place = Below("", app=self._hold)
        self._router.routes.append(self._place)

    def over(self, routes: Sequence[BaseRoute]) -> None:
        """The service has started, and these are its routes."""
        self._router.routes.remove(self._place)
        self._router.routes.extend(routes)
        self._started.set()

    async def _hold(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._held < self._most:
            self._held += 1
            try:
                await asyncio.wait_for(self._started.wait(), self._hold_s)
            except TimeoutError:
                pass
            finally:
                self._held -= 1
        if self._started.is_set():
            await self._router(scope, receive, send)
            return
        refusal = PlainTextResponse("starting\n", 503, {"Retry-After": "1"})
        await refusal(scope, receive, send)


def application(
    metrics: Metrics, ready: Callable[[], Sequence[str]], routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """The routes every service has, and its own.

    `ready` names what the service is still waiting for; empty when it is ready.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        waiting = list(ready())
        return JSONResponse(
            {"ready": not waiting, "waiting_for": waiting}, status_code=503 if waiting else 200
        )

    async def exposition(_: Request) -> Response:
        return Response(metrics.render(), media_type=EXPOSITION)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", exposition),
            *routes,
        ]
    )
