"""A command on a terminal of its own: what it writes there, and how it leaves the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.running_stack import wait_until

_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>78]")
_HOME = "\x1b[H"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"
_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"


class Terminal:
    """A command that runs on a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self._leader = leader
        self._written = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):  # the last one on the terminal has gone
            while data := os.read(self._leader, 65_536):
                self._written += data

    @property
    def raw(self) -> str:
        """Everything that was written, with its codes."""
        return self._written.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """Everything that was written, without its codes."""
        return _CODES.sub("", self.raw)

    @property
    def picture(self) -> str:
        """What a command that draws on the whole screen has drawn last."""
        return _CODES.sub("", self.raw.rpartition(_HOME)[2])

    @property
    def is_restored(self) -> bool:
        """Whether the cursor is seen, and the screen is the one from before."""
        raw = self.raw
        return raw.rfind(_SHOW) >= raw.rfind(_HIDE) and (
            raw.rfind(_OWN_SCREEN) >= raw.rfind(_OTHER_SCREEN)
        )

    def wait_for(self, text: str, timeout_s: float = 30, *, drawn: bool = False) -> None:
        """Wait until it is written; with `drawn`, until it is part of the last picture."""
        wait_until(
            lambda: text in (self.picture if drawn else self.text), timeout_s, text,
            lambda: self.text[-3_000:],
        )  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, size)

    def interrupt(self) -> int:
        """Ctrl-C, as the terminal sends it; the exit code."""
        os.write(self._leader, b"\x03")
        return self.end()

    def end(self, timeout_s: float = 10) -> int:
        """Wait for the command's end; its exit code."""
        code = self.process.wait(timeout_s)
        self._reader.join(5)
        return code


@contextmanager
def terminal(
    command: Sequence[str], environ: Mapping[str, str], folder: Path,
    columns: int = 100, lines: int = 40, term: str = "xterm-256color", no_color: str = "",
) -> Iterator[Terminal]:  # fmt: skip
    """Run it on a new terminal; it is killed if it still runs at the end."""
    leader, follower = pty.openpty()
    known = {k: v for k, v in environ.items() if k not in ("COLUMNS", "LINES")}
    known |= {"TERM": term, "NO_COLOR": no_color}  # empty, it is as though it were not there
    process = subprocess.Popen(
        command, cwd=folder, env=known, start_new_session=True,
        stdin=follower, stdout=follower, stderr=follower,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    opened = Terminal(process, leader)
    opened.resize(columns, lines)
    os.close(follower)
    try:
        yield opened
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        os.close(leader)
