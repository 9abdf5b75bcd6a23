"""Turns of agents that are run here, against the real tool proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration, ToolRegistration
from schemas.trajectory import ToolCalled, TraceEvent
from services.dispatcher.agents.kind import AgentKind
from services.dispatcher.agents.proxy_calls import ProxyCalls
from services.runtime.agents.client import TurnRequest
from services.runtime.agents.exchange import Exchanger
from services.runtime.clock import SystemClock
from services.tool_proxy.session import ProxyCore
from tests.support.proxy_server import Server, serving
from tests.support.tool_proxy import MemoryLog, make_brief, make_world, started

SESSION = "s1"
Make = Callable[[Exchanger, ProxyCalls, SystemClock], AgentKind]


@contextmanager
def proxy() -> Iterator[Server]:
    """The tool proxy with one session in the world `desk`."""
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    log.put(started(make_brief(), SESSION))
    with serving(log) as server:
        yield server


def tools() -> tuple[ToolRegistration, ...]:
    return tuple(
        ToolRegistration(
            name=tool.name,
            description=tool.description,
            input_schema=orjson.dumps(tool.input_schema).decode(),
        )
        for tool in make_world().tools
    )


def request_of(
    server: Server | None,
    text: str = "Where is order 1?",
    *,
    turn: int = 1,
    dispatch: str = "d1",
    history: tuple[str, ...] = (),
    state: Mapping[str, Any] | None = None,
    token: str = "",
    proxy_url: str = "",
    conversation: int = 1,
) -> TurnRequest:
    """A turn as the dispatcher makes it; `history` alternates between user and assistant."""
    roles = ("user", "assistant")
    if server is not None:
        token = token or server.token(SESSION, turn=turn, dispatch_id=dispatch)
        proxy_url = proxy_url or server.base(SESSION)
    url = proxy_url or "http://127.0.0.1:1/p"
    return TurnRequest(
        body={
            "task_id": 42, "run_id": 17, "agent_id": 8,
            "input": {"task_id": 42, "user_instruction": text, "input": dict(state or {})},
            "odyssey_proxy_url": url, "run_token_jti": "jti",
            "session": {
                "id": "5e5510", "conversation": conversation, "turn": turn,
                "history": [
                    {"role": roles[n % 2], "content": said} for n, said in enumerate(history)
                ],
            },
        },
        run_token=token or "gAAAAAnobody", proxy_url=url, run_id=17, task_id=42, jti="jti",
        idempotency_key=f"{SESSION}-{turn}",
    )  # fmt: skip


def run(
    make: Make, act: Callable[[AgentKind], Awaitable[Any]], *, slept: list[float] | None = None
) -> Any:
    """Do something with an agent kind; its waiting is skipped and noted."""
    pauses: list[float] = [] if slept is None else slept

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    async def main() -> Any:
        exchanger = Exchanger(20)
        kind = make(exchanger, ProxyCalls(exchanger, sleep), SystemClock())
        try:
            return await act(kind)
        finally:
            await kind.close()
            await exchanger.close()

    return asyncio.run(main())


def turn(
    make: Make, agent: AgentRegistration, request: TurnRequest, slept: list[float] | None = None
) -> ParsedResponse:
    return run(make, lambda kind: kind.turn(agent, request), slept=slept)


def calls(server: Server) -> list[ToolCalled]:
    return server.log.calls()


def traces(server: Server) -> list[TraceEvent]:
    return [event.trace for event in server.log.events() if event.trace is not None]
