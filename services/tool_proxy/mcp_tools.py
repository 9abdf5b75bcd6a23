"""Real tools at MCP servers (streamable HTTP), and how their results become responses.

Each session of ours has an MCP session of its own at each server: what a server remembers of one
is not shown to another. They are kept while they are used, and the longest unused ones go first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    TextContent,
)
from pydantic import ValidationError

from services.runtime.addresses import TargetRefused
from services.runtime.outbound import Outbound
from services.tool_proxy import passthrough
from services.tool_proxy.jsons import as_body, same
from services.tool_proxy.mcp_transport import CAUSES, Causes, http_client
from services.tool_proxy.passthrough import RealAnswer, RealCall, failure, unavailable, undecodable
from services.tool_proxy.passthrough_http import no_answer

_CONNECT_S = 30.0
_CLOSE_S = 2.0
_IDLE_S = 300.0
_CLIENT = Implementation(name="windtunnel", version="1")
_Key = tuple[str, str, tuple[tuple[str, str], ...]]


class McpTools:
    """Calls tools at MCP servers."""

    def __init__(
        self, outbound: Outbound, *, max_sessions: int, retried: Callable[[], None] = lambda: None
    ) -> None:
        """`max_sessions`: MCP sessions kept open; one in use is never closed for another, so
        there are as many as there are calls at once where that is more. `retried` hears of every
        call that is made again."""
        self._outbound = outbound
        self._max_sessions = max_sessions
        self._retried = retried
        self._open: OrderedDict[_Key, _McpSession] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def __call__(self, call: RealCall, auth: Mapping[str, str]) -> RealAnswer:
        """The tool's answer; the caller limits the time.

        Raises:
            TargetRefused: the server's address must not be called.
        """
        key = (call.session_id, call.spec.target or "", tuple(auth.items()))
        name = call.spec.target_tool or call.tool
        arguments = orjson.loads(call.arguments)
        for attempt in range(2):
            session = self._session(key)
            causes = Causes()
            session.users += 1
            try:
                return _answer(await session.call(name, arguments, causes))
            except MCPError as error:
                gone = causes.statuses[-1:] == [404]
                if gone or (error.code == CONNECTION_CLOSED and not causes.errors):
                    self._drop(key, session)
                # A server that does not know the session has not carried out the call.
                if not gone or attempt:
                    return _failed(call.tool, error, causes)
                self._retried()
            except ValidationError:
                return undecodable(call.tool)
            finally:
                session.users -= 1
                if session.dropped and not session.users:
                    self._end(session)
        raise AssertionError("the second attempt returns or raises")

    async def close(self) -> None:
        """End every MCP session, within a bound."""
        for session in self._open.values():
            self._end(session)
        self._open.clear()
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSE_S * 2)

    def _session(self, key: _Key) -> _McpSession:
        now = asyncio.get_running_loop().time()
        found = self._open.pop(key, None)
        if found is None or found.is_over:
            found = _McpSession(self._outbound, key[1], dict(key[2]))
        found.used_at = now
        self._open[key] = found
        for old, session in list(self._open.items())[:2]:
            crowded = len(self._open) > self._max_sessions
            if session.users == 0 and session is not found:
                if crowded or session.is_over or now - session.used_at > _IDLE_S:
                    self._drop(old, session)
            elif crowded:
                self._open.move_to_end(old)
        return found

    def _drop(self, key: _Key, session: _McpSession) -> None:
        """Let no more calls use it, and end it when the last is done."""
        if self._open.get(key) is session:
            del self._open[key]
        session.dropped = True
        if not session.users:
            self._end(session)

    def _end(self, session: _McpSession) -> None:
        closing = asyncio.create_task(session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


class _McpSession:
    """One MCP session. A task of its own opens and closes it, as the package wants it."""

    def __init__(self, outbound: Outbound, url: str, headers: Mapping[str, str]) -> None:
        self.users = 0
        self.dropped = False
        self.used_at = 0.0
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._ending = asyncio.Event()
        self._causes = Causes()
        self._task = asyncio.create_task(self._run(outbound, url, headers))

    @property
    def is_over(self) -> bool:
        return self._task.done() or self._ending.is_set()

    async def call(self, name: str, arguments: dict[str, Any], causes: Causes) -> CallToolResult:
        """The tool's result. Raises MCPError, ValidationError; `causes` tells more."""
        try:
            client = await asyncio.shield(self._ready)
        except MCPError:
            causes.errors += self._causes.errors
            causes.statuses += self._causes.statuses
            raise
        token = CAUSES.set(causes)
        try:
            # Not `client.call_tool`: it lists the tools first, and withholds a result that does
            # not fit its output schema. The agent is to get what the tool answered.
            params = CallToolRequestParams(name=name, arguments=arguments)
            return await client.session.send_request(CallToolRequest(params=params), CallToolResult)
        finally:
            CAUSES.reset(token)

    async def close(self) -> None:
        """End it at the server as well, if the server is quick about it."""
        self._ending.set()
        if not self._ready.done():
            self._task.cancel()
        _, late = await asyncio.wait({self._task}, timeout=_CLOSE_S)
        for task in late:
            task.cancel()

    async def _run(self, outbound: Outbound, url: str, headers: Mapping[str, str]) -> None:
        CAUSES.set(self._causes)
        try:
            async with asyncio.timeout(_CONNECT_S) as limit, http_client(outbound, headers) as http:
                transport = streamable_http_client(url, http_client=http)
                async with Client(transport, client_info=_CLIENT, cache=None) as connected:
                    limit.reschedule(None)
                    self._ready.set_result(connected)
                    await self._ending.wait()
        except Exception as error:
            # Whatever else the package meets is among the causes.
            self._fail(_mcp_error_in(error))
        finally:
            self._fail(None)

    def _fail(self, error: MCPError | None) -> None:
        if not self._ready.done():
            self._ready.set_exception(
                error or MCPError(CONNECTION_CLOSED, "The session could not be opened.")
            )
            with suppress(MCPError):
                self._ready.exception()  # nobody may be waiting for it any more


def _mcp_error_in(error: Exception) -> MCPError | None:
    """The package's own error, out of the groups that its tasks wrap it in."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, MCPError) else None


def _answer(result: CallToolResult) -> RealAnswer:
    """A result as a response: see docs/passthrough.md."""
    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    only_text = texts[0] if len(texts) == len(result.content) == 1 else None
    structured = result.structured_content
    if result.is_error:
        error: dict[str, Any] = {"code": "tool_error", "message": "\n".join(texts)}
        if structured is not None:
            error["details"] = structured
        return RealAnswer(as_body({"error": error}))
    if structured is not None and not (only_text is not None and _wraps(structured, only_text)):
        return RealAnswer(as_body(structured))
    if only_text is not None:
        return RealAnswer(only_text)
    parts = [
        part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content
    ]
    return RealAnswer(as_body(parts) if parts else "")


def _wraps(structured: Any, text: str) -> bool:
    """Whether structured content is only there because it had to be an object: `{"result": x}`
    beside the text x."""
    if not isinstance(structured, dict) or set(structured) != {"result"}:
        return False
    value = structured["result"]
    return bool(
        same(value, text) or same(value, passthrough.decoded(text)) or as_body(value) == text
    )


def _failed(tool: str, error: MCPError, causes: Causes) -> RealAnswer:
    for cause in causes.errors:
        if isinstance(cause, TargetRefused):
            raise cause
        return no_answer(tool, cause)
    if error.code == CONNECTION_CLOSED:
        return unavailable(tool, "the connection broke")
    status = causes.statuses[-1] if causes.statuses else None
    if status is not None and status != 404:
        return failure("http_status", f"{tool} answered {status}.", status=status)
    return failure("mcp_error", error.message, mcp_code=error.code)
