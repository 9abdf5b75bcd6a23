"""`windtunnel view`: the pages of all runs, served over a store to this machine alone.

GET /                                        the latest runs
GET /run?run=                                a run's page
GET /api/session?run=&session=               one session's events and scores, as JSON
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from services.cli.errors import CliError
from services.cli.output import plain
from services.cli.report.page import document
from services.cli.report.reading import RunReader
from services.runtime.store.interface import StoreError

MOST_SESSIONS = 20_000
"""So many sessions of a run, and so many of its baseline, a page lists."""
LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


def viewer(reader: RunReader, hosts: tuple[str, ...] = LOCAL) -> Starlette:
    """The application. `hosts` are the names it may be asked under: a page elsewhere cannot have a
    name of its own resolve to this machine, and read trajectories."""

    async def runs(request: Request) -> Response:
        found = await _asked(reader.runs)
        return _page("Runs · Windtunnel", {"runs": found})

    async def run(request: Request) -> Response:
        name = request.query_params.get("run", "")
        index = await _asked(partial(reader.overview, name, MOST_SESSIONS))
        return _page(f"{name} · Windtunnel", {**index, "live": True})

    async def session(request: Request) -> Response:
        run, name = (request.query_params.get(key, "") for key in ("run", "session"))
        found = await _asked(lambda: dict(reader.details(run, [name])))
        if not found[name]["events"]:
            return PlainTextResponse(f"run {run} has no session {name}", 404, _HEADERS)
        return JSONResponse(plain(found[name]), headers=_HEADERS)

    return Starlette(
        routes=[
            Route("/", _told(runs)),
            Route("/run", _told(run)),
            Route("/api/session", _told(session)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))],
    )


async def _asked(read: Callable[[], T]) -> T:
    return await asyncio.to_thread(read)  # stores block


def _page(title: str, index: object) -> Response:
    return HTMLResponse("".join(document(title, index, (), live=True)), headers=_HEADERS)


def _told(handler: Handler) -> Handler:
    """Errors that a person can do something about, in words."""

    async def handled(request: Request) -> Response:
        try:
            return await handler(request)
        except CliError as error:
            return PlainTextResponse(str(error), 404, _HEADERS)
        except StoreError as error:
            return PlainTextResponse(f"the store failed: {error}", 503, _HEADERS)

    return handled
