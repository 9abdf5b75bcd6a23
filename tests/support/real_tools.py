"""The way out to real tools, as the tool proxy wires it, with the test's allow-list and DNS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from services.runtime.addresses import AllowList
from services.runtime.outbound import Outbound
from services.tool_proxy.answer import MAX_BODY_BYTES
from services.tool_proxy.mcp_tools import McpTools
from services.tool_proxy.passthrough_http import HttpTools
from services.tool_proxy.passthrough_tools import RealTools

LOOPBACK = ("127.0.0.0/8",)


def client(allow: Sequence[str] = LOOPBACK, **options: Any) -> Outbound:
    defaults = {"max_connections": 64, "max_response_bytes": MAX_BODY_BYTES}
    return Outbound(AllowList(allow), **{**defaults, **options})


def real_tools(via: Outbound, max_sessions: int = 8) -> RealTools:
    return RealTools(HttpTools(via), McpTools(via, max_sessions=max_sessions))


@asynccontextmanager
async def reaching(
    allow: Sequence[str] = LOOPBACK, *, max_sessions: int = 8, **options: Any
) -> AsyncIterator[RealTools]:
    """Closed in order, as the service does it."""
    via = client(allow, **options)
    mcp = McpTools(via, max_sessions=max_sessions)
    try:
        yield RealTools(HttpTools(via), mcp)
    finally:
        await mcp.close()
        await via.close()
