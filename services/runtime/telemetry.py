"""Traces of sessions, for services that have something to tell about them.

Without WINDTUNNEL_OTLP_ENDPOINT there is no `Telemetry`, and nothing of OpenTelemetry's is loaded.
With it, spans go into a bounded queue and from there, in a thread, to the collector. Whatever
becomes of them, nothing waits for them and nothing fails because of them; see docs/telemetry.md.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from services.runtime import metrics as m
from services.runtime.bus.records import Incoming
from services.runtime.core import Core
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.service import Service
from services.runtime.telemetry_context import accept
from services.runtime.telemetry_span import Span

R = TypeVar("R")
St = TypeVar("St")
EXPORTED, FAILED, DROPPED = "exported", "failed", "dropped"
STOP_S = 3.0
"""How long stopping may wait for spans to be delivered."""


class SpanSink(Protocol):
    """Where spans go. Called from one event loop."""

    def put(self, span: Span) -> bool:
        """Take a span, at once; False if there is no room for it."""

    async def close(self, timeout_s: float) -> int:
        """Deliver what is left, within so long; how many spans were not."""


class Telemetry:
    """What a service tells about its sessions. `contents`: whether spans quote what was said."""

    def __init__(self, sink: SpanSink, metrics: Metrics, log: Log, *, contents: bool) -> None:
        self.contents = contents
        self._sink = sink
        self._metrics = metrics
        self._log = log
        self._troubled = False
        for outcome in (EXPORTED, FAILED, DROPPED):
            # Made here, and not by the sink's thread and this one at once.
            metrics.add(m.SPANS, 0, outcome=outcome)

    def record(self, make: Callable[[], Iterable[Span]]) -> None:
        """Export the spans that `make` makes. Never waits, and never raises."""
        try:
            for span in make():
                if not self._sink.put(span):
                    self._metrics.add(m.SPANS, outcome=DROPPED)
        # Whatever is wrong with a span, the session goes on.
        except Exception as error:
            self._metrics.add(m.SPANS, outcome=DROPPED)
            if not self._troubled:
                self._troubled = True
                self._log.error("a span could not be made; told once", error=type(error).__name__)

    def parent(self, values: Sequence[str], session_id: str) -> int | None:
        """The id of the span that a request's traceparent names, if ours can hang under it.

        Args:
            values: The header's values; none where it was not sent.
        """
        if not values:
            return None
        outcome, parent = accept(values, session_id)
        self._metrics.add(m.TRACEPARENTS, outcome=outcome)
        return parent

    async def stop(self, timeout_s: float) -> None:
        """Deliver what is left, and give up what takes longer."""
        if lost := await self._sink.close(min(timeout_s, STOP_S)):
            self._metrics.add(m.SPANS, lost, outcome=DROPPED)
            self._log.warning("stopped before all spans were delivered", spans=lost)


async def start_telemetry(service: Service[Any]) -> Telemetry | None:
    """The service's telemetry, stopped with it; None where no collector is configured."""
    settings = service.settings
    if not settings.otlp_endpoint:
        return None
    # The SDK takes its time to load, and those who do not want it shall not have it.
    export = await asyncio.to_thread(importlib.import_module, "services.runtime.telemetry_export")
    sink: SpanSink = await asyncio.to_thread(
        export.OtlpSink, settings, service.metrics, service.log
    )
    telemetry = Telemetry(sink, service.metrics, service.log, contents=settings.otlp_contents)
    service.on_stop(lambda: telemetry.stop(settings.drain_s))
    return telemetry


class Traced(Generic[R, St]):
    """A core whose records are told about, as they are folded: once each, in the log's order.

    `see(state, record)` makes the spans of a record; it is called with the state before it.
    """

    def __init__(
        self,
        core: Core[R, St],
        telemetry: Telemetry,
        see: Callable[[St, R], Iterable[Span]],
    ) -> None:
        self._core = core
        self._telemetry = telemetry
        self._see = see

    def start(self, record: R) -> St:
        return self._core.start(record)

    def apply(self, state: St, record: R) -> None:
        self._telemetry.record(lambda: self._see(state, record))
        self._core.apply(state, record)

    def foreign(self, state: St, incoming: Incoming) -> None:
        self._core.foreign(state, incoming)

    def wants(self, state: St) -> Any:
        return self._core.wants(state)

    def finished(self, state: St) -> bool:
        return self._core.finished(state)
