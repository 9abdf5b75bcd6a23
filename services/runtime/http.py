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
from starlette.types import ASGIApp

from services.runtime.http_protocol import BoundedHttp
from services.runtime.metrics import EXPOSITION, Metrics
from services.runtime.settings import ConfigurationError


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the service's own lifecycle has them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpServer:
    """Serves one application on one port from the running loop."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        self._app, self._host, self._port = app, host, port
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Bind and serve; returns the port.

        Raises:
            ConfigurationError: the port is in use, or the address is not this machine's.
        """
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        # asyncio turns Nagle's delays off only on sockets that say that they are TCP.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self._host, self._port))
        except OSError as error:
            sock.close()
            raise ConfigurationError(
                f"WINDTUNNEL_HTTP_PORT: cannot listen on {self._host}:{self._port}: "
                f"{error.strerror}; choose another port, or 0 for a free one"
            ) from None
        config = uvicorn.Config(
            self._app, log_config=None, access_log=False, lifespan="off",
            timeout_graceful_shutdown=5, timeout_keep_alive=75, backlog=4096, http=BoundedHttp,
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
