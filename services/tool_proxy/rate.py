"""The rate limit of a session's run token: a moving window of one minute."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from limits import RateLimitItemPerMinute
from limits.storage import MovingWindowSupport, Storage
from limits.strategies import MovingWindowRateLimiter

from services.tool_proxy.errors import Refused


class RateLimit:
    """Counts the requests of one session. For use from one event loop."""

    def __init__(self, per_minute: int, now: Callable[[], float]) -> None:
        """`now`: seconds that never go back."""
        self._now = now
        self._item = RateLimitItemPerMinute(per_minute)
        self._limiter = MovingWindowRateLimiter(_Window(now))

    def hit(self) -> None:
        """Count a request.

        Raises:
            Refused: rate_limited, with the seconds after which there is room again.
        """
        if not self._limiter.hit(self._item):
            reset = self._limiter.get_window_stats(self._item).reset_time
            raise Refused("rate_limited", retry_after_s=max(1, math.ceil(reset - self._now())))


class _Window(Storage, MovingWindowSupport):
    """One key's window, on a clock that is passed in. The memory storage that comes with `limits`
    reads the global clock, and walks over all keys from a thread of its own after every hit."""

    STORAGE_SCHEME = None

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now = now
        self._hits: deque[float] = deque()

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        if self.get_moving_window(key, limit, expiry)[1] + amount > limit:
            return False
        self._hits.extend([self._now()] * amount)
        return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        while self._hits and self._hits[0] <= self._now() - expiry:
            self._hits.popleft()
        return (self._hits[0] if self._hits else self._now()), len(self._hits)

    @property
    def base_exceptions(self) -> type[Exception]:
        return ValueError

    def check(self) -> bool:
        return True

    def reset(self) -> int | None:
        self._hits.clear()
        return None

    def clear(self, key: str) -> None:
        self._hits.clear()

    # Counting in fixed windows is what other strategies of `limits` need.

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        raise NotImplementedError

    def get(self, key: str) -> int:
        raise NotImplementedError

    def get_expiry(self, key: str) -> float:
        raise NotImplementedError
