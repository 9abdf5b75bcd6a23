"""What the endpoints do: agents are created, listed, shown, changed, removed and tested."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from schemas.agent_document import AgentDocument, document_of
from schemas.agent_loader import parse_agent
from schemas.errors import InvalidDocument, Problem
from schemas.registry import AgentRegistration, CodeSource
from services.control.errors import Refused
from services.control.model import AgentFingerprint, AgentPage, AgentSummary, ConnectionAnswer
from services.control.registry import Registry
from services.control.requests import (
    Bodies,
    JsonObject,
    check_match,
    page_of,
    seconds_of,
)
from services.control.sources import PublishedSources, is_registered
from services.runtime.agents.changes import changed
from services.runtime.agents.connection import ConnectionReport, Probe
from services.runtime.agents.fingerprint import fingerprint
from services.runtime.bus.errors import BusError
from services.runtime.clock import Clock, iso

MAX_DOCUMENT_BYTES = 1_000_000
DEFAULT_TEST_S, MAX_TEST_S = 10, 30
_UPLOADS = ("paste", "zip")


class Test(Protocol):
    """`services.runtime.agents.connection.test_connection`."""

    async def __call__(self, agent: AgentRegistration, timeout_s: float) -> ConnectionReport: ...


class AgentsApi:
    """The endpoints. Each takes a request and returns its response, or raises Refused or
    InvalidDocument."""

    def __init__(
        self,
        registry: Registry,
        bodies: Bodies,
        sources: PublishedSources,
        test: Test,
        clock: Clock,
    ) -> None:
        self._registry, self._bodies, self._clock = registry, bodies, clock
        self._sources, self._test = sources, test

    async def create(self, request: Request) -> Response:
        async with AsyncExitStack() as held:
            body = await self._bodies.read(request, held)
            await asyncio.to_thread(_check_size, body)
            document = await asyncio.to_thread(parse_agent, json.dumps(body), "agent.json")
            self._check_absent(document.agent_id, await self._registry.current(document.agent_id))
            agent = await self._registration(document)

        def decide(before: AgentRegistration | None) -> AgentRegistration:
            self._check_absent(agent.agent_id, before)
            return agent

        await self._registry.write(agent.agent_id, decide)
        response = _document(agent, 201)
        response.headers["Location"] = f"/api/agents/{agent.agent_id}"
        return response

    async def list(self, request: Request) -> Response:
        limit, cursor = page_of(request)
        agents = [a for a in await self._registry.all() if a.agent_id > cursor]
        page = agents[:limit]
        more = page[-1].agent_id if len(agents) > limit else None
        # Five hundred large agents take a while to hash, and others wait for the loop.
        summaries = await asyncio.to_thread(lambda: [AgentSummary.of(agent) for agent in page])
        return _json(AgentPage(agents=summaries, next_cursor=more).model_dump())

    async def show(self, request: Request) -> Response:
        return _document(await self._present(request))

    async def fingerprint(self, request: Request) -> Response:
        agent = await self._present(request)
        found = AgentFingerprint(
            agent_id=agent.agent_id,
            fingerprint=fingerprint(agent),
            registered_at=iso(agent.registered_at_ms),
        )
        return _json(found.model_dump())

    async def change(self, request: Request) -> Response:
        async with AsyncExitStack() as held:
            changes = await self._bodies.read(request, held)
            await asyncio.to_thread(_check_size, changes)
            before = await self._present(request)
            check_match(request, fingerprint(before))
            document = await asyncio.to_thread(changed, _shown(before), changes)
            code = await self._code(document)

        def decide(present: AgentRegistration | None) -> AgentRegistration:
            if present is None:
                raise Refused("agent_unknown")
            check_match(request, fingerprint(present))
            if present == before:
                after = document.registration(code)
            else:
                # Somebody changed it meanwhile; what this request leaves alone is theirs.
                after = changed(_shown(present), changes).registration(code)
            after = replace(after, registered_at_ms=self._clock.now_ms())
            return present if fingerprint(present) == fingerprint(after) else after

        agent = await self._registry.write(before.agent_id, decide)
        assert agent is not None
        return _document(agent)

    async def remove(self, request: Request) -> Response:
        def decide(before: AgentRegistration | None) -> None:
            if before is None:
                raise Refused("agent_unknown")
            check_match(request, fingerprint(before))

        await self._registry.write(request.path_params["agent_id"], decide)
        return Response(status_code=204)

    async def test_connection(self, request: Request) -> Response:
        timeout_s = seconds_of(request, "timeout_s", DEFAULT_TEST_S, MAX_TEST_S)
        agent = await self._present(request)
        if agent.code is not None:
            probe = Probe("source", None, 0, "ok", "code runs here, where sessions do")
            report = ConnectionReport(agent.agent_id, agent.kind, "", (probe,))
        else:
            report = await self._test(agent, timeout_s)
        return _json(ConnectionAnswer.of(report).model_dump())

    async def _present(self, request: Request) -> AgentRegistration:
        agent = await self._registry.current(request.path_params["agent_id"])
        if agent is None:
            raise Refused("agent_unknown")
        return agent

    def _check_absent(self, agent_id: str, before: AgentRegistration | None) -> None:
        if before is not None:
            raise Refused("agent_exists", fingerprint=fingerprint(before))
        if self._registry.is_full:
            raise Refused("agents_full")

    async def _registration(self, document: AgentDocument) -> AgentRegistration:
        registration = document.registration(await self._code(document))
        return replace(registration, registered_at_ms=self._clock.now_ms())

    async def _code(self, document: AgentDocument) -> CodeSource | None:
        """The published source of a code agent."""
        code = document.code
        if code is None:
            return None
        if code.path is not None:
            message = "expected paste, zip, git or published: no file of yours can be read here"
            raise InvalidDocument([Problem("code.path", message)])
        try:
            if code.published is None:
                return await self._sources.publish(code)
            source = CodeSource(entrypoint=code.entrypoint, **code.published.model_dump())
            if not is_registered(source, await self._registry.all()):
                message = "expected the source of an agent that is registered; upload it again"
                raise InvalidDocument([Problem("code.published", message)])
            return source
        except BusError:
            # Nothing is half done: parts of a source without a registration are read by nobody.
            raise Refused("log_unavailable") from None


def _check_size(document: JsonObject) -> None:
    """Raises Refused: registration_too_large, before any time is spent on the document."""
    code = document.get("code")
    if isinstance(code, dict):
        small = {name: value for name, value in code.items() if name not in _UPLOADS}
        document = {**document, "code": small}
    if len(json.dumps(document, ensure_ascii=False)) > MAX_DOCUMENT_BYTES:
        raise Refused("registration_too_large")


def _shown(agent: AgentRegistration) -> JsonObject:
    """The document of what is registered. Raises Refused: registration_invalid."""
    try:
        return document_of(agent)
    except ValueError:
        raise Refused("registration_invalid") from None


def _document(agent: AgentRegistration, status: int = 200) -> Response:
    response = _json(_shown(agent), status)
    response.headers["ETag"] = f'"{fingerprint(agent)}"'
    return response


def _json(value: Any, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(json.dumps(value), status, headers, "application/json")
