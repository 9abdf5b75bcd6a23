"""How much of a call's time was the proxy's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.runtime.clock import Clock


class OwnTime:
    """One call's stopwatch, which runs from the start and is stopped while somebody else works."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._elsewhere_s = 0.0

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Around waiting for a real tool, or for a model that plays one."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._elsewhere_s += self._clock.monotonic() - began

    def elapsed_ms(self) -> int:
        """Since the call came, wherever it was spent."""
        return round((self._clock.monotonic() - self._started) * 1000)

    def own_s(self) -> float:
        """Since the call came, spent here."""
        return self._clock.monotonic() - self._started - self._elsewhere_s
