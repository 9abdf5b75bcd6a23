"""The tool proxy of the conformance kit: answers as the real one does, and notes what arrives.

Every turn gets a run of its own: a path, a token, and a behaviour which says how its calls are
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jsonschema_rs
import orjson
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from schemas.registry import ToolRegistration
from services.cli.conformance import contract, samples
from services.cli.conformance.contract import BASE, MAX_BODY_BYTES, PROBE_TOOL, Refused
from services.cli.conformance.recording import Behaviour, Run, Seen
from services.runtime.clock import Clock
from services.runtime.http import HttpServer
from services.runtime.settings import ConfigurationError

_BODY_TIMEOUT_S = 30.0
_MAX_NOTED, _MAX_NOTED_BYTES = 5000, 64 * 1024 * 1024
"""An agent that calls without end must not fill the memory; what comes later is turned away."""


class Probe:
    """The proxy. One per examination; `start` before, `stop` after."""

    def __init__(
        self,
        clock: Clock,
        tools: Sequence[ToolRegistration] | None,
        responses: Mapping[str, Any],
        sleep: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._tools = None if tools is None else {tool.name: tool for tool in tools}
        self._responses = responses
        self._sleep = sleep
        self.runs: dict[str, Run] = {}
        self.strays: list[Seen] = []
        """Requests on no run's path."""
        self._noted = self._noted_bytes = 0
        self._server: HttpServer | None = None
        self._base = ""

    async def start(self, listen_host: str, advertised_host: str | None) -> None:
        """Listen on a free port. Raises ConfigurationError: the address is not this machine's."""
        app = Starlette(routes=[Mount("/", app=self._serve)])
        self._server = HttpServer(app, listen_host, 0)
        try:
            port = await self._server.start()
        except (ConfigurationError, OSError):
            raise ConfigurationError(
                f"cannot listen on {listen_host}: give an address of this machine, such as "
                "127.0.0.1, or 0.0.0.0 with the name by which the agent reaches it"
            ) from None
        host = advertised_host or listen_host
        self._base = f"http://{f'[{host}]' if ':' in host else host}:{port}{BASE}"

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    def open(self, run_id: str, token: str, reference: str, behaviour: Behaviour) -> Run:
        """A run for one turn. It stays, so that late calls are seen."""
        url = f"{self._base}/runs/{run_id}"
        run = self.runs[run_id] = Run(run_id, token, url, reference, behaviour)
        return run

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        seen = self._note(request)
        if seen is None:
            await Response(status_code=503)(scope, receive, send)
            return
        try:
            body = await self._answer(request, seen)
        except Refused as refused:
            seen.code, seen.details = refused.code, refused.details
            body = contract.error_body(refused.code, refused.details)
        except ClientDisconnect:
            return
        seen.replied = True
        response = Response(body, contract.status_of(seen.code), media_type="application/json")
        if seen.kind == "trace" and not seen.code:
            response.status_code = 202
        run = self.runs.get(seen.run_id or "")
        if seen.code == "rate_limited" and run is not None:
            response.headers["Retry-After"] = str(run.behaviour.retry_after_s or 1)
        elif seen.code == "token_invalid":
            response.headers["WWW-Authenticate"] = "Bearer"
        elif seen.code == "method_not_allowed":
            response.headers["Allow"] = "POST"
        elif seen.code == "body_timeout":
            response.headers["Connection"] = "close"
        elif seen.code == "body_encoding_unsupported":
            response.headers["Accept-Encoding"] = "identity"
        await response(scope, receive, send)

    def _note(self, request: Request) -> Seen | None:
        self._noted += 1
        if self._noted > _MAX_NOTED or self._noted_bytes > _MAX_NOTED_BYTES:
            return None
        path = request.scope["path"]
        rest = path.removeprefix(f"{BASE}/").split("/") if path.startswith(f"{BASE}/") else []
        run_id, kind, tool = None, "other", ""
        if len(rest) >= 2 and rest[0] == "runs":
            run_id = rest[1] if rest[1] in self.runs else None
            rest = rest[2:]
        elif rest != ["tools", PROBE_TOOL]:
            rest = []
        if len(rest) == 2 and rest[0] == "tools" and rest[1]:
            kind, tool = "tool", rest[1]
        elif rest == ["trace"]:
            kind = "trace"
        seen = Seen(
            at=self._clock.monotonic(),
            method=request.method,
            path=path,
            query=request.url.query,
            kind=kind,
            tool=tool,
            actor=request.headers.get("x-pipelines-actor-id"),
            headers=tuple(request.headers.items()),
            tokens=frozenset(contract.tokens_of(request.headers)),
            run_id=run_id,
        )
        if tool == PROBE_TOOL:
            return seen  # an operator's question, not a call
        (self.strays if run_id is None else self.runs[run_id].seen).append(seen)
        return seen

    async def _answer(self, request: Request, seen: Seen) -> bytes:
        if seen.kind == "other":
            raise Refused("path_unknown")
        if seen.method != "POST":
            raise Refused("method_not_allowed")
        run = self.runs.get(seen.run_id or "")
        if run is None or seen.tokens != {run.token}:
            raise Refused("token_invalid")
        contract.check_actor(request.headers)
        contract.check_encoding(request.headers)
        seen.body = await _body(request)
        self._noted_bytes += len(seen.body)
        value = contract.object_of(seen.body)
        if seen.kind == "trace":
            seen.arguments = value
            contract.check_trace(value)
            return b'{"accepted":true}'
        seen.arguments = value
        self._check_arguments(seen.tool, value)
        await self._scripted(request, run, seen)
        seen.response = self._response(run, seen.tool)
        return _envelope(seen.tool, seen.response, run.behaviour.shape, self._clock, seen.at)

    def _check_arguments(self, name: str, arguments: dict[str, Any]) -> None:
        if self._tools is None:
            return
        tool = self._tools.get(name)
        if tool is None:
            raise Refused("tool_unknown")
        schema = orjson.loads(tool.input_schema)
        validator = jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
        wrong = [
            {
                "path": "".join(f"/{part}" for part in error.instance_path),
                "rule": "".join(f"/{part}" for part in error.schema_path),
                "message": error.message[:200],
            }
            for error in validator.iter_errors(arguments)
        ]
        if wrong:
            raise Refused("arguments_invalid", errors=wrong)

    async def _scripted(self, request: Request, run: Run, seen: Seen) -> None:
        """What this run's behaviour does to its first call."""
        behaviour = run.behaviour
        valid = [one for one in run.calls if one.code == "" or one.scripted]
        if valid[0] is not seen:
            return
        if behaviour.barrier is not None:
            await behaviour.barrier.wait(run.run_id)
        if behaviour.slow_first_s:
            seen.slowed = True
            until = self._clock.monotonic() + behaviour.slow_first_s
            while (left := until - self._clock.monotonic()) > 0:
                await self._sleep(min(0.05, left))
                if await request.is_disconnected():
                    raise ClientDisconnect
        if behaviour.refuse_first:
            seen.scripted = True
            raise Refused(behaviour.refuse_first)

    def _response(self, run: Run, tool: str) -> Any:
        match run.behaviour.shape:
            case "text":
                return samples.text(run.reference)
            case "array":
                return samples.array(run.reference)
            case "error":
                return samples.tool_error(run.reference)
        if tool in self._responses:
            return self._responses[tool]
        known = (self._tools or {}).get(tool)
        return samples.from_schema(known.output_schema if known else None, run.reference)


def _envelope(tool: str, response: Any, shape: str, clock: Clock, at: float) -> bytes:
    source = "error" if shape == "error" else "odyssey"
    envelope = {
        "tool_name": tool,
        "response": orjson.dumps(response).decode() if shape == "encoded" else response,
        "source": source,
        "latency_ms": round((clock.monotonic() - at) * 1000),
        "matched_rule_index": None,
    }
    if source == "odyssey":
        envelope["validation"] = {"valid": True}
    return orjson.dumps(envelope)


async def _body(request: Request) -> bytes:
    """The body, capped while it arrives. Raises Refused, ClientDisconnect."""
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise Refused("body_too_large")
    except TimeoutError:
        raise Refused("body_timeout") from None
    return bytes(body)
