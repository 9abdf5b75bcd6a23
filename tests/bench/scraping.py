"""What it costs that Prometheus looks: W1 with and without, turn by turn.

`python -m tests.bench.scraping [--every-s 1] [--repeat 5] [--sessions N] ...` prints JSON. Each
turn is a run without and a run with every process of the stack scraped so often, the order reversed
from one turn to the next, each on a stack of its own; `ratio` is the median over the turns of with
to without, so 1 is free. Besides, how long a process took to answer a scrape, and how much it said.
See `tests.bench.orchestration` for what a session is.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from services.cli.stack.stack import Stack
from tests.bench.orchestration import arguments, measure

_FIGURES = ("sessions_per_s", "cpu_s_per_session")


@dataclass(slots=True)
class Scraper:
    """Looks at every process of a stack, all at once, as a Prometheus without jitter would."""

    every_s: float
    answer_ms: list[float] = field(default_factory=list)
    answer_bytes: list[int] = field(default_factory=list)

    @asynccontextmanager
    async def on(self, stack: Stack) -> AsyncIterator[None]:
        """Around a run. Raises what a scrape raises: what was not scraped has cost nothing."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            looking = asyncio.create_task(self._look(client, list(stack.endpoints.values())))
            try:
                yield
                if looking.done():
                    looking.result()
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, client: httpx.AsyncClient, urls: list[str]) -> None:
        while True:
            await asyncio.gather(*(self._scrape(client, url) for url in urls))
            await asyncio.sleep(self.every_s)

    async def _scrape(self, client: httpx.AsyncClient, url: str) -> None:
        started = time.perf_counter()
        answer = await client.get(f"{url}/metrics")
        answer.raise_for_status()
        self.answer_ms.append((time.perf_counter() - started) * 1000)
        self.answer_bytes.append(len(answer.content))


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.set_defaults(repeat=5)
    parser.add_argument("--every-s", type=float, default=1.0)
    options = parser.parse_args()
    scraper = Scraper(options.every_s)
    runs: dict[str, list[dict[str, Any]]] = {"without": [], "with": []}
    for turn in range(options.repeat):
        for kind in sorted(runs, reverse=bool(turn % 2)):
            print(f"turn {turn + 1} of {options.repeat}: {kind}", file=sys.stderr)
            watched = kind == "with"
            result = asyncio.run(measure(options, scraper.on) if watched else measure(options))
            runs[kind].append(result)
    print(
        json.dumps(
            {
                "workload": options.workload,
                "sessions": options.sessions,
                "every_s": options.every_s,
                "turns": options.repeat,
                **{name: _compared(runs, name) for name in _FIGURES},
                "scrapes": len(scraper.answer_ms),
                "scrape_ms": {
                    "median": round(statistics.median(scraper.answer_ms), 1),
                    "max": round(max(scraper.answer_ms), 1),
                },
                "scrape_bytes_median": round(statistics.median(scraper.answer_bytes)),
            },
            indent=2,
        )
    )


def _compared(runs: dict[str, list[dict[str, Any]]], name: str) -> dict[str, Any]:
    without, watched = ([run[name] for run in runs[kind]] for kind in ("without", "with"))
    ratios = [b / a for a, b in zip(without, watched, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "median_without": statistics.median(without),
        "median_with": statistics.median(watched),
        "without": without,
        "with": watched,
    }


if __name__ == "__main__":
    main()
