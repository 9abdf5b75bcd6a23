"""The way out to real tools: credentials, time limit, HTTP or MCP; and nothing leaks back in."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from schemas.briefs import ToolSpec
from services.runtime.addresses import TargetRefused
from services.runtime.agents.secrets import SecretMissing, resolve
from services.tool_proxy.passthrough import RealAnswer, RealCall, redacted, timed_out

MAX_TIMEOUT_S = 300

Exchange = Callable[[RealCall, Mapping[str, str]], Awaitable[RealAnswer]]


class RealTools:
    """Calls whichever kind of real tool a call is for."""

    def __init__(self, http: Exchange, mcp: Exchange) -> None:
        self._exchanges = {"http": http, "mcp": mcp}

    async def __call__(self, call: RealCall) -> RealAnswer:
        """The tool's answer, or what went wrong instead: see `CallRealTool`."""
        spec = call.spec
        exchange = self._exchanges.get(spec.target_kind)
        if exchange is None or not spec.target:
            fault = f"its registration names no target of kind {spec.target_kind}"
            return RealAnswer(error_code="tool_unavailable", fault=fault)
        try:
            auth = await _auth(spec)
        except SecretMissing as error:
            return RealAnswer(error_code="target_secret_missing", fault=str(error))
        try:
            async with asyncio.timeout(max(1, min(spec.target_timeout_s, MAX_TIMEOUT_S))):
                answer = await exchange(call, auth)
        except TargetRefused as error:
            return RealAnswer(error_code="target_refused", fault=str(error))
        except TimeoutError:
            return timed_out(call.tool)
        return replace(answer, body=redacted(answer.body, auth))


async def _auth(spec: ToolSpec) -> dict[str, str]:
    """The tool's auth header, its value looked up at this moment. Raises SecretMissing."""
    header, reference = spec.target_auth_header, spec.target_auth_ref
    if not header or not reference:
        return {}
    owner = f"tool {spec.name}"
    if reference.startswith("file:"):
        value = await asyncio.to_thread(resolve, reference, owner)
    else:
        value = resolve(reference, owner)
    if not value.isascii():
        raise SecretMissing(f"{owner}: {reference} holds characters that no header can carry")
    return {header: value}
