"""How often something happens, over a sliding window of the times in the records."""

from __future__ import annotations

import heapq

WINDOW_MS = 30_000
MOST = 5_000
_SHORTEST_MS = 2_000
"""A rate over less than this says nothing."""
_AHEAD_MS = 5_000
"""So far may the writers' clocks be ahead of ours."""


class Window:
    """Counts what happened in the last `WINDOW_MS`, each thing once, however often it is read.

    Holds at most `MOST` times, the latest; beyond that the window is shorter.
    """

    def __init__(self, most: int = MOST) -> None:
        self._since_ms = 0
        self._most = most
        self._times: list[tuple[int, str]] = []
        self._ids: set[str] = set()
        self._dropped_ms = -1
        """Nothing up to here is counted any more: it was dropped, and does not come back."""

    def __len__(self) -> int:
        return len(self._times)

    def add(self, event_id: str, at_ms: int) -> None:
        """It happened then. Nothing when it is known already."""
        if at_ms <= self._dropped_ms or event_id in self._ids:
            return
        self._ids.add(event_id)
        heapq.heappush(self._times, (at_ms, event_id))
        if len(self._times) > self._most:
            self.begin(self._drop())

    def begin(self, since_ms: int) -> None:
        """Of what happened before, not everything is known: none of it is counted."""
        self._since_ms = max(self._since_ms, since_ms)

    def count(self, now_ms: int) -> int:
        """How often it happened within the window."""
        while self._times and self._times[0][0] <= now_ms - WINDOW_MS:
            self._drop()
        return sum(self._since_ms < at_ms <= now_ms + _AHEAD_MS for at_ms, _ in self._times)

    def per_second(self, now_ms: int) -> float | None:
        """The rate; None while what is known is too short to tell."""
        count = self.count(now_ms)
        span_ms = min(WINDOW_MS, now_ms - self._since_ms)
        return None if span_ms < _SHORTEST_MS else count / span_ms * 1000

    def _drop(self) -> int:
        at_ms, event_id = heapq.heappop(self._times)
        self._ids.discard(event_id)
        self._dropped_ms = max(self._dropped_ms, at_ms)
        return at_ms
