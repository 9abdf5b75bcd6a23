"""Ports for what a stack starts, below the range that outgoing connections are given theirs from:
a port found free there cannot be taken by a neighbour's connection before its owner binds it.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

from services.cli.errors import CliError

_FIRST, _LAST = 20_000, 31_999


class Ports:
    """Hands out ports, each once.

    With `base` they are consecutive from there and must be free. Without, they are free ones from
    a place that depends on the stack's directory, so that a stack tends to get the same again and
    two stacks tend not to meet.
    """

    def __init__(self, directory: Path, base: int | None = None, host: str = "127.0.0.1") -> None:
        self._base, self._host = base, host
        self._candidates = self._from_directory(directory) if base is None else self._from(base)

    def take(self, purpose: str, count: int = 1) -> int:
        """The first of `count` consecutive ports.

        Raises:
            CliError: one of them is in use, or none is left.
        """
        while True:
            first = next(self._candidates, None)
            if first is None:
                raise CliError(
                    f"no free port for {purpose}: stop what listens, or give --port-base"
                )
            wanted = [first, *(next(self._candidates, _LAST + 1) for _ in range(count - 1))]
            busy = next((port for port in wanted if not self._is_free(port)), None)
            if busy is None and wanted[-1] - first == count - 1:
                return first
            if self._base is not None:
                raise CliError(
                    f"port {busy or first} for {purpose} is in use: stop what listens there, or "
                    f"choose another --port-base"
                )

    @staticmethod
    def _from(base: int) -> Iterator[int]:
        yield from range(base, 65_536)

    @staticmethod
    def _from_directory(directory: Path) -> Iterator[int]:
        digest = hashlib.blake2b(str(directory.resolve()).encode(), digest_size=4).digest()
        span = _LAST - _FIRST + 1
        start = int.from_bytes(digest, "big") % span
        yield from (_FIRST + (start + step) % span for step in range(span))

    def _is_free(self, port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self._host, port))
            except (OSError, OverflowError):
                return False
        return True
