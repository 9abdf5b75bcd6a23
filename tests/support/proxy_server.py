"""The proxy's application under the server that services run, its log in memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import structlog
import uvicorn
from starlette.applications import Starlette

from schemas.trajectory import TrajectoryEvent
from services.runtime.http_protocol import BoundedHttp
from services.runtime.metrics import Metrics
from services.runtime.telemetry import Telemetry
from services.runtime.tokens import Claims, Tokens
from services.tool_proxy.app import BASE, ProxyApp
from services.tool_proxy.errors import BY_CODE
from services.tool_proxy.passthrough import CallRealTool
from services.tool_proxy.proxy import ProxyLimits, ToolProxy
from tests.fuzz.client import Answers
from tests.support.real_tools import client, real_tools
from tests.support.services import FixedClock
from tests.support.tool_proxy import (
    NOW_MS,
    SECRET,
    MemoryLog,
    make_brief,
    started,
)


class Server:
    """The app under uvicorn in a thread, its log in memory."""

    def __init__(self, url: str, log: MemoryLog, tokens: Tokens, clock: FixedClock) -> None:
        self.url, self.log, self.tokens, self.clock = url, log, tokens, clock
        self.client = httpx.Client(timeout=20)

    def start(self, session_id: str, **brief: Any) -> None:
        self.log.put(started(make_brief(**brief), session_id))

    def token(self, session_id: str = "s1", **claims: Any) -> str:
        defaults: dict[str, Any] = {
            "session_id": session_id, "run_id": "run", "jti": f"jti-{session_id}", "turn": 1,
            "conversation": 1, "dispatch_id": "d1", "issued_at_ms": NOW_MS,
            "expires_at_ms": NOW_MS + 60_000,
        }  # fmt: skip
        return self.tokens.mint(Claims(**{**defaults, **claims}))

    def headers(self, session_id: str = "s1", **claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(session_id, **claims)}"}

    def base(self, session_id: str = "s1") -> str:
        return f"{self.url}{BASE}/runs/jti-{session_id}"

    def call(
        self,
        tool: str,
        arguments: Any = None,
        *,
        session_id: str = "s1",
        claims: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        sent = self.headers(session_id, **(claims or {})) | (headers or {})
        if "content" not in options:
            options["json"] = {} if arguments is None else arguments
        url = f"{self.base(session_id)}/tools/{tool}"
        return self.client.post(url, headers=sent, **options)

    def recorded(self, session_id: str = "s1") -> list[TrajectoryEvent]:
        return [event for event in self.log.events() if event.session_id == session_id][1:]


@contextmanager
def serving(
    log: MemoryLog,
    max_requests: int = 100,
    tools: CallRealTool | None = None,
    telemetry: Telemetry | None = None,
    **limits: Any,
) -> Iterator[Server]:
    """`tools`: the way to real tools; without it, to those on the public internet."""
    clock, metrics, logger = FixedClock(NOW_MS), Metrics(), structlog.get_logger()
    executor = ThreadPoolExecutor(2)
    proxy = ToolProxy(
        core=log.core, sessions=log, record=lambda event: log.record(event), clock=clock,
        metrics=metrics, log=logger,
        executor=executor, real_tools=tools or real_tools(client(allow=())),
        limits=ProxyLimits(**{"start_wait_s": 0.1, **limits}), telemetry=telemetry,
    )  # fmt: skip
    tokens = Tokens(SECRET)
    app = ProxyApp(
        proxy, tokens, clock, metrics, logger, body_timeout_s=0.5, max_requests=max_requests,
        telemetry=telemetry,
    )  # fmt: skip
    config = uvicorn.Config(
        Starlette(routes=app.routes()), log_config=None, access_log=False, lifespan="off",
        http=BoundedHttp, loop="uvloop",
    )  # fmt: skip
    server = uvicorn.Server(config)
    sock = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: server.run(sockets=[sock]))
    thread.start()
    try:
        running = Server(f"http://127.0.0.1:{sock.getsockname()[1]}", log, tokens, clock)
        with running.client:
            yield running
    finally:
        server.should_exit = True
        thread.join(10)
        executor.shutdown(wait=False, cancel_futures=True)
        sock.close()


def check_refused(response: httpx.Response, code: str) -> dict[str, Any]:
    """Check a refusal against the table; its details."""
    row = BY_CODE[code]
    assert response.status_code == row.status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert (error["code"], error["message"], error["retryable"]) == (
        code, row.message, row.retryable,
    )  # fmt: skip
    details: dict[str, Any] = error.get("details", {})
    return details


def raw(server: Server, *parts: bytes, answers: int = 1, head: bool = False) -> list[Answer]:
    """Send bytes over one connection; what was answered until `answers` came or it closed."""
    host, port = server.url.removeprefix("http://").split(":")
    read = Answers(headless=head)
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        for number, part in enumerate(parts):
            connection.sendall(part)
            if number < len(parts) - 1:
                read.feed(connection.recv(65536))
        while len(read.found) < answers and (data := connection.recv(65536)):
            read.feed(data)
    return [Answer(*found) for found in read.found]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The code of a refusal."""
        code: str = orjson.loads(self.body)["error"]["code"]
        return code
