"""Trying again, within a deadline, what may go away by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from services.runtime.store.interface import StoreUnavailable

T = TypeVar("T")

#: ClickHouse's error codes that speak of the moment and not of the request: timeouts, too many
#: queries or parts, memory, disk space, a read-only or restarting server.
RETRYABLE_CODES = frozenset({159, 201, 202, 203, 209, 210, 236, 241, 242, 243, 252, 319})


@dataclass(frozen=True)
class Retrying:
    """How long to try and with which clock. Waits double from 50 ms to 2 s."""

    deadline_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def call(self, attempt: Callable[[float], T]) -> T:
        """Calls ``attempt`` with the seconds it may still take, until it returns, raises anything
        but a ``StoreUnavailable`` that is safe to repeat, or the deadline leaves no room."""
        start = self.clock()
        wait, tries = 0.05, 0
        while True:
            tries += 1
            left = self.deadline_s - (self.clock() - start)
            try:
                return attempt(max(left, 0.05))
            except StoreUnavailable as error:
                spent = self.clock() - start
                if error.maybe_applied:
                    raise
                if spent + wait >= self.deadline_s:
                    raise StoreUnavailable(
                        f"{error} (gave up after {tries} attempts in {spent:.1f} s)"
                    ) from error
            self.sleep(wait)
            wait = min(wait * 2, 2.0)
