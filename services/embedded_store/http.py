"""A subset of ClickHouse's HTTP interface.

- ``POST /``: SQL in the body or in ``query=``; with both, the body is the data of an INSERT.
- ``GET /?query=``: the same, read-only.
- parameters ``database``, ``default_format`` (JSONCompact unless given), ``readonly=1`` (or header
  ``X-ClickHouse-Readonly: 1``), ``param_NAME`` for ``{NAME:Type}``; any other is a setting.
- errors: ClickHouse's text with its code in ``X-ClickHouse-Exception-Code``.
- ``GET /ping``, ``/healthz`` (the process lives), ``/readyz`` (it takes requests), ``/metrics``.

Users, passwords, sessions and compression are not served, their parameters have no effect: whoever
reaches the port may read and write.
"""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from services.embedded_store.engine import Engine, EngineError
from services.embedded_store.engine import Request as EngineRequest
from services.embedded_store.statement import parse
from services.runtime import metrics as m
from services.runtime.metrics import EXPOSITION, Metrics

#: Parameters of ClickHouse's HTTP handler, not of the engine, which clients send routinely.
_HANDLER_PARAMETERS = frozenset(
    {"query_id", "wait_end_of_query", "buffer_size", "send_progress_in_http_headers", "user"}
    | {"enable_http_compression", "client_protocol_version", "http_headers_progress_interval_ms"}
    | {"password", "quota_key", "cancel_http_readonly_queries_on_client_close", "compress"}
    | {"session_id", "session_timeout", "session_check", "role"}
)
_STATUS = {
    **dict.fromkeys((6, 26, 27, 38, 41, 43, 53, 62, 69, 70, 72, 117, 130, 131, 457), 400),
    **dict.fromkeys((16, 42, 46, 47, 60, 81, 115, 73), 404),
    **dict.fromkeys((164, 497), 403),
    **dict.fromkeys((202,), 503),
    **dict.fromkeys((159, 209), 504),
    **dict.fromkeys((48,), 501),
}
_CONTENT_TYPES = {
    "CSV": "text/csv",
    "TabSeparated": "text/tab-separated-values",
    "TSV": "text/plain",
}


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may take."""

    body_bytes: int = 64 * 1024 * 1024
    waiting: int = 32
    body_seconds: float = 60.0
    query_seconds: int = 60


class Server:
    """The routes over one engine; ``draining`` makes it not ready."""

    def __init__(self, engine: Engine, limits: Limits, *, loopback_only: bool) -> None:
        self._engine = engine
        self._limits = limits
        self._loopback_only = loopback_only
        self._waiting = 0
        self.draining = False
        self._metrics = Metrics()
        self._metrics.begin(m.CATALOGUE, "embedded_store")
        self._metrics.measure(m.READY, lambda: float(not self._is_busy))
        self._metrics.measure(m.STORE_WAITING, lambda: float(self._waiting))

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/ping", _ok),
                Route("/healthz", _ok),
                Route("/readyz", self._ready),
                Route("/metrics", self._exposition),
                Route("/", self._statement, methods=["GET", "POST"]),
            ]
        )

    @property
    def _is_busy(self) -> bool:
        return self.draining or self._waiting >= self._limits.waiting

    async def _ready(self, request: Request) -> Response:
        busy = self._is_busy
        return PlainTextResponse("busy\n" if busy else "Ok.\n", 503 if busy else 200)

    async def _exposition(self, request: Request) -> Response:
        return Response(self._metrics.render(), media_type=EXPOSITION)

    async def _statement(self, request: Request) -> Response:
        if self._from_a_web_page(request):
            return _error("requests from web pages are refused", 497, 403)
        if request.method == "GET" and "query" not in request.query_params:
            return _ok(request)
        if self._waiting >= self._limits.waiting:
            response = _error(f"{self._waiting} statements wait already", 202, 503)
            response.headers["Retry-After"] = "1"
            return response
        # Counted before the body is read, so that bodies in memory are bounded as well.
        self._waiting += 1
        try:
            return await self._admitted(request)
        finally:
            self._waiting -= 1

    async def _admitted(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._body(request)
        except TimeoutError:
            return _error("the body took too long to arrive", 209, 408)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            limit = self._limits.body_bytes
            return _error(f"the body is larger than {limit} bytes: send it in parts", 161, 413)
        params = dict(request.query_params)
        try:
            statement = parse(
                params.pop("query", ""), body, params.pop("default_format", "JSONCompact")
            )
        except UnicodeError:
            return _error("the statement is not UTF-8 text", 62, 400)
        asked = params.pop("readonly", request.headers.get("X-ClickHouse-Readonly", "0"))
        database = params.pop("database", "default")
        parameters = {k[6:]: v for k, v in params.items() if k.startswith("param_")}
        settings = {
            name: value
            for name, value in params.items()
            if not name.startswith("param_") and name not in _HANDLER_PARAMETERS
        }
        # Statements take turns: none may hold the others up for ever.
        settings.setdefault("max_execution_time", str(self._limits.query_seconds))
        readonly = request.method != "POST" or asked != "0"  # HEAD comes with every GET route
        now, outcome = asyncio.get_running_loop().time, "error"
        started = now()
        try:
            content = await self._engine.run(
                EngineRequest(statement, database, settings, parameters, readonly)
            )
            outcome = "ok"
        except EngineError as error:
            return _error(error.text, error.code, _STATUS.get(error.code, 500))
        finally:
            self._metrics.observe(m.STORE_SECONDS, now() - started, outcome=outcome)
        kind = "application/json" if "JSON" in statement.format else "application/octet-stream"
        media_type = _CONTENT_TYPES.get(statement.format, kind)
        headers = {"X-ClickHouse-Format": statement.format}
        return Response(content, media_type=media_type, headers=headers)

    async def _body(self, request: Request) -> bytes | None:
        """None when it is too large; the rest is then left unread."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self._limits.body_bytes:
                return None
        return bytes(body)

    def _from_a_web_page(self, request: Request) -> bool:
        """There is no password, so a page in the user's browser must not reach the data: neither by
        a cross-site request nor by a host name that it has pointed at this machine."""
        if "origin" in request.headers or request.headers.get("sec-fetch-site", "none") != "none":
            return True
        return self._loopback_only and not _is_local(request.url.hostname or "")


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ok(request: Request) -> Response:
    return PlainTextResponse("Ok.\n")


def _error(text: str, code: int, status: int) -> Response:
    if not text.startswith("Code:"):
        text = f"Code: {code}. DB::Exception: {text}"
    headers = {"X-ClickHouse-Exception-Code": str(code)}
    return PlainTextResponse(f"{text}\n", status, headers=headers)
