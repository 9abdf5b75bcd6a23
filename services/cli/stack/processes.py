"""Children of the stack: each with a log file of its own, none outliving whoever started it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from services.cli.errors import CliError
from services.cli.escaping import printable

_PR_SET_PDEATHSIG = 1
_MAX_LOG_BYTES = 10 * 1024 * 1024
_POLL_S = 0.05


class Child:
    """One process. `start` and `kill` may be called again after it has ended."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_file: Path,
        environ: Mapping[str, str],
        listening: socket.socket | None = None,
    ) -> None:
        """`listening`: what it inherits, as does whatever is started in its place; connections
        made meanwhile wait there. It stays the caller's to close."""
        self.name = name
        self.log_file = log_file
        self._command = list(command)
        self._environ = dict(environ)
        self._listening = listening
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it. On Linux the kernel kills it when the calling *thread* ends, so call this from
        one that lives as long as the child should.

        Raises:
            CliError: the program is missing, or the log cannot be written.
        """
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        if self.log_file.exists() and self.log_file.stat().st_size > _MAX_LOG_BYTES:
            self.log_file.replace(self.log_file.with_name(self.log_file.name + ".1"))
        try:
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                    pass_fds=() if self._listening is None else (self._listening.fileno(),),
                    start_new_session=True,  # Ctrl-C reaches the supervisor, which stops in order
                    preexec_fn=_die_with(os.getpid()) if sys.platform == "linux" else None,
                )
        except OSError as error:
            raise CliError(f"{self.name} cannot be started: {error}") from None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended; negative for a signal, None while it runs or was never started."""
        return self._process.poll() if self._process else None

    def terminate(self) -> None:
        """Ask it to stop. Does not wait."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and whatever it started, now."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # its group is empty
            return
        finally:
            self._process.wait()

    def tail(self, lines: int = 12) -> str:
        """The end of its log, safe to show."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 16_384))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return "(no log)"
        return "\n".join(printable(line)[:500] for line in text.splitlines()[-lines:])


async def stop_all(children: Sequence[Child], deadline_s: float) -> list[str]:
    """Terminate children together and kill those that still run at the deadline.

    Returns the names of the killed. Cancelling it kills the rest at once.
    """
    for child in children:
        child.terminate()
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + deadline_s
    try:
        while loop.time() < give_up_at:
            if not any(child.pid for child in children):
                break
            await asyncio.sleep(_POLL_S)
    finally:
        late = [child.name for child in children if child.pid]
        for child in children:
            child.kill()
    return late


def _die_with(parent: int) -> Callable[[], None]:
    # Looked up before the fork: afterwards only one thread exists and locks may be held for ever.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return ask
