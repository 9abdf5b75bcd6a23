"""Time, as something that is passed in."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the time is. Wall time is for records, monotonic time for deadlines and durations."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def iso(ms: int) -> str:
    """A time in milliseconds, as people read it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
