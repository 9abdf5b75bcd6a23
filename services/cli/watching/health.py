"""How a stack's services are, from what they tell Prometheus."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from services.runtime import metrics as m

_TIMEOUT_S = 1.5
_MOST_BYTES = 4 * 1024 * 1024
_WANTED = (
    m.READY, m.SESSIONS_HELD, m.ADMISSION_QUEUE, m.CONSUMER_LAG, m.LOW_WATER_LAG, m.DEAD_LETTERS,
)  # fmt: skip
_NAMES = tuple(metric.name for metric in _WANTED)


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """A service: its replicas, and sums over those that answer. None: it does not tell."""

    service: str
    replicas: int
    ready: int
    sessions: int | None = None
    """Sessions whose state it holds."""
    waiting: int | None = None
    """Sessions that wait to be admitted."""
    lag: int | None = None
    """Records written and not yet read."""
    behind: int | None = None
    """Records that a restart would read again."""
    dead_letters: int | None = None
    """Records that it could not read, since it was started."""


async def ask_services(
    client: httpx.AsyncClient, endpoints: Mapping[str, str]
) -> tuple[ServiceHealth, ...]:
    """The services behind base URLs by process name, `SERVICE-REPLICA`. Bounded in time."""
    answers = await asyncio.gather(*(_ask(client, url) for url in endpoints.values()))
    by_service: dict[str, list[str | None]] = defaultdict(list)
    for name, answer in zip(endpoints, answers, strict=True):
        by_service[name.partition("-")[0]].append(answer)
    return tuple(service_health(name, pages) for name, pages in by_service.items())


def service_health(service: str, pages: list[str | None]) -> ServiceHealth:
    """What the metrics pages of a service's replicas say; None for one that did not answer."""
    sums: dict[str, float] = {}
    ready = 0
    for page in pages:
        if page is None:
            continue
        found = _sums(page)
        ready += found.get(m.READY.name, 1.0) >= 1
        for name, value in found.items():
            sums[name] = sums.get(name, 0.0) + value
    told = {name: int(value) for name, value in sums.items()}
    return ServiceHealth(
        service=service,
        replicas=len(pages),
        ready=ready,
        sessions=told.get(m.SESSIONS_HELD.name),
        waiting=told.get(m.ADMISSION_QUEUE.name),
        lag=told.get(m.CONSUMER_LAG.name),
        behind=told.get(m.LOW_WATER_LAG.name),
        dead_letters=told.get(m.DEAD_LETTERS.name),
    )


def _sums(page: str) -> dict[str, float]:
    """Each wanted metric, summed over its labels. A page that is none says nothing."""
    lines = "".join(f"{line}\n" for line in page.splitlines() if line.startswith(_NAMES))
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                # Also NaN, which a gauge says that cannot be computed, is no number of records.
                if sample.name in _NAMES and 0 <= sample.value < 1e15:
                    sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except ValueError:
        return {}
    return sums


async def _ask(client: httpx.AsyncClient, url: str) -> str | None:
    """A metrics page; None when there is none in time."""
    data = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_S), client.stream("GET", f"{url}/metrics") as answer:
            if not answer.is_success:
                return None
            async for chunk in answer.aiter_bytes():
                data += chunk
                if len(data) > _MOST_BYTES:
                    return None
    except (httpx.HTTPError, TimeoutError):
        return None
    return data.decode("utf-8", "replace")
