"""The tool proxy in a process of its own, for the fuzzer: its real HTTP server, its log in a file.

`python -m tests.fuzz.server LOGFILE` prints its port, then obeys lines on standard input: `start
SESSION CALLS_PER_MINUTE MAX_CALLS`, `end SESSION`, `log ok|flaky`; `sync` is answered by a line of
JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import uvloop

from schemas.codec import Codec
from schemas.trajectory import TrajectoryEvent
from services.runtime.clock import SystemClock
from services.runtime.http import HttpServer, application
from services.runtime.logs import configure
from services.runtime.metrics import Metrics
from services.runtime.tokens import Tokens
from services.tool_proxy.app import ProxyApp
from services.tool_proxy.live import LogUnavailable
from services.tool_proxy.proxy import ProxyLimits, ToolProxy
from services.tool_proxy.session import ProxyCore, SessionState
from tests.support.tool_proxy import SECRET, ended, make_brief, make_world, started

BODY_TIMEOUT_S = 1.0
_LENGTH = struct.Struct(">I")


class FileLog:
    """Sessions, and what was recorded of them, in a file; only live sessions are held."""

    def __init__(self, core: ProxyCore, path: Path) -> None:
        self.core = core
        self.flaky = False
        self._codec = Codec()
        self._file = path.open("wb")
        self._table: dict[str, SessionState] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._seen: dict[str, set[str]] = {}
        self._draw = random.Random(1)

    def put(self, event: TrajectoryEvent) -> None:
        data = self._codec.encode(event)
        self._file.write(_LENGTH.pack(len(data)) + data)
        session_id = event.session_id
        if event.session_started is not None:
            self._table[session_id] = self.core.start(event)
            self._seen[session_id] = set()
            return
        state = self._table.get(session_id)
        if state is None or event.event_id in self._seen[session_id]:
            return
        self._seen[session_id].add(event.event_id)
        self.core.apply(state, event)
        if self.core.finished(state):
            del self._table[session_id], self._seen[session_id]
            self._finished[session_id] = None
            while len(self._finished) > 1000:
                self._finished.popitem(last=False)

    async def record(self, event: TrajectoryEvent) -> None:
        await asyncio.sleep(0)
        fate = self._draw.random() if self.flaky else 1.0
        if fate >= 0.01:
            self.put(event)
        if fate < 0.02:
            raise LogUnavailable("the broker does not answer")

    def flush(self) -> None:
        self._file.flush()

    # The `Sessions` protocol.

    def get(self, session_id: str) -> SessionState | None:
        return self._table.get(session_id)

    async def wait_for(self, session_id: str, timeout_s: float) -> SessionState | None:
        await asyncio.sleep(timeout_s)
        return self.get(session_id)

    def has_finished(self, session_id: str) -> bool:
        return session_id in self._finished

    def owns(self, session_id: str) -> bool:
        return True


async def serve(path: Path) -> None:
    """Serve until standard input ends."""
    clock, metrics, logger = SystemClock(), Metrics(), configure("fuzzed", "info")
    log = FileLog(ProxyCore({"desk": make_world()}), path)
    proxy = ToolProxy(
        core=log.core, sessions=log, record=log.record, clock=clock, metrics=metrics, log=logger,
        executor=ThreadPoolExecutor(2), limits=ProxyLimits(start_wait_s=0.05),
    )  # fmt: skip
    app = ProxyApp(
        proxy, Tokens(SECRET), clock, metrics, logger, body_timeout_s=BODY_TIMEOUT_S,
        max_requests=256,
    )  # fmt: skip
    server = HttpServer(application(metrics, list, app.routes()), "127.0.0.1", 0)
    print(await server.start(), flush=True)
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    me = psutil.Process()
    while line := (await lines.readline()).decode().split():
        if line[0] == "start":
            brief = make_brief(calls_per_minute=int(line[2]), max_calls=int(line[3]))
            log.put(started(brief, line[1]))
        elif line[0] == "end":
            log.put(ended(line[1]))
        elif line[0] == "log":
            log.flaky = line[1] == "flaky"
        else:
            log.flush()
            tasks = len(asyncio.all_tasks())
            found = {"rss": me.memory_info().rss, "tasks": tasks, "files": me.num_fds()}
            print(json.dumps(found), flush=True)
    log.flush()
    await server.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Path(sys.argv[1])))
