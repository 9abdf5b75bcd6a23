"""How a process keeps its metrics, and shows them to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""The upper bounds of histograms' buckets."""

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of what `Metrics.render` gives."""

Values = tuple[tuple[str, ...], ...]
"""Combinations of label values, each in the order of the metric's labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One entry of the catalogue.

    Attributes:
        by: The services that show it, by the name in their settings. Each with the label values
            that are there, at 0, from the start, so that a rate has something to rise from; `()`
            where they are known only as they occur, `((),)` where there are no labels.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    when_wrong: str
    by: Mapping[str, Values] = field(hash=False)
    labels: tuple[str, ...] = ()


class Metrics:
    """The metrics of one process. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._collectors: dict[str, Counter | Gauge | Histogram] = {}

    def begin(self, catalogue: Iterable[Metric], service: str) -> None:
        """Show all that this service has, from the first scrape on, and what the process uses."""
        # They are as many series again, and nobody asks for them.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        ProcessCollector(registry=self.registry)
        for metric in catalogue:
            for values in metric.by.get(service, ()):
                self.zero(metric, **dict(zip(metric.labels, values, strict=True)))

    def zero(self, metric: Metric, **labels: str) -> None:
        """Show a series before there is anything to count in it."""
        collector = self._collector(metric)
        if labels:
            collector.labels(**labels)

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Count. The metric must be a counter."""
        collector = self._collector(metric)
        assert isinstance(collector, Counter), metric.name
        (collector.labels(**labels) if labels else collector).inc(amount)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add an observation, in the metric's unit, to a histogram."""
        collector = self._collector(metric)
        assert isinstance(collector, Histogram), metric.name
        (collector.labels(**labels) if labels else collector).observe(value)

    def measure(self, metric: Metric, function: Callable[[], float], **labels: str) -> None:
        """Have a gauge computed whenever it is scraped."""
        collector = self._collector(metric)
        assert isinstance(collector, Gauge), metric.name
        (collector.labels(**labels) if labels else collector).set_function(function)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    def _collector(self, metric: Metric) -> Counter | Gauge | Histogram:
        found = self._collectors.get(metric.name)
        if found is None:
            if metric.kind == "counter":
                found = Counter(metric.name, metric.meaning, metric.labels, registry=self.registry)
            elif metric.kind == "gauge":
                found = Gauge(metric.name, metric.meaning, metric.labels, registry=self.registry)
            else:
                found = Histogram(
                    metric.name, metric.meaning, metric.labels,
                    registry=self.registry, buckets=SECONDS,
                )  # fmt: skip
            self._collectors[metric.name] = found
        return found
