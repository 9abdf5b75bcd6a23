"""Sends the cases over sockets and checks what comes back."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from typing import Any

from services.tool_proxy.errors import BY_CODE
from tests.fuzz.cases import Case

ANSWER_WITHIN_S = 60.0
"""Far more than any bound of the proxy, and what a busy machine takes: the rest hangs."""
_ENVELOPE = {"tool_name", "response", "source", "latency_ms", "matched_rule_index"}


class Wrong(AssertionError):
    """The proxy did what it must not do."""


class Answers:
    """Splits what a connection delivers into answers."""

    def __init__(self, headless: bool) -> None:
        self._headless = headless
        self._data = b""
        self.found: list[tuple[int, dict[str, str], bytes]] = []

    def feed(self, data: bytes) -> None:
        self._data += data
        while self._one():
            pass

    def _one(self) -> bool:
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            return False
        line, *lines = head.decode("latin-1").split("\r\n")
        version, status, _ = line.split(" ", 2)
        if version != "HTTP/1.1":
            raise Wrong(f"not HTTP: {line!r}")
        headers = {n.strip().lower(): v.strip() for n, _, v in (x.partition(":") for x in lines)}
        if status == "100":
            self._data = rest
            return True
        size = 0 if self._headless else int(headers.get("content-length", "0"))
        if len(rest) < size:
            return False
        self._data = rest[size:]
        self.found.append((int(status), headers, rest[:size]))
        return True


class Client:
    """Counts what it gets, by kind of case, status and code."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections = 0
        self.requests = 0
        self.counts: Counter[tuple[str, int, str]] = Counter()

    async def send(self, case: Case) -> None:
        """Send a case and check the outcome. Raises Wrong."""
        self._connections += 1
        # One address alone would run out of ports, which rest a minute each.
        source = (f"127.0.0.{2 + self._connections % 60}", 0)
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self._port, local_addr=source, limit=4 * 1024 * 1024
        )
        answers = Answers(headless=case.parts[0][:5] == b"HEAD ")  # type: ignore[index]
        try:
            sending = asyncio.create_task(_send(writer, case))
            if case.leaves:
                await sending
                option = struct.pack("ii", 1, 0)  # half of them reset the connection
                if self._connections % 2:
                    writer.get_extra_info("socket").setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, option
                    )
            else:
                await self._read(reader, writer, answers, case)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        finally:
            writer.close()
        self.requests += case.requests
        for status, headers, body in answers.found:
            code = check(status, headers, body)
            self.counts[case.kind, status, code] += 1
            if case.allowed and status not in case.allowed:
                raise Wrong(f"{status} {code}")
        if not answers.found:
            self.counts[case.kind, 0, "connection closed"] += 1

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers,
        case: Case,
    ) -> None:  # fmt: skip
        wanted = max(case.answers, 1)
        patience = ANSWER_WITHIN_S if case.answers else 0.05
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S) as deadline:
                while len(answers.found) < wanted:
                    try:
                        async with asyncio.timeout(patience):
                            data = await reader.read(65536)
                    except TimeoutError:
                        if case.answers or writer.is_closing():
                            raise
                        # What waits for more now learns that there is none.
                        writer.write_eof()
                        patience = ANSWER_WITHIN_S
                        continue
                    if not data:
                        break
                    answers.feed(data)
        except TimeoutError:
            raise Wrong(f"no answer within {ANSWER_WITHIN_S} s ({deadline})") from None
        except OSError:
            pass
        if len(answers.found) < case.answers:
            raise Wrong(f"{len(answers.found)} answers instead of {case.answers}")


async def _send(writer: asyncio.StreamWriter, case: Case) -> None:
    for part in case.parts:
        if isinstance(part, float):
            await asyncio.sleep(part)
        else:
            writer.write(part)
            await writer.drain()


def check(status: int, headers: dict[str, str], body: bytes) -> str:
    """The code of an answer that is as the contract has it. Raises Wrong."""
    media = headers.get("content-type", "")
    if media.startswith("text/plain") and status in (400, 431):
        return "not HTTP"
    if media.startswith("text/plain") and status in (404, 405):
        return "not the proxy's"  # a path that the mutations led elsewhere
    if media != "application/json":
        raise Wrong(f"{status} {media}: {body[:200]!r}")
    if not body:
        return "HEAD"
    value: Any = json.loads(body)
    if status < 400:
        ok = status == 202 and value == {"accepted": True}
        ok = ok or (status == 200 and (set(value) - {"validation"} == _ENVELOPE))
        ok = ok or (status == 200 and "openapi" in value)
        if not ok:
            raise Wrong(f"{status}: {body[:200]!r}")
        return ""
    error = value["error"]
    row = BY_CODE.get(error["code"])
    if row is None or (row.status, row.retryable) != (status, error["retryable"]):
        raise Wrong(f"not in the table: {status} {body[:200]!r}")
    return row.code
