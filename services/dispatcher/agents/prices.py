"""What a model's tokens cost, by the price list that comes with litellm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from services.runtime.models import load_litellm


class Prices:
    """Looks prices up."""

    def __init__(self, load: Callable[[], Any] = load_litellm) -> None:
        self._load = load
        self._litellm: Any = None

    async def prepare(self) -> None:
        """Load the list now, which takes seconds, so that no turn's time goes into it."""
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(self._load)

    async def cost_usd(
        self, names: Iterable[str], input_tokens: int, output_tokens: int
    ) -> float | None:
        """US dollars, by the first of the names that is in the list; None if none is."""
        if not input_tokens and not output_tokens:
            return None
        await self.prepare()
        for name in dict.fromkeys(names):
            price = self._litellm.model_cost.get(name)
            if isinstance(price, dict) and "input_cost_per_token" in price:
                spent = input_tokens * float(price["input_cost_per_token"])
                return spent + output_tokens * float(price.get("output_cost_per_token") or 0.0)
        return None
