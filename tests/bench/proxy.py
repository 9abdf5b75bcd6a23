"""What the tool proxy costs: the same call straight to an echo server and through the proxy.

`python -m tests.bench.proxy [--broker embedded|kafka] [--connections 1,32,256]` prints JSON. In
one run: straight to the echo server, and through the proxy answered by a response rule, by a
world, and by that echo server (passthrough); every proxied call is acknowledged by the broker
before it is answered. Broker, echo server, proxy and client are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from schemas.briefs import ToolBrief, ToolSpec
from schemas.codec import Codec
from schemas.faults import ResponseRule
from schemas.topics import DEAD_LETTERS, TRAJECTORIES
from schemas.world_setup import WorldSetup
from services.cli.stack.broker import Broker, EmbeddedBroker, KafkaBroker
from services.runtime.bus import BusSettings, TopicSpec, create_topics, group_owners
from services.runtime.bus.errors import BusError
from services.runtime.bus.producer import BusProducer
from services.runtime.service import Publication, outgoing_record
from tests.bench.world import world
from tests.contract.bus_tools import free_port
from tests.support.tool_proxy import started

ROOT = Path(__file__).parents[2]
SECRET = "a secret of the benchmark"
TOOLS = {"straight": "", "sandbox_rule": "rule", "world": "get_order", "passthrough": "echo"}


@contextmanager
def child(log: Path, *arguments: str, **environ: str) -> Iterator[int]:
    """A Python process; its id."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments], cwd=ROOT, stdout=out, stderr=out,
            env={k: v for k, v in os.environ.items() if not k.startswith("WINDTUNNEL_")} | environ,
        )  # fmt: skip
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def brief(echo: str) -> ToolBrief:
    schema = {"type": "object", "properties": {"order_id": {"type": "string"}}}
    specs = [ToolSpec(name=t.name, input_schema=t.input_schema) for t in world.tools]
    specs.append(ToolSpec(name="rule", input_schema=schema))
    specs.append(ToolSpec(name="echo", input_schema=schema, mode="passthrough", target=echo))
    return ToolBrief(
        world=WorldSetup(name="bench"), tools=tuple(specs), seed=1,
        rules=(ResponseRule(tool="rule", respond={"order_id": "ORD-1"}),),
        calls_per_minute=10_000_000, max_calls=10_000_000,
    )  # fmt: skip


async def begin_sessions(bus: BusSettings, count: int, echo: str) -> None:
    producer = BusProducer(bus, "bench")
    await producer.start()
    events = [started(brief(echo), f"b{number}") for number in range(count)]
    await producer.append(
        [outgoing_record(Codec(), Publication(TRAJECTORIES, e.session_id, e)) for e in events],
        timeout_s=30,
    )
    await producer.stop()


def proxy_url(bus: BusSettings, partitions: int, *, unlike: str = "") -> str:
    """Where the proxy is that owns every partition, once it does; not the one before it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(BusError):  # a broker that has only just started knows no groups yet
            owners = group_owners(bus, "tool_proxy", TRAJECTORIES.full_name)
            urls = {owner.partition("@")[2] for owner in owners.values()}
            if len(owners) == partitions and len(urls) == 1 and unlike not in urls:
                return urls.pop()
        time.sleep(0.2)
    raise SystemExit("the proxy did not take its partitions within 60 s")


def cpu_of(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def measure(pids: dict[str, int], **options: Any) -> dict[str, Any]:
    """One client run: its figures, and CPU seconds of others per 1,000 requests."""
    command = [sys.executable, "-m", "tests.bench.proxy_parts", "client", json.dumps(options)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "measuring\n", "the client failed"
    before = {name: cpu_of(pid) for name, pid in pids.items()}
    line = process.stdout.readline()
    used = {name: cpu_of(pid) - before[name] for name, pid in pids.items()}
    if process.wait(30) != 0:
        raise SystemExit("the client failed")
    found: dict[str, Any] = json.loads(line)
    per = {name: round(value / found["requests"] * 1000, 3) for name, value in used.items()}
    return found | {"cpu_s_per_1000": per}


def conduct(options: argparse.Namespace, bus: BusSettings, broker: Broker, log: Path) -> Any:
    partitions = 4
    create_topics(bus, [TopicSpec(TRAJECTORIES.full_name, partitions, {})])
    create_topics(bus, [TopicSpec(DEAD_LETTERS.full_name, 1, {})])
    (broker_pid,) = [p.pid for p in psutil.Process().children()]
    echo_port = free_port()
    echo = f"http://127.0.0.1:{echo_port}/"
    connections = [int(part) for part in options.connections.split(",")]
    asyncio.run(begin_sessions(bus, max(connections), echo))
    environ = {
        "WINDTUNNEL_BOOTSTRAP": bus.bootstrap,
        "WINDTUNNEL_BUS_OPTIONS": ",".join(f"{k}={v}" for k, v in broker.bus_options.items()),
        "WINDTUNNEL_TOKEN_SECRET": SECRET,
        "WINDTUNNEL_WORLDS": "tests.bench.world:world",
        "WINDTUNNEL_PASSTHROUGH_ALLOW": f"127.0.0.1:{echo_port}",
    }
    common = {"echo": echo, "secret": SECRET, "seconds": options.seconds, "warm_up_s": 1.0}
    figures: dict[str, Any] = {}
    breakdown: dict[str, Any] = {}
    with child(log, "tests.bench.proxy_parts", "echo", str(echo_port)) as echo_pid:
        with child(log, "services.tool_proxy", **environ) as pid:
            pids = {"proxy": pid, "broker": broker_pid, "echo": echo_pid}
            url = proxy_url(bus, partitions)
            for count in connections:
                figures[str(count)] = {
                    name: measure(pids, proxy=url, tool=tool, connections=count, **common)
                    for name, tool in TOOLS.items()
                }
                print(count, json.dumps(figures[str(count)]), file=sys.stderr)
                straight = figures[str(count)]["straight"]["p50_ms"]
                for name in list(TOOLS)[1:]:
                    one = figures[str(count)][name]
                    one["added_p50_ms"] = round(one["p50_ms"] - straight, 3)
        # Another member of the group: a Kafka broker goes on naming the first one's address for it.
        environ["WINDTUNNEL_REPLICA"] = "1"
        with child(log, "tests.bench.proxy_parts", "service", **environ) as pid:
            pids["proxy"] = pid
            url = proxy_url(bus, partitions, unlike=url)
            for count in connections:
                breakdown[str(count)] = {}
                for name, tool in list(TOOLS.items())[1:]:
                    httpx.get(f"{url}/timings")
                    measure(pids, proxy=url, tool=tool, connections=count, **common)
                    breakdown[str(count)][name] = httpx.get(f"{url}/timings").json()
    return {
        "broker": options.broker, "seconds": options.seconds, "connections": figures,
        "breakdown_ms_a_call": breakdown,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--broker", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--connections", default="1,32,256")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kafka-jars", type=Path, default=ROOT / ".cache" / "kafka-jars")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, port = Path(folder) / "broker", free_port()
        broker: EmbeddedBroker | KafkaBroker = (
            EmbeddedBroker(data, port)
            if options.broker == "embedded"
            else KafkaBroker(options.kafka_jars, data, port)
        )
        bus = BusSettings(bootstrap=broker.start(), **broker.bus_options)
        log = Path(folder) / "log.txt"
        try:
            result = conduct(options, bus, broker, log)
        except BaseException:
            print(log.read_text()[-3000:] if log.exists() else "", file=sys.stderr)
            raise
        finally:
            broker.stop()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
