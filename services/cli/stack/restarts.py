"""How often, and after what wait, something that died is started again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Restarts:
    """At most `most` restarts of one name within `window_s`: the first at once, then after a wait
    that doubles from `first_wait_s`.
    """

    clock: Callable[[], float]
    most: int = 5
    window_s: float = 60.0
    first_wait_s: float = 0.5
    _times: dict[str, deque[float]] = field(default_factory=dict)

    def next_wait_s(self, name: str) -> float | None:
        """Seconds to wait before the restart that is now due; None if it has been tried enough."""
        now = self.clock()
        recent = self._times.setdefault(name, deque())
        while recent and now - recent[0] > self.window_s:
            recent.popleft()
        if len(recent) >= self.most:
            return None
        recent.append(now)
        return self.first_wait_s * 2 ** (len(recent) - 2) if len(recent) > 1 else 0.0
