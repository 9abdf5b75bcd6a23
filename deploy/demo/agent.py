"""An order-support agent as an HTTP service, written from the runtime contract alone.

    AGENT_TOKEN=... python -m deploy.demo.agent --port 8700 --build good

It is stateless: each request carries the conversation so far, and what the agent needs to know
from earlier conversations it finds with its tools.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import secrets
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deploy.demo.builds import BUILDS, Build
from deploy.demo.dialogue import Dialogue, replay
from deploy.demo.flows import Flows
from deploy.demo.tools import Tools

MODEL = "order-support-rules"
SYSTEM_PROMPT_ID = "order-support-2026-01"
MAX_BODY_BYTES = 1024 * 1024
TOOL_TIMEOUT_S = 30.0
POOLS, CONNECTIONS_A_POOL = 4, 8


async def answer(_text: str, dialogue: Dialogue, tools: Tools, build: Build) -> str:
    """The agent's reply to the user's newest message."""
    return await Flows(dialogue, tools, build).answer()


def create_app(
    build: Build,
    token: str,
    *,
    answers: Callable[[str, Dialogue, Tools, Build], Awaitable[str]] = answer,
    clients: Sequence[httpx.AsyncClient] = (),
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Starlette:
    """The agent's application.

    Args:
        token: What callers must present as their bearer.
        answers: Makes the reply to a message, of its text and the conversation up to it.
        clients: For calls to the tool proxy, used in turn and closed at shutdown; made if empty.
        sleep, monotonic: Waiting and measuring, in seconds.
    """
    pools = clients or _pools()
    in_turn = itertools.cycle(pools)

    async def dispatch(request: Request) -> Response:
        authorization = request.headers.get("authorization", "")
        if not secrets.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            return _refuse(401, "missing or invalid bearer token")
        body = await _json_body(request)
        if not isinstance(body, dict):
            return _refuse(400, "expected a JSON object of at most 1 MiB")
        if body.keys() == {"ping"} and body["ping"] is True:
            return JSONResponse({"ok": True})
        proxy_url = body.get("odyssey_proxy_url") or request.headers.get(
            "x-pipelines-odyssey-proxy-url"
        )
        run_token = request.headers.get("x-pipelines-run-token")
        if not isinstance(proxy_url, str) or not run_token:
            return _refuse(400, "missing proxy URL or run token")
        started = monotonic()
        task, session = _object(body, "input"), _object(body, "session")
        text = str(task.get("user_instruction") or "")
        tools = Tools(
            client=next(in_turn),
            proxy_url=proxy_url,
            run_token=run_token,
            key_prefix=_key_prefix(body, session),
            attempts=build.tool_attempts,
            sleep=sleep,
        )
        signed_in = _object(task, "input").get("customer_id")
        history = [m for m in _list(session, "history") if isinstance(m, dict)]
        dialogue = replay(history, text, signed_in if isinstance(signed_in, str) else None)
        reply = await answers(text, dialogue, tools, build)
        return JSONResponse(
            {
                "final_response": reply,
                "messages": [
                    {"role": "user", "content": text},
                    *tools.transcript,
                    {"role": "assistant", "content": reply},
                ],
                "metadata": {
                    "model": MODEL,
                    "system_prompt_id": SYSTEM_PROMPT_ID,
                    "total_input_tokens": _words(text, *(m.get("content") for m in history)),
                    "total_output_tokens": _words(reply),
                    "agent_runtime_ms": round((monotonic() - started) * 1000),
                },
            }
        )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for pool in pools:
            await pool.aclose()

    return Starlette(routes=[Route("/dispatch", dispatch, methods=["POST"])], lifespan=lifespan)


def _pools() -> list[httpx.AsyncClient]:
    # Several small pools: the cost of one grows with its connections.
    context = ssl.create_default_context()
    limits = httpx.Limits(max_connections=CONNECTIONS_A_POOL)
    return [
        httpx.AsyncClient(timeout=TOOL_TIMEOUT_S, limits=limits, verify=context)
        for _ in range(POOLS)
    ]


async def _json_body(request: Request) -> Any:
    """The body decoded, or None if it is too large or no JSON."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            return None
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _refuse(status: int, why: str) -> Response:
    return JSONResponse({"error": why}, status_code=status)


def _object(parent: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _list(parent: Mapping[str, Any], key: str) -> list[Any]:
    value = parent.get(key)
    return value if isinstance(value, list) else []


def _key_prefix(body: Mapping[str, Any], session: Mapping[str, Any]) -> str:
    """Names this turn: equal when the turn is posted again, different for any other turn."""
    if "id" in session:
        return f"{session['id']}:{session.get('conversation', 1)}:{session.get('turn', 1)}"
    return f"{body.get('run_id')}:{body.get('task_id')}:{body.get('run_token_jti')}"


def _words(*texts: Any) -> int:
    return sum(len(text.split()) for text in texts if isinstance(text, str))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m deploy.demo.agent", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8700)
    parser.add_argument("--build", choices=sorted(BUILDS), default="good")
    arguments = parser.parse_args()
    token = os.environ.get("AGENT_TOKEN")
    if not token:
        sys.exit("AGENT_TOKEN is not set: the bearer token that callers must present")
    app = create_app(BUILDS[arguments.build], token)
    uvicorn.run(
        app, host=arguments.host, port=arguments.port, access_log=False,
        timeout_graceful_shutdown=5, timeout_keep_alive=75,
    )  # fmt: skip


if __name__ == "__main__":
    main()
