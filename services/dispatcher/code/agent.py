"""The agent kind `code`: calls the uploaded function for each turn, in a sandbox of its own."""

from __future__ import annotations

import asyncio
import contextlib
import platform
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from schemas.agent_response import ParsedResponse, ResponseRefused
from schemas.registry import AgentRegistration, CodeSource
from services.dispatcher.code import outcomes
from services.dispatcher.code.interpreter import this_interpreter
from services.dispatcher.code.limits import CodeLimits
from services.dispatcher.code.pool import Leased, SandboxPool
from services.dispatcher.code.relay import MAX_CONNECTIONS, Relay, Upstream, new_session
from services.dispatcher.code.sandbox import Report, Sandbox
from services.dispatcher.code.tools import find_tools
from services.dispatcher.code.watch import exceeded
from services.runtime.agents.client import (
    AgentFailed,
    TurnRequest,
    read_answer,
    turn_timeout_s,
)
from services.runtime.agents.decoding import NotJson
from services.runtime.agents.redaction import Redactor
from services.runtime.logs import Log
from services.runtime.slots import Slots
from services.runtime.sources.entrypoint import check_entrypoint
from services.runtime.sources.files import SourceRefused
from services.runtime.sources.store import SourceStore

_LAST_WORDS_S = 5.0


class CodeAgent:
    """An AgentKind. Sandboxes are set up from the first turn or check on; without them, every turn
    is a LookupError that says what is missing.
    """

    def __init__(self, store: SourceStore, limits: CodeLimits, log: Log) -> None:
        self._store = store
        self._limits = limits
        self._log = log
        self.slots = Slots(limits.concurrency)
        self._pool_made: SandboxPool | None = None
        self._session: aiohttp.ClientSession | None = None

    @property
    def turns_under_way(self) -> int:
        """Turns that have a sandbox at the moment."""
        return 0 if self._pool_made is None else self._pool_made.taken

    async def turn(self, agent: AgentRegistration, request: TurnRequest) -> ParsedResponse:
        """As AgentKind says. A wait for a free sandbox is not the agent's time, and is bounded by
        as much again.
        """
        code, timeout_s = _code(agent), turn_timeout_s(agent)
        pool = self._pool()
        async with self._slot(timeout_s):
            leased = await pool.take(code)
            try:
                answer = await self._answer(leased, code, request, timeout_s)
            except AgentFailed:
                if pool.closed:
                    # Its sandbox was taken from under it.
                    raise LookupError("the dispatcher is stopping") from None
                raise
            finally:
                # Whoever cancels the turn waits for its sandbox to be gone.
                await asyncio.shield(pool.give_back(leased))
        try:
            return await asyncio.to_thread(read_answer, agent, request, answer)
        except NotJson as error:
            raise AgentFailed("error", "response_not_json", str(error)) from None
        except ResponseRefused as error:
            detail = Redactor([request.run_token]).text(str(error))
            raise AgentFailed("error", error.code, detail) from None

    async def check(self, agent: AgentRegistration, timeout_s: float) -> None:
        """Returns when the source is here, has its entrypoint, and a sandbox holds it."""
        code = _code(agent)
        pool = self._pool()
        try:
            async with asyncio.timeout(timeout_s):
                path = await self._store.acquire(code, timeout_s)
                try:
                    await asyncio.to_thread(_check_entrypoint, path, code.entrypoint)
                finally:
                    self._store.release(code.source_hash)
                await pool.give_back(await pool.take(code))
        except SourceRefused as error:
            raise AgentFailed("error", "code_entrypoint_missing", str(error)) from None
        except TimeoutError:
            raise LookupError(f"no sandbox was ready within {timeout_s:g} s") from None

    async def close(self) -> None:
        """End every sandbox; returns when no process of them is left."""
        if self._pool_made is not None:
            await self._pool_made.close()
        if self._session is not None:
            await self._session.close()

    def _pool(self) -> SandboxPool:
        if self._pool_made is None:
            tools = find_tools(this_interpreter())
            if tools.seccomp is None:
                self._log.warning(
                    "sandboxes run without a filter of system calls: none is written for this "
                    "machine", machine=platform.machine(),
                )  # fmt: skip
            self._pool_made = SandboxPool(self._store, tools, self._limits, self._log)
            self._session = new_session(self._limits.concurrency * MAX_CONNECTIONS)
        return self._pool_made

    @contextlib.asynccontextmanager
    async def _slot(self, timeout_s: float) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(timeout_s):
                await self.slots.acquire()
        except TimeoutError:
            raise outcomes.all_busy(self._limits, timeout_s) from None
        try:
            yield
        finally:
            self.slots.release()

    async def _answer(
        self, leased: Leased, code: CodeSource, request: TurnRequest, timeout_s: float
    ) -> bytes:
        sandbox = leased.sandbox
        assert sandbox.listener is not None
        assert self._session is not None
        upstream = Upstream(self._session, request.proxy_url)
        message = _message(code, request, upstream.path)
        redactor = Redactor([request.run_token])
        output = sandbox.output
        async with Relay(sandbox.listener, upstream):
            reporting = asyncio.create_task(sandbox.turn(message))
            ended = asyncio.create_task(sandbox.ended())
            flooded = asyncio.create_task(output.too_much.wait())
            watched = asyncio.create_task(exceeded(sandbox.root_pid, self._limits))
            tasks = (reporting, ended, flooded, watched)
            try:
                done, _ = await asyncio.wait(
                    tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                if reporting not in done and ended in done:
                    # What it said before it ended is still on the line.
                    await asyncio.wait({reporting}, timeout=_LAST_WORDS_S)
                if reporting.done():
                    return await self._reported(reporting.result(), sandbox, ended, redactor)
                if watched in done:
                    raise outcomes.exceeded_limit(watched.result(), output.kept, redactor)
                if flooded in done:
                    raise outcomes.printed_too_much()
                if ended in done:
                    raise outcomes.exited(ended.result(), output.kept, redactor)
                raise outcomes.timed_out(timeout_s, output.kept, redactor)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _reported(
        self,
        report: Report | None,
        sandbox: Sandbox,
        ended: asyncio.Task[int],
        redactor: Redactor,
    ) -> bytes:
        if report is not None and report.outcome == "answered":
            return report.answer
        if report is not None:
            await sandbox.output_read()
            raise outcomes.reported(report, sandbox.output.kept, redactor)
        # The exit status is on its way.
        await asyncio.wait({ended}, timeout=_LAST_WORDS_S)
        status = ended.result() if ended.done() else None
        raise outcomes.exited(status, sandbox.output.kept, redactor)


def _code(agent: AgentRegistration) -> CodeSource:
    if agent.code is None:
        raise LookupError(f"agent {agent.agent_id} is of kind code and was registered without any")
    return agent.code


def _message(code: CodeSource, request: TurnRequest, proxy_path: str) -> Mapping[str, Any]:
    """The turn as the driver takes it; `task_input` is what the function is called with."""
    session = request.body.get("session")
    task_input = {**request.body["input"], **({} if session is None else {"session": session})}
    return {
        "entrypoint": code.entrypoint,
        "task_input": task_input,
        "proxy_path": proxy_path,
        "run_token": request.run_token,
        "jti": request.jti,
        "run_id": str(request.run_id),
        "task_id": str(request.task_id),
        "traceparent": request.traceparent,
    }


def _check_entrypoint(root: Path, entrypoint: str) -> None:
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.py")}
    check_entrypoint(files, entrypoint)
