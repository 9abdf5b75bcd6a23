"""How long something takes: fixed by two bounds, or drawn from a distribution."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

from pydantic import Field, model_validator

from schemas.model import Model

DURATION = r"^\d+(s|m|h|d)$"
_P95 = NormalDist().inv_cdf(0.95)
_MAX_MS = 120_000


class Latency(Model):
    """Milliseconds, drawn anew each time: uniform between the bounds, exponential with `mean_ms`,
    or log-normal with `median_ms` and `p95_ms`. The bounds cut what is drawn.
    """

    min_ms: int = Field(default=0, ge=0, le=_MAX_MS, description="Never less.")
    max_ms: int = Field(default=_MAX_MS, ge=0, le=_MAX_MS, description="Never more.")
    mean_ms: int | None = Field(default=None, ge=1, le=_MAX_MS, description="Exponential.")
    median_ms: int | None = Field(default=None, ge=1, le=_MAX_MS, description="Log-normal.")
    p95_ms: int | None = Field(default=None, ge=1, le=_MAX_MS, description="Log-normal.")

    @model_validator(mode="after")
    def _one_form(self) -> Latency:
        if self.min_ms > self.max_ms:
            raise ValueError(f"min_ms {self.min_ms} is above max_ms {self.max_ms}")
        if (self.median_ms is None) != (self.p95_ms is None):
            raise ValueError("median_ms and p95_ms go together")
        if self.mean_ms is not None and self.median_ms is not None:
            raise ValueError("give mean_ms, or median_ms and p95_ms, not both")
        if self.median_ms is not None and self.p95_ms is not None and self.p95_ms < self.median_ms:
            raise ValueError(f"p95_ms {self.p95_ms} is below median_ms {self.median_ms}")
        uniform = self.mean_ms is None and self.median_ms is None
        if uniform and "max_ms" not in self.model_fields_set:
            raise ValueError("expected max_ms, mean_ms, or median_ms and p95_ms")
        return self

    def draw(self, key: str) -> int:
        """Milliseconds; the same for the same key."""
        source = random.Random(key)
        if self.mean_ms is not None:
            drawn = source.expovariate(1 / self.mean_ms)
        elif self.median_ms is not None and self.p95_ms is not None:
            sigma = math.log(self.p95_ms / self.median_ms) / _P95
            drawn = self.median_ms * math.exp(source.gauss(0, sigma))
        else:
            drawn = source.uniform(self.min_ms, self.max_ms)
        return round(min(max(drawn, self.min_ms), self.max_ms))
