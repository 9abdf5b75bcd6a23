"""The benchmark's stub agent: one model call's pause, two tool calls, one answer a turn.

`python -m tests.bench.agent --port N --latency-s S`. It is as cheap as an HTTP agent in Python
gets, so that what is measured is Windtunnel; its own cost is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio

import aiohttp
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def application(latency_s: float) -> Starlette:
    client: list[aiohttp.ClientSession] = []

    async def dispatch(request: Request) -> Response:
        body = orjson.loads(await request.body())
        if body == {"ping": True}:
            return JSONResponse({"ok": True})
        if not client:
            client.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        if latency_s:
            await asyncio.sleep(latency_s)
        turn = body["session"]["turn"]
        base = body["odyssey_proxy_url"]
        headers = {"Authorization": f"Bearer {request.headers['x-pipelines-run-token']}"}
        for tool, arguments in (
            ("get_order", {"order_id": "ORD-1"}),
            ("add_note", {"text": f"turn {turn}"}),
        ):
            async with client[0].post(
                f"{base}/tools/{tool}", data=orjson.dumps(arguments), headers=headers
            ) as answer:
                answer.raise_for_status()
                await answer.read()
        return JSONResponse({"final_response": f"Step {turn} is done."})

    return Starlette(routes=[Route("/dispatch", dispatch, methods=["POST"])])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-s", type=float, default=0.0)
    options = parser.parse_args()
    uvicorn.run(
        application(options.latency_s),
        host="127.0.0.1", port=options.port, log_level="warning", backlog=4096,
    )  # fmt: skip


if __name__ == "__main__":
    main()
