"""The processes of the proxy's benchmark besides the proxy: echo server, client, timed proxy.

`python -m tests.bench.proxy_parts echo PORT | client JSON | service`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.runtime.service import Service, run
from services.runtime.tokens import Claims, Tokens
from services.tool_proxy import app as proxy_app
from services.tool_proxy.app import BASE, ProxyApp
from services.tool_proxy.live import Live, LiveSessions
from services.tool_proxy.passthrough_tools import RealTools
from services.tool_proxy.service import ToolProxySettings, start

CALLS_OF_A_TURN = 4
BODY = b'{"order_id":"ORD-1"}'


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it gets: as little as a tool in Python can do."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def client(options: dict[str, Any]) -> dict[str, Any]:
    """Calls in a closed loop, one session a connection; latencies in milliseconds."""
    tokens = Tokens(options["secret"])
    latencies: list[float] = []
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as http:

        async def calls(number: int, seconds: float, keep: list[float]) -> None:
            until = time.perf_counter() + seconds
            count = 0
            headers = {"Content-Type": "application/json"}
            url = options["echo"]
            while time.perf_counter() < until:
                if options["tool"] and count % CALLS_OF_A_TURN == 0:
                    turn = int(time.time() * 1000) % 10**9 + 1
                    headers["Authorization"] = f"Bearer {token(tokens, number, turn)}"
                    url = f"{options['proxy']}{BASE}/tools/{options['tool']}"
                begun = time.perf_counter()
                async with http.post(url, data=BODY, headers=headers) as response:
                    answer = await response.read()
                keep.append((time.perf_counter() - begun) * 1000)
                count += 1
                assert b"ORD-1" in answer or b"shipped" in answer, answer

        workers = range(options["connections"])
        await asyncio.gather(*(calls(n, options["warm_up_s"], []) for n in workers))
        begun = time.perf_counter()
        print("measuring", flush=True)
        await asyncio.gather(*(calls(n, options["seconds"], latencies) for n in workers))
        wall = time.perf_counter() - begun
    latencies.sort()

    def percentile(share: float) -> float:
        return round(latencies[min(len(latencies) - 1, int(len(latencies) * share))], 3)

    return {
        "requests": len(latencies),
        "requests_per_s": round(len(latencies) / wall, 1),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
    }


def token(tokens: Tokens, number: int, turn: int) -> str:
    now = int(time.time() * 1000)
    claims = Claims(
        session_id=f"b{number}", run_id="bench", jti=f"j{number}", turn=turn, conversation=1,
        dispatch_id=f"d{turn}", issued_at_ms=now, expires_at_ms=now + 600_000,
    )  # fmt: skip
    return tokens.mint(claims)


class Timings:
    """Where a call's time goes: milliseconds a call, by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls = 0

    def of(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed, be it a coroutine function or not."""
        if asyncio.iscoroutinefunction(function):

            @functools.wraps(function)
            async def timed(*args: Any, **kwargs: Any) -> Any:
                begun = time.perf_counter()
                try:
                    return await function(*args, **kwargs)
                finally:
                    self.seconds[name] += time.perf_counter() - begun

            return timed

        @functools.wraps(function)
        def timed_too(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - begun

        return timed_too

    async def show(self, _: Request) -> Response:
        calls = max(1, self.calls)
        found = {name: round(value / calls * 1000, 4) for name, value in self.seconds.items()}
        self.calls = 0
        self.seconds.clear()
        return JSONResponse(found)


def service() -> None:
    """The tool proxy itself, with a clock at each of its parts."""
    timings = Timings()
    proxy_app.caller_of = timings.of("auth", proxy_app.caller_of)  # type: ignore[assignment]
    proxy_app.body_of = timings.of("body", proxy_app.body_of)
    RealTools.__call__ = timings.of("forward", RealTools.__call__)  # type: ignore[method-assign]
    LiveSessions.append = timings.of("append_ack", LiveSessions.append)  # type: ignore[method-assign]
    inner = LiveSessions.locked

    @asynccontextmanager
    async def locked(self: LiveSessions, live: Live) -> AsyncIterator[None]:
        begun = time.perf_counter()
        async with inner(self, live):
            timings.seconds["lock_wait"] += time.perf_counter() - begun
            yield

    LiveSessions.locked = locked  # type: ignore[method-assign]
    tools = timings.of("whole_call", ProxyApp._tools)

    async def counted(self: ProxyApp, request: Request) -> Any:
        timings.calls += 1
        return await tools(self, request)

    ProxyApp._tools = counted  # type: ignore[method-assign]

    async def begin(service: Service[ToolProxySettings]) -> None:
        service.routes.append(Route("/timings", timings.show))
        await start(service)

    run(ToolProxySettings, begin)


def main() -> None:
    part, *arguments = sys.argv[1:]
    if part == "echo":
        uvicorn.run(
            echo, host="127.0.0.1", port=int(arguments[0]), log_level="error", access_log=False,
            lifespan="off", backlog=4096,
        )  # fmt: skip
    elif part == "client":
        print(orjson.dumps(asyncio.run(client(json.loads(arguments[0])))).decode())
    else:
        service()


if __name__ == "__main__":
    main()
