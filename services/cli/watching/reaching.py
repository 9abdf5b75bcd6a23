"""Whether the broker is there. Its clients wait for it in silence; who watches wants to know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from services.cli.watching.telling import duration
from services.runtime.clock import Clock

_PATIENCE_S = 2.0
_EVERY_S = 2.0
_LONGEST_PAUSE_S = 5.0


@contextmanager
def told_in_words() -> Iterator[None]:
    """Keep what the broker's clients log of its absence off the terminal: `Broker` tells it."""
    nowhere = logging.NullHandler()
    loggers = [logging.getLogger(name) for name in ("kafka", "services.runtime.bus")]
    for logger in loggers:
        logger.addHandler(nowhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(nowhere)


class Broker:
    """Asks for a connection to one of the bootstrap servers, less often the longer none comes."""

    def __init__(self, bootstrap: str, clock: Clock) -> None:
        self._servers = [_address(part) for part in bootstrap.split(",") if part.strip()]
        self._bootstrap = bootstrap
        self._clock = clock
        self._lost_at: float | None = None
        self.pause_s = _EVERY_S

    @property
    def lost_s(self) -> float:
        """Seconds since it was found not to answer; 0 while it does."""
        return 0.0 if self._lost_at is None else self._clock.monotonic() - self._lost_at

    async def ask(self) -> str:
        """What is wrong with it; empty when it answers. Bounded in time."""
        for host, port in self._servers:
            if await _answers(host, port):
                self._lost_at, self.pause_s = None, _EVERY_S
                return ""
        if self._lost_at is None:
            self._lost_at = self._clock.monotonic()
        else:
            self.pause_s = min(self.pause_s * 2, _LONGEST_PAUSE_S)
        return self.complaint

    @property
    def complaint(self) -> str:
        """What to say while it is away."""
        if self._lost_at is None:
            return ""
        if self.lost_s < 1:
            return f"the broker at {self._bootstrap} does not answer"
        return f"the broker at {self._bootstrap} has not answered for {duration(self.lost_s)}"


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return True


def _address(server: str) -> tuple[str, int]:
    host, _, port = server.strip().rpartition(":")
    return host.strip("[]"), int(port) if port.isdigit() else 0
