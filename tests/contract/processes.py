"""Store processes that tests start, kill and start again."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A child with its output in a file; ``start`` waits until ``ready`` says so."""

    def __init__(
        self, command: Sequence[str], log: Path, ready: Callable[[], bool], cwd: Path | None = None
    ) -> None:
        self._command, self._log, self._ready, self._cwd = command, log, ready, cwd
        self.child: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 30) -> None:
        with self._log.open("ab") as log:
            self.child = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._cwd)
        end = time.monotonic() + timeout_s
        while not self._ready():
            if self.child.poll() is not None or time.monotonic() > end:
                self.kill()
                raise AssertionError(f"{self._command[0]} did not start: {self._log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()

    def terminate(self, timeout_s: float = 30) -> int:
        assert self.child is not None
        self.child.terminate()
        return self.child.wait(timeout_s)
