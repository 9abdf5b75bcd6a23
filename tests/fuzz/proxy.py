"""Fuzzes the tool proxy: `python -m tests.fuzz.proxy --requests 100000`.

The proxy runs in a process of its own. It must answer every request that can be answered, by its
table and within its time; go on serving; keep its memory; and record nothing but events which
decode, fold, and hold no token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from schemas.codec import Codec
from schemas.trajectory import TrajectoryEvent
from services.runtime.tokens import Claims, Tokens
from services.tool_proxy.session import ProxyCore, SessionState
from tests.fuzz.cases import Case, Generator, Who
from tests.fuzz.client import Client
from tests.support.tool_proxy import SECRET, make_world

ROOT = Path(__file__).parents[2]
BATCH = 500
AT_ONCE = 24
MAX_GROWTH = 64 * 1024 * 1024
"""Bytes by which the process may grow once it is warm."""

_FATAL = {"internal_error"}
"""In the table, but it means that something happened which nobody had thought of."""


@dataclass(slots=True)
class Report:
    """What a run found."""

    requests: int = 0
    seconds: float = 0.0
    rss: list[int] = field(default_factory=list)
    counts: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    events: int = 0
    wrong: list[str] = field(default_factory=list)
    tokens: dict[str, list[bytes]] = field(default_factory=dict)
    """By batch, those that were given out."""

    @property
    def growth(self) -> int:
        """Bytes by which the process has grown since the first fifth of the run."""
        warm = max(1, len(self.rss) // 5)
        return max(self.rss[warm:], default=0) - max(self.rss[:warm], default=0)


class Fuzzed:
    """The proxy's process."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        self.errors = directory / "stderr"
        self._stderr = self.errors.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.server", str(self.log)], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def tell(self, line: str) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def sync(self) -> dict[str, int]:
        """Wait until orders are carried out; how the process is."""
        assert self._process.stdout is not None
        self.tell("sync")
        found: dict[str, int] = json.loads(self._process.stdout.readline())
        return found

    def stop(self) -> int:
        """End it; the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._stderr.close()


def mint(tokens: Tokens, session_id: str, *, age_ms: int = 0) -> Who:
    """A token that expires in an hour, less its age."""
    now = time.time_ns() // 1_000_000 - age_ms
    jti = f"jti-{session_id}"
    claims = Claims(session_id, "run", jti, 1, 1, "d1", now, now + 3_600_000)
    return Who(session_id, jti, tokens.mint(claims))


def strangers(tokens: Tokens, draw: random.Random, ended: Who) -> list[str]:
    """Tokens that open nothing."""
    good = mint(tokens, "unknown-here").token
    at = draw.randrange(1, len(good) - 2)
    return [
        "", "fake-token", ended.token, mint(tokens, "x", age_ms=4_000_000).token, good[:-4],
        good[:at] + ("A" if good[at] != "A" else "B") + good[at + 1 :], good + "=", good.lower(),
        mint(Tokens("another secret altogether"), ended.session_id).token, f"{good}, {good}",
        "eyJhbGciOiJub25lIn0.eyJzZXNzaW9uX2lkIjoiczEifQ.", "\u00e9", good.replace("=", "%3D"),
    ]  # fmt: skip


async def attack(fuzzed: Fuzzed, requests: int, seed: str, report: Report) -> None:
    """Send batch after batch, with a probe after each."""
    tokens = Tokens(SECRET)
    client = Client(fuzzed.port)
    old = mint(tokens, "first")
    fuzzed.tell("start first 60 10")
    number = 0
    while client.requests < requests and not report.wrong:
        draw = random.Random(f"{seed}:{number}")
        sessions = [mint(tokens, f"b{number}-{n}") for n in range(4)]
        report.tokens[f"b{number}"] = [who.token.encode() for who in sessions]
        for who in sessions:
            per_minute = 20 if who is sessions[3] else 1_000_000
            calls = 10 if who is sessions[2] else 500
            fuzzed.tell(f"start {who.session_id} {per_minute} {calls}")
        fuzzed.tell(f"end {old.session_id}")
        fuzzed.tell(f"log {'flaky' if number % 4 == 3 else 'ok'}")
        fuzzed.sync()
        generator = Generator(draw, sessions, strangers(tokens, draw, old))
        cases = [generator.next() for _ in range(min(BATCH, requests - client.requests))]
        await send_all(client, cases, f"seed {seed!r}, batch {number}", report)
        fuzzed.tell("log ok")
        fuzzed.sync()
        await probe(client, sessions[0], report)
        for who in sessions[1:]:
            fuzzed.tell(f"end {who.session_id}")
        old = sessions[0]
        report.rss.append(fuzzed.sync()["rss"])
        number += 1
    report.requests, report.counts = client.requests, client.counts


async def send_all(client: Client, cases: list[Case], where: str, report: Report) -> None:
    """Send cases, some at once; what goes wrong is reported with what it takes to repeat it."""
    numbered = iter(enumerate(cases))

    async def work() -> None:
        for number, case in numbered:
            try:
                await client.send(case)
            except Exception as error:
                sent = repr(case.parts)[:600]
                what = f"{type(error).__name__}: {error}"
                report.wrong.append(f"{where}, case {number} ({case.kind}): {what}\n{sent}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def probe(client: Client, who: Who, report: Report) -> None:
    """Whether the proxy still serves: a trace event, a call, and the contract's own probe."""

    def case(path: bytes, token: bytes, body: bytes, *allowed: int) -> Case:
        head = b"POST /api/odyssey-proxy/%b HTTP/1.1\r\nHost: x\r\n" % path
        head += b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n" % (token, len(body))
        return Case("probe", [head + body], allowed=frozenset(allowed))

    token = who.token.encode()
    probes = [
        case(b"trace", token, b'{"type": "custom", "payload": {"name": "probe"}}', 202, 403),
        case(b"tools/get_order", token, b'{"order_id": "1"}', 200, 403),
        case(b"tools/__reachability_probe__", b"fake-token", b"{}", 401),
    ]
    await send_all(client, probes, "probe", report)


def read_log(path: Path, report: Report) -> None:
    """Decode every record and fold it, as a replica would that takes the sessions over."""
    codec, core = Codec(), ProxyCore({"desk": make_world()})
    states: dict[str, SessionState] = {}
    seen: set[str] = set()
    length = struct.Struct(">I")
    with path.open("rb") as file:
        while head := file.read(length.size):
            data = file.read(length.unpack(head)[0])
            event = codec.decode(TrajectoryEvent, data)
            report.events += 1
            if event.event_id in seen:
                continue  # an event that was not acknowledged is written again
            seen.add(event.event_id)
            given = report.tokens.get(event.session_id.partition("-")[0], ())
            if any(token in data for token in given):
                report.wrong.append(f"{event.event_id} holds a token")
            called = event.tool_called
            failed = called is not None and called.error_code == "world_failed"
            if called is not None and failed and called.tool != "crash":  # made to fail
                report.wrong.append(f"arguments broke {called.tool}: {called.arguments[:300]}")
            if event.session_started is not None:
                states[event.session_id] = core.start(event)
            else:
                core.apply(states[event.session_id], event)


def fuzz(requests: int, seed: str) -> Report:
    """Run it all; the report says what went wrong."""
    report = Report()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        fuzzed = Fuzzed(Path(name))
        begun = time.monotonic()
        try:
            asyncio.run(attack(fuzzed, requests, seed, report))
        finally:
            code = fuzzed.stop()
        report.seconds = time.monotonic() - begun
        said = fuzzed.errors.read_text(errors="replace")
        if code:
            report.wrong.append(f"the process ended with {code}: {said[-2000:]}")
        for canary in ("gAAAAA", SECRET):
            if canary in said:
                report.wrong.append(f"{canary!r} is in the process's log")
        read_log(fuzzed.log, report)
        met = {code for _, _, code in report.counts}
        if met & _FATAL:
            report.wrong.append(f"{met & _FATAL}: {said[-3000:]}")
    if report.growth > MAX_GROWTH:
        report.wrong.append(f"it grew by {report.growth / 1e6:.0f} MB: {report.rss}")
    return report


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    report = fuzz(options.requests, options.seed)
    codes: Counter[tuple[int, str]] = Counter()
    for (_, status, code), count in report.counts.items():
        codes[status, code] += count
    for (status, code), count in sorted(codes.items()):
        print(f"{count:>8}  {status or '-':>3}  {code}")
    print(
        f"{report.requests} requests in {report.seconds:.0f} s, {report.events} events recorded, "
        f"memory {report.rss[0] / 1e6:.0f} MB at first, {report.rss[-1] / 1e6:.0f} MB at the end, "
        f"{report.growth / 1e6:+.1f} MB once warm"
    )
    for wrong in report.wrong:
        print("WRONG", wrong)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
