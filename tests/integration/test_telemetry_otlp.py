"""D07: spans to a real OTLP/HTTP collector, one that is well and ones that are not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import pytest
from pydantic import SecretStr

from services.runtime import telemetry_names as n
from services.runtime.metrics import Metrics
from services.runtime.settings import Settings
from services.runtime.telemetry import Telemetry
from services.runtime.telemetry_context import span_id, trace_id
from services.runtime.telemetry_export import MAX_BATCH, MAX_QUEUE, OtlpSink
from services.runtime.telemetry_span import Span, SpanEvent
from tests.support.telemetry import collector

pytestmark = pytest.mark.req("D07")
NOW_MS = 1_768_467_600_000
SECRET = "canary,of the collector's"


class UserSimulator(Settings):
    service = "user_simulator"


class Said:
    """A log that keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, text: str, **more: Any) -> None:
        self.lines.append((text, more))

    error = warning


def span(number: int = 1) -> Span:
    return Span(
        name="execute_tool get_order", trace_id=trace_id("s"), span_id=span_id(f"s:t{number}"),
        parent_id=77, start_ms=NOW_MS, end_ms=NOW_MS + 12, error="tool_failed", outgoing=True,
        attributes={"text": "é", "number": number, "share": 0.5, "whether": True},
        parent_is_remote=True, events=(SpanEvent("scored", NOW_MS + 3, {"name": "safety"}),),
    )  # fmt: skip


def telling(
    url: str, act: Callable[[Telemetry], Awaitable[None]], **settings: Any
) -> tuple[dict[str, int], Said]:
    """What became of the spans, by outcome, and what was logged."""
    metrics, said = Metrics(), Said()

    async def main() -> None:
        sink = OtlpSink(UserSimulator(otlp_endpoint=url, replica="7", **settings), metrics, said)  # type: ignore[arg-type]
        telemetry = Telemetry(sink, metrics, said, contents=False)  # type: ignore[arg-type]
        await act(telemetry)

    asyncio.run(main())
    counted = {
        sample.labels["outcome"]: int(sample.value)
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "windtunnel_spans_total"
    }
    return counted, said


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_spans_arrive_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=staging")

    async def act(telemetry: Telemetry) -> None:
        telemetry.record(lambda: [span()])
        telemetry.record(lambda: [span()])  # as after a restart
        await telemetry.stop(5)
        telemetry.record(lambda: [span(2)])

    headers = SecretStr("api-key=canary%2Cof the collector's")
    with collector() as one:
        counted, said = telling(one.url, act, otlp_headers=headers)
    first, again = one.spans
    assert first == again
    assert (first.trace_id, first.span_id) == (
        f"{trace_id('s'):032x}", f"{span_id('s:t1'):016x}",
    )  # fmt: skip
    assert (first.parent_id, first.parent_is_remote) == (f"{77:016x}", True)
    assert (first.start_ns, first.end_ns) == (NOW_MS * 1_000_000, (NOW_MS + 12) * 1_000_000)
    assert first.attributes == span().attributes
    assert (first.error, first.events) == ("tool_failed", (("scored", {"name": "safety"}),))
    assert (first.service, first.schema_url) == ("windtunnel-user-simulator", n.SCHEMA_URL)
    assert first.resource["service.instance.id"] == "user_simulator-7"
    assert first.resource["service.version"] == version("windtunnel")
    assert first.resource["deployment.environment"] == "staging"
    assert {headers["api-key"] for headers in one.headers} == {SECRET}
    # What comes after the end is dropped, and said to be.
    assert counted == {"exported": 2, "failed": 0, "dropped": 1}
    assert said.lines == []


def test_a_collector_that_refuses_is_told_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(telemetry: Telemetry) -> None:
        for number in (1, 2):
            telemetry.record(lambda number=number: [span(number)])  # type: ignore[misc]
            await asyncio.to_thread(one.wait_until, lambda: one.refused == number)  # noqa: B023
        one.status = 200
        telemetry.record(lambda: [span(3)])
        await telemetry.stop(5)

    with collector() as one:
        one.status = 500
        counted, said = telling(one.url, act, otlp_headers=SecretStr("api-key=canary"))
    assert counted == {"exported": 1, "failed": 2, "dropped": 0}
    ((text, more),) = said.lines
    assert "windtunnel_spans_total" in text
    assert more == {"why": "HTTP 500"}
    assert not caplog.records


@pytest.mark.parametrize("trouble", ["down", "hanging"])
def test_a_collector_that_does_not_answer_holds_nobody_up(trouble: str) -> None:
    many = MAX_QUEUE + 2 * MAX_BATCH

    async def act(telemetry: Telemetry) -> None:
        for number in range(many):
            telemetry.record(lambda number=number: [span(number)])  # type: ignore[misc]
        await asyncio.wait_for(telemetry.stop(0.5), 60)  # the collector would hold it for ever

    with collector() as one:
        one.hold_after = 0
        url = one.url if trouble == "hanging" else f"http://127.0.0.1:{closed_port()}"
        counted, said = telling(url, act)
        # The queue is bounded, whatever was on its way to the collector is lost, all is counted.
        assert counted["exported"] == 0
        assert counted["dropped"] >= MAX_BATCH
        assert counted["failed"] + counted["dropped"] == many
        assert said.lines[-1][0] == "stopped before all spans were delivered"
        # What still tries is no thread that a process would wait for at its end. At a port that
        # is closed it may be through with trying; at a collector that hangs it cannot be.
        exporting = [one for one in threading.enumerate() if one.name.startswith("OtelBatchSpan")]
        assert exporting or trouble == "down"
        assert all(one.daemon for one in exporting)
