"""An agent that does nothing: it answers every turn with the same refusal and calls no tool."""

from __future__ import annotations

import secrets
from types import TracebackType

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from schemas.registry import AgentRegistration
from services.cli.lint.wording import NOTHING
from services.runtime.http import HttpServer

_HOST = "127.0.0.1"


class IdleAgent:
    """Served on a free port of this machine for as long as it is entered."""

    def __init__(self) -> None:
        # Nobody else on this machine should be able to talk to it by guessing.
        self._path = f"/{secrets.token_hex(8)}"
        routes = [Route(self._path, self._answer, methods=["POST"])]
        self._server = HttpServer(Starlette(routes=routes), _HOST, 0)
        self._port = 0

    async def __aenter__(self) -> IdleAgent:
        self._port = await self._server.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._server.stop()

    def registration(self, agent_id: str) -> AgentRegistration:
        """What to register it as."""
        endpoint = f"http://{_HOST}:{self._port}{self._path}"
        return AgentRegistration(agent_id=agent_id, name="idle", endpoint=endpoint)

    async def _answer(self, request: Request) -> JSONResponse:
        return JSONResponse({"final_response": NOTHING[0]})
