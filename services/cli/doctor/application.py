"""An agent's application in a process of its own: imported, served, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.cli.escaping import printable

_PROGRAM = Path(__file__).with_name("host.py")
_TAIL_BYTES = 16 * 1024
_MAX_REPORT_BYTES = 64 * 1024
_LOOK_EVERY_S = 0.02
_LAST_WORDS_S = 0.3
_STOP_S = 2.0


class Application:
    """The process of `host.py`. `start` it, then ask for its reports; `stop` it in any case."""

    def __init__(
        self, target: str, *, python: str = sys.executable, cwd: Path, deadline_s: float
    ) -> None:
        """`deadline_s`: after which the process tells where its import hangs."""
        self._target, self._python, self._cwd = target, python, cwd
        self._deadline_s = deadline_s
        self._process: subprocess.Popen[bytes] | None = None
        self._reports: deque[dict[str, Any]] = deque()
        self._output = bytearray()
        self._lifeline = -1

    def start(self) -> None:
        """Raises OSError: there is no such interpreter."""
        report, report_end = os.pipe()
        output, output_end = os.pipe()
        lifeline_end, self._lifeline = os.pipe()
        arguments = [self._target, str(report_end), str(lifeline_end), str(self._deadline_s)]
        try:
            self._process = subprocess.Popen(
                [self._python, "-c", _PROGRAM.read_text(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output_end,
                stderr=output_end,
                pass_fds=(report_end, lifeline_end),
                cwd=self._cwd,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        finally:
            for end in (report_end, output_end, lifeline_end):
                os.close(end)
            # Without a process they are at their end at once.
            _read(output, self._keep)
            _read(report, _lines_to(self._reports.append))

    async def report(self, timeout_s: float) -> dict[str, Any]:
        """The next report of the process.

        Where none comes, one in its name: `ended` with the exit code, or `silent`.
        """
        assert self._process is not None
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        while not self._reports:
            code = self._process.poll()
            if code is not None:
                await asyncio.sleep(_LAST_WORDS_S)
                return (
                    self._reports.popleft() if self._reports else {"stage": "ended", "code": code}
                )
            if loop.time() > give_up_at:
                return {"stage": "silent"}
            await asyncio.sleep(_LOOK_EVERY_S)
        return self._reports.popleft()

    def output(self, lines: int = 8) -> tuple[str, ...]:
        """The end of what it has printed, safe to show."""
        text = bytes(self._output).decode("utf-8", "replace")
        kept = [line for line in text.splitlines() if line.strip()][-lines:]
        return tuple(printable(line)[:300] for line in kept)

    def stop(self) -> None:
        """End it and all that it started in its process group. Blocks for two seconds at most."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _keep(self, data: bytes) -> None:
        self._output += data
        del self._output[:-_TAIL_BYTES]


def _read(descriptor: int, take: Callable[[bytes], None]) -> None:
    """Hand on what comes, in a thread: somebody may hold the other end open for ever."""

    def loop() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(descriptor, 65_536):
                take(data)
        os.close(descriptor)

    threading.Thread(target=loop, name="application output", daemon=True).start()


def _lines_to(take: Callable[[dict[str, Any]], None]) -> Callable[[bytes], None]:
    """Bytes as they come, to JSON objects, a line each. What is none is passed over."""
    pending = bytearray()

    def feed(data: bytes) -> None:
        pending.extend(data)
        while (at := pending.find(b"\n")) >= 0:
            line = bytes(pending[:at])
            del pending[: at + 1]
            with contextlib.suppress(ValueError):
                report = json.loads(line)
                if isinstance(report, dict):
                    take(report)
        del pending[:-_MAX_REPORT_BYTES]

    return feed
