"""Code agents in real sandboxes: a source, a store that has it, and turns put to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import structlog

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration, SourcePart
from schemas.topics import SOURCES
from services.dispatcher.code.agent import CodeAgent
from services.dispatcher.code.limits import CodeLimits
from services.runtime.agents.client import TurnRequest
from services.runtime.bus.records import Incoming, Partition
from services.runtime.service import Publication
from services.runtime.sources.archive import Archive, pack
from services.runtime.sources.cache import SourceCache
from services.runtime.sources.publishing import publish_source
from services.runtime.sources.store import Place, SourceStore
from tests.lanes import require_lane
from tests.support.services import OfflineService

TOKEN = "gAAAAAB-a-token-of-the-tests-that-nobody-may-see"
NOWHERE = "http://127.0.0.1:9/api/odyssey-proxy/runs/jti-s1"


@cache
def _why_not() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = ["bwrap", "--unshare-all", "--disable-userns", "--unshare-user", "--ro-bind", "/",
               "/", "--", "true"]  # fmt: skip
    tried = subprocess.run(
        [*(user if os.geteuid() == 0 else ()), *command], capture_output=True, text=True
    )
    return tried.stderr.strip() if tried.returncode else ""


def require_bubblewrap() -> None:
    """The lane of tests that need a real sandbox."""
    require_lane("bubblewrap", not _why_not(), _why_not())


class Topic:
    """The sources topic, in memory: what is published can be read at its offset."""

    def __init__(self, service: OfflineService) -> None:
        self.service = service
        self.records: list[Incoming] = []

    async def publish(self, *publications: Publication) -> None:
        for publication in publications:
            self.append(publication.key, self.service.codec.encode(publication.record))

    def append(self, key: str, value: bytes) -> Incoming:
        offset = len(self.records)
        record = Incoming(SOURCES.full_name, 0, offset, key, value, {}, 0)
        self.records.append(record)
        return record

    def part(self, part: SourcePart, key: str | None = None) -> Incoming:
        name = f"{part.source_hash}/{part.part}" if key is None else key
        return self.append(name, self.service.codec.encode(part))

    def fetch(self, places: Any) -> list[Incoming]:
        wanted: list[Place] = list(places)
        assert all(partition == Partition(SOURCES.full_name, 0) for partition, _ in wanted)
        return [self.records[offset] for _, offset in wanted]


class Desk:
    """A dispatcher's side of code agents, without the rest of it."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.service = OfflineService()
        self.topic = Topic(self.service)
        self.cache = SourceCache(folder, limits.pop("cache_bytes", 64 << 20))
        self.store = SourceStore(self.service, self.cache, fetch=self.topic.fetch)
        self.limits = CodeLimits(**{"pool": 0, "memory_mb": 512, **limits})
        self.agents = CodeAgent(self.store, self.limits, structlog.get_logger())

    async def publish(self, source: str | Mapping[str, str | bytes]) -> Archive:
        named = {"main.py": source} if isinstance(source, str) else source
        files = {n: c.encode() if isinstance(c, str) else c for n, c in named.items()}
        archive = pack(files, "paste")
        first = len(self.topic.records)
        await publish_source(self.topic.publish, archive)
        for record in self.topic.records[first:]:
            self.store.apply(record)
        return archive

    async def register(
        self,
        source: str | Mapping[str, str | bytes],
        *,
        entrypoint: str = "main:run",
        timeout_s: int = 30,
        **fields: Any,
    ) -> AgentRegistration:
        archive = await self.publish(source)
        return AgentRegistration(
            agent_id="a", name="a", kind="code", endpoint="", run_timeout_s=timeout_s,
            code=archive.code(entrypoint), **fields,
        )  # fmt: skip

    async def ask(
        self,
        source: str | Mapping[str, str | bytes],
        text: str = "hello",
        *,
        entrypoint: str = "main:run",
        timeout_s: int = 30,
        **request: Any,
    ) -> ParsedResponse:
        """Publish, register, and put one turn."""
        agent = await self.register(source, entrypoint=entrypoint, timeout_s=timeout_s)
        return await self.agents.turn(agent, make_request(text, **request))

    async def close(self) -> None:
        await self.agents.close()
        await self.store.close()


def make_request(
    text: str = "hello",
    *,
    proxy_url: str = NOWHERE,
    run_token: str = TOKEN,
    state: Mapping[str, Any] | None = None,
    **body: Any,
) -> TurnRequest:
    return TurnRequest(
        body={
            "task_id": 42, "run_id": 17, "agent_id": 8,
            "input": {"task_id": 42, "user_instruction": text, "input": dict(state or {})},
            "odyssey_proxy_url": proxy_url, "run_token_jti": "jti-s1", **body,
        },
        run_token=run_token, proxy_url=proxy_url, run_id=17, task_id=42, jti="jti-s1",
        idempotency_key="s1-1",
    )  # fmt: skip


@asynccontextmanager
async def desk(folder: Path, **limits: Any) -> AsyncIterator[Desk]:
    """A desk, and the proof that nothing of its sandboxes is left afterwards."""
    before, orphans = set(sandbox_processes()), _orphans()
    made = Desk(folder, **limits)
    try:
        yield made
    finally:
        await made.close()
    assert set(sandbox_processes()) <= before
    # A process that ended by itself is reaped by init, when it comes to it.
    await until(lambda: _orphans() <= orphans)
    assert not made.cache.root.exists()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def until(condition: Callable[[], bool]) -> None:
    """Returns when it is so."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.01)


def sandbox_processes() -> list[int]:
    """The processes that belong to sandboxes which this process has started."""
    return [child.pid for child in psutil.Process().children(recursive=True)]


def _orphans() -> set[int]:
    """Processes of sandboxes that were left to init, zombies included."""
    found = psutil.process_iter(["pid", "ppid", "name"])
    return {p.info["pid"] for p in found if p.info["ppid"] == 1 and p.info["name"] == "bwrap"}
