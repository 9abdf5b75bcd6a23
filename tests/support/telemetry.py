"""What receives spans in tests: a list, and an OTLP/HTTP collector."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.runtime.logs import configure
from services.runtime.metrics import Metrics
from services.runtime.telemetry import Telemetry
from services.runtime.telemetry_span import Span
from tests.support.http_server import serve


class Kept:
    """A sink that keeps spans, as many as it has room for."""

    def __init__(self, room: int = 10_000) -> None:
        self.spans: list[Span] = []
        self.room = room

    def put(self, span: Span) -> bool:
        if len(self.spans) < self.room:
            self.spans.append(span)
            return True
        return False

    async def close(self, timeout_s: float) -> int:
        return 0


def telemetry(sink: Kept, metrics: Metrics | None = None, *, contents: bool = False) -> Telemetry:
    return Telemetry(sink, metrics or Metrics(), configure("test", "error"), contents=contents)


@dataclass(frozen=True)
class Received:
    """A span as a collector has it; ids in hexadecimal, an empty parent at the root."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    resource: dict[str, Any]
    schema_url: str
    error: str
    parent_is_remote: bool
    events: tuple[tuple[str, dict[str, Any]], ...] = field(default=())


class Collector:
    """An OTLP/HTTP collector. While `status` is not 200 it refuses; once it has refused as often
    as `hold_after` says, it hangs.
    """

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.headers: list[dict[str, str]] = []
        self.refused = 0
        self.status = 200
        self.hold_after: int | None = None
        self.held = 0
        self.url = ""
        self._released = threading.Event()
        self.app = Starlette(routes=[Route("/v1/traces", self._take, methods=["POST"])])

    def release(self) -> None:
        """Hang no more."""
        self.hold_after = None
        self._released.set()

    def of(self, trace_id: str) -> dict[str, Received]:
        """A trace's spans by id; one that came again must have come the same."""
        found: dict[str, Received] = {}
        for span in list(self.spans):
            if span.trace_id == trace_id:
                found.setdefault(span.span_id, span)
        return found

    def wait_for(self, trace_id: str, count: int, timeout_s: float = 20) -> dict[str, Received]:
        """A trace, when it has so many spans."""
        end = time.monotonic() + timeout_s
        while len(found := self.of(trace_id)) < count:
            names = sorted(span.name for span in found.values())
            assert time.monotonic() < end, f"{len(found)} spans, waited for {count}: {names}"
            time.sleep(0.05)
        return found

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 20) -> None:
        """Wait until something has been asked of it."""
        end = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < end, f"{self.refused} refused, {self.held} held"
            time.sleep(0.02)

    async def _take(self, request: Request) -> Response:
        body = await request.body()
        if self.hold_after is not None and self.refused >= self.hold_after:
            self.held += 1
            await run_in_threadpool(self._released.wait, 60)
        if self.status != 200:
            self.refused += 1
            return Response(status_code=self.status)
        assert request.headers["content-type"] == "application/x-protobuf"
        self.headers.append(dict(request.headers))
        self.spans += _decoded(ExportTraceServiceRequest.FromString(body))
        return Response(b"", media_type="application/x-protobuf")


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector that runs until the block ends; `url` is where."""
    made = Collector()
    with serve(made.app) as url:
        made.url = url
        try:
            yield made
        finally:
            made.release()


def _decoded(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for of_resource in request.resource_spans:
        resource = _values(of_resource.resource.attributes)
        for scope in of_resource.scope_spans:
            for span in scope.spans:
                yield Received(
                    service=resource["service.name"],
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    attributes=_values(span.attributes),
                    resource=resource,
                    schema_url=scope.schema_url,
                    error=span.status.message,
                    parent_is_remote=bool(span.flags & 0x200),
                    events=tuple((one.name, _values(one.attributes)) for one in span.events),
                )


def _values(pairs: Any) -> dict[str, Any]:
    def value(pair: KeyValue) -> Any:
        return getattr(pair.value, str(pair.value.WhichOneof("value")))

    return {pair.key: value(pair) for pair in pairs}
