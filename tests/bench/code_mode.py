"""What a turn of a code agent costs: `python -m tests.bench.code_mode [--turns N]` prints JSON.

Cold turns start their sandbox, warm ones find it ready; both in one run over the same source, one
after the other and taken in turns, so that what else the machine does weighs on both alike. `call`
is a warm turn with one tool call through the relay to an HTTP server that answers at once, next to
the same request made by this process. `under_load` has several turns at a time for as long as it
takes, with the pool refilled meanwhile. Times in milliseconds; CPU is this process's own, which
has the dispatcher's part: what runs in a sandbox dies with it, and is accounted to nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.code_agents import Desk, desk, make_request, until
from tests.support.http_server import serve

ANSWERS = """
def run(task_input, *, proxy_url, run_token):
    return {"final_response": "done"}
"""
CALLS = """
import json, time, urllib.request

def run(task_input, *, proxy_url, run_token):
    taken = []
    for _ in range(20):
        started = time.perf_counter()
        request = urllib.request.Request(proxy_url + "/tools/a", b"{}", headers={
            "Authorization": "Bearer " + run_token, "Content-Type": "application/json"})
        urllib.request.urlopen(request).read()
        taken.append(time.perf_counter() - started)
    return {"final_response": json.dumps(taken)}
"""


def spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(value * 1000 for value in seconds)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p90": round(ordered[int(len(ordered) * 0.9)], 2),
        "max": round(ordered[-1], 2),
        "n": len(ordered),
    }


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def timed(one: Desk, agent: Any, **request: Any) -> tuple[float, str]:
    started = time.perf_counter()
    answer = await one.agents.turn(agent, make_request(**request))
    return time.perf_counter() - started, answer.final_response


async def one_at_a_time(folder: Path, turns: int) -> dict[str, Any]:
    cold, warm = [], []
    async with desk(folder / "cold", pool=0) as none, desk(folder / "warm", pool=2) as some:
        without, ready = await none.register(ANSWERS), await some.register(ANSWERS)
        await timed(none, without)
        await timed(some, ready)
        pool = some.agents._pool()
        for _ in range(turns):
            cold.append((await timed(none, without))[0])
            await until(lambda: pool.ready == 2)
            warm.append((await timed(some, ready))[0])
    return {"cold": spread(cold), "warm": spread(warm)}


async def calls(folder: Path, turns: int, url: str) -> dict[str, Any]:
    proxy = f"{url}/api/odyssey-proxy/runs/j"
    inside: list[float] = []

    def direct() -> list[float]:
        taken = []
        for _ in range(20):
            started = time.perf_counter()
            urllib.request.urlopen(urllib.request.Request(f"{proxy}/tools/a", b"{}")).read()
            taken.append(time.perf_counter() - started)
        return taken

    outside: list[float] = []
    async with desk(folder, pool=2) as one:
        agent = await one.register(CALLS)
        for _ in range(max(1, turns // 5)):
            inside += json.loads((await timed(one, agent, proxy_url=proxy))[1])
            outside += await asyncio.to_thread(direct)
    return {"through_relay": spread(inside), "direct": spread(outside)}


async def under_load(folder: Path, turns: int, at_once: int, pool: int) -> dict[str, Any]:
    async with desk(folder, pool=pool, concurrency=at_once) as one:
        agent = await one.register(ANSWERS)
        await timed(one, agent)
        before, started = cpu_s(), time.perf_counter()
        taken = await asyncio.gather(*(timed(one, agent) for _ in range(turns)))
        took, used = time.perf_counter() - started, cpu_s() - before
    return {
        "turns_per_s": round(turns / took, 1),
        "dispatcher_cpu_ms_per_turn": round(1000 * used / turns, 1),
        "waiting_included": spread([seconds for seconds, _ in taken]),
    }


async def measure(folder: Path, turns: int, url: str) -> dict[str, Any]:
    return {
        "one_at_a_time": await one_at_a_time(folder, turns),
        "call": await calls(folder / "calls", turns, url),
        "under_load": {
            f"{at_once}_at_once_pool_{pool}": await under_load(
                folder / f"{at_once}-{pool}", turns * 2, at_once, pool
            )
            for at_once, pool in ((4, 0), (4, 8))
        },
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    options = parser.parse_args()

    async def echo(request: Request) -> Response:
        await request.body()
        return Response(b'{"response": {}}', media_type="application/json")

    app = Starlette(routes=[Route("/{path:path}", echo, methods=["POST"])])
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(app) as url,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        measured = runner.run(measure(Path(folder), options.turns, url))
    json.dump(measured, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
