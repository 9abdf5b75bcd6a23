"""A service's HTTP side while it starts: whoever comes early waits, within bounds (D01, R02)."""

from __future__ import annotations

import asyncio
import os
import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from services.runtime.http import HttpServer, Starting, application, inherited, listening
from services.runtime.metrics import Metrics
from services.runtime.settings import ConfigurationError


async def echo(request: Request) -> Response:
    return PlainTextResponse(await request.body())


ROUTES = [Route("/tools/echo", echo, methods=["POST"])]


def starting_up(**bounds: float) -> tuple[Starlette, Starting]:
    app = application(Metrics(), lambda: ["start"])
    return app, Starting(app, **bounds)  # type: ignore[arg-type]


def client(app: Starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")


def test_a_request_that_comes_early_is_answered_when_the_service_has_started() -> None:
    async def test() -> None:
        app, starting = starting_up()
        async with client(app) as http:
            early = asyncio.create_task(http.post("/tools/echo", content=b"first"))
            assert (await http.get("/healthz")).status_code == 200
            assert (await http.get("/readyz")).status_code == 503
            assert not early.done()
            starting.over(ROUTES)
            assert (await early).text == "first"
            assert (await http.post("/tools/echo", content=b"second")).text == "second"
            assert (await http.get("/nowhere")).status_code == 404

    asyncio.run(test())


def test_what_takes_too_long_to_start_says_so_and_when_to_come_back() -> None:
    async def test() -> None:
        app, _ = starting_up(hold_s=0.01)
        async with client(app) as http:
            answer = await http.post("/tools/echo")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")

    asyncio.run(test())


def test_only_so_many_requests_are_held() -> None:
    async def test() -> None:
        app, starting = starting_up(most=1)
        async with client(app) as http:
            posts = [asyncio.create_task(http.post("/tools/echo")) for _ in range(2)]
            (refused,), (held,) = await asyncio.wait(posts, return_when="FIRST_COMPLETED")
            assert refused.result().status_code == 503
            starting.over(ROUTES)
            assert (await held).status_code == 200

    asyncio.run(test())


def test_connections_made_before_anybody_serves_are_served() -> None:
    async def test() -> None:
        held = listening("127.0.0.1", 0)
        port = held.getsockname()[1]
        async with httpx.AsyncClient(trust_env=False) as http:
            early = asyncio.create_task(http.get(f"http://127.0.0.1:{port}/healthz"))
            await asyncio.sleep(0.05)
            assert not early.done()
            server = HttpServer(application(Metrics(), list), "", 0, os.dup(held.fileno()))
            assert await server.start() == port
            assert (await early).text == "ok\n"
            await server.stop()
        held.close()

    asyncio.run(test())


def test_an_inherited_socket_is_not_passed_on() -> None:
    with listening("127.0.0.1", 0) as held:
        own = os.dup(held.fileno())
        os.set_inheritable(own, True)
        with inherited(own) as sock:
            assert not sock.get_inheritable()
            assert sock.proto == socket.IPPROTO_TCP


def test_what_is_no_socket_is_named() -> None:
    read, write = os.pipe()
    try:
        with pytest.raises(ConfigurationError, match=r"WINDTUNNEL_HTTP_FD: \d+ is not a listening"):
            inherited(read)
    finally:
        os.close(read)
        os.close(write)
