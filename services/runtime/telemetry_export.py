"""Spans to a collector, by OTLP over HTTP. Loaded only where a collector is configured.

The SDK's batch processor has the queue and the thread. Spans are handed to it ready-made, since
their ids and times are those of events and not of the moment they are told.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from services.runtime import metrics as m
from services.runtime import telemetry_names as n
from services.runtime.logs import Log
from services.runtime.metrics import Metrics
from services.runtime.settings import Settings
from services.runtime.telemetry import EXPORTED, FAILED
from services.runtime.telemetry_span import Span

MAX_QUEUE = 4096
MAX_BATCH = 512
EVERY_MS = 1000
EXPORT_TIMEOUT_S = 5.0
"""For one batch, retries included."""
PATH = "/v1/traces"
_SDK = "opentelemetry"
_NS = 1_000_000


class OtlpSink:
    """A SpanSink that exports to the configured collector."""

    def __init__(self, settings: Settings, metrics: Metrics, log: Log) -> None:
        """May block: it loads and looks about."""
        # It tells of every batch and every dropped span; here the first trouble is told.
        logging.getLogger(_SDK).setLevel(logging.CRITICAL)
        session = _Session()
        self._scope = InstrumentationScope(n.SCOPE, _version(), n.SCHEMA_URL)
        self._resource = Resource.create(
            {
                n.SERVICE_NAME: f"windtunnel-{settings.service.replace('_', '-')}",
                n.SERVICE_VERSION: _version(),
                n.SERVICE_INSTANCE: settings.name,
            }
        )
        exporter = OTLPSpanExporter(
            endpoint=collector_url(settings.otlp_endpoint),
            headers=settings.otlp_header_values(),
            timeout=EXPORT_TIMEOUT_S,
            session=session,
        )
        self._exporter = _Counting(exporter, session, metrics, log)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=MAX_QUEUE,
            schedule_delay_millis=EVERY_MS,
            max_export_batch_size=MAX_BATCH,
        )
        self._taken = 0
        self._closed = False

    def put(self, span: Span) -> bool:
        # The processor would make room by dropping what is oldest, and tell nobody.
        if self._closed or self._taken - self._exporter.begun >= MAX_QUEUE:
            return False
        self._processor.on_end(self._readable(span))
        self._taken += 1
        return True

    async def close(self, timeout_s: float) -> int:
        self._closed = True
        stopped: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A thread that nobody waits for at the process's end, unlike the event loop's.
        threading.Thread(target=self._stop, args=(stopped,), daemon=True).start()
        await asyncio.wait({asyncio.wrap_future(stopped)}, timeout=timeout_s)
        return self._taken - self._exporter.give_up()

    def _stop(self, stopped: concurrent.futures.Future[None]) -> None:
        stopped.set_running_or_notify_cancel()
        try:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
        finally:
            stopped.set_result(None)

    def _readable(self, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=(
                None
                if span.parent_id is None
                else _context(span.trace_id, span.parent_id, remote=span.parent_is_remote)
            ),
            resource=self._resource,
            attributes=span.attributes,
            events=[
                Event(event.name, event.attributes, event.at_ms * _NS) for event in span.events
            ],
            kind=SpanKind.CLIENT if span.outgoing else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=span.start_ms * _NS,
            end_time=span.end_ms * _NS,
            instrumentation_scope=self._scope,
        )


class _Session(requests.Session):
    """Notes how its last request went, in words that hold neither address nor headers. It takes
    neither proxies nor credentials from the environment."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False
        self.went = "nothing was sent"

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        try:
            response = super().request(*args, **kwargs)
        except Exception as error:
            self.went = type(error).__name__
            raise
        self.went = f"HTTP {response.status_code}"
        return response


class _Counting(SpanExporter):
    """Exports, counts what became of it, and tells the first failure. In the processor's thread."""

    def __init__(
        self, exporter: SpanExporter, session: _Session, metrics: Metrics, log: Log
    ) -> None:
        self.begun = 0
        self._done = 0
        self._given_up = False
        self._exporter = exporter
        self._session = session
        self._metrics = metrics
        self._log = log
        self._told = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun += len(spans)
        if self._given_up:
            return SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        # Whatever it is, it is the collector's affair and not the session's.
        except Exception:
            result = SpanExportResult.FAILURE
        if self._given_up:
            return result  # too late: these have been given as lost
        self._done += len(spans)
        exported = result is SpanExportResult.SUCCESS
        self._metrics.add(m.SPANS, len(spans), outcome=EXPORTED if exported else FAILED)
        if not exported and not self._told:
            self._told = True
            self._log.warning(
                "the collector does not take spans; told once, counted in " + m.SPANS.name,
                why=self._session.went,
            )
        return result

    def give_up(self) -> int:
        """Export no more. How many spans the collector has taken or failed."""
        self._given_up = True
        self._exporter.shutdown()
        return self._done

    def shutdown(self) -> None:
        """`give_up` does it, since that knows how long to wait."""


def collector_url(endpoint: str) -> str:
    """Where spans are posted to, of a collector's base URL or of that very address."""
    base = endpoint.rstrip("/")
    return base if base.endswith(PATH) else base + PATH


def _context(trace_id: int, span_id: int, *, remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, remote, TraceFlags(TraceFlags.SAMPLED))


def _version() -> str:
    try:
        return version("windtunnel")
    except PackageNotFoundError:
        return "unknown"
