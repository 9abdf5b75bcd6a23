"""The life of a service: start, be ready, run, drain, stop - each with a deadline.

A service's `__main__.py` is `run(SettingsClass, start)`. `start` gets a `Service` and wires its
parts to it; from then on any part that fails stops the whole process with exit code 1, so that a
half-dead service is never taken for a live one, and its successor rebuilds from the log.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from starlette.routing import BaseRoute

from schemas.codec import Codec
from schemas.errors import WindtunnelSchemaError
from schemas.record import full_name
from schemas.registry import DeadLetter
from schemas.topics import BY_FULL_NAME, DEAD_LETTERS, Topic
from schemas.trajectory import AGENT, TrajectoryEvent
from services.runtime import metrics as m
from services.runtime.bus.consumer import BusConsumer
from services.runtime.bus.errors import BusError
from services.runtime.bus.handler import PartitionHandler
from services.runtime.bus.producer import BusProducer
from services.runtime.bus.records import Incoming, Outgoing
from services.runtime.bus.table import BusTable
from services.runtime.clock import Clock, SystemClock
from services.runtime.http import HttpServer, Starting, application
from services.runtime.ids import Ids, RandomIds
from services.runtime.logs import Log, configure
from services.runtime.metrics import Metrics
from services.runtime.registry import codec_for
from services.runtime.settings import ConfigurationError, Settings, load_settings

S = TypeVar("S", bound=Settings)
R = TypeVar("R")
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2


class DeadLetterLimit(Exception):
    """So many records cannot be read that the fault is likely here: stop rather than drain."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A record on its way to a topic."""

    topic: Topic
    key: str
    record: Any


class Service(Generic[S]):
    """What the parts of one service process share."""

    def __init__(self, settings: S, codec: Codec, log: Log, clock: Clock, ids: Ids) -> None:
        self.settings = settings
        self.codec = codec
        self.log = log
        self.clock = clock
        self.ids = ids
        self.metrics = Metrics()
        self.metrics.begin(m.CATALOGUE, settings.service)
        self.bus = settings.bus()
        self.producer = BusProducer(self.bus, settings.name)
        self.routes: list[BaseRoute] = []
        self.http_port = settings.http_port
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_for: dict[str, Callable[[], bool]] = {}
        self._stopping: list[Callable[[], Awaitable[None]]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._recent: deque[bool] = deque(maxlen=settings.dead_letter_window)
        self._lags: dict[str, list[Callable[[], int]]] = {}

    async def publish(self, *publications: Publication, timeout_s: float = 15.0) -> None:
        """Append records; returning means that the broker has acknowledged all of them.

        Raises:
            BusError: not acknowledged in time (the outcome is unknown), or refused.
            EncodeError: a record does not fit its schema.
        """
        outgoing = [outgoing_record(self.codec, publication) for publication in publications]
        await self.producer.append(outgoing, timeout_s=timeout_s)
        for publication in publications:
            self.metrics.add(m.EVENTS_PRODUCED, topic=publication.topic.name)

    async def read(self, incoming: Incoming, cls: type[R]) -> R | None:
        """The record in a value, or None after burying what cannot be read.

        Raises:
            DeadLetterLimit: too many of the last records could not be read.
            BusError: the dead letter itself could not be written.
        """
        try:
            value = self.codec.decode(cls, incoming.value)
        except WindtunnelSchemaError as error:
            await self.bury(incoming, str(error))
            return None
        self.readable()
        return value

    def readable(self) -> None:
        """Count a record that could be read, against those that could not."""
        self._recent.append(False)

    async def bury(self, incoming: Incoming, error: str) -> None:
        """Keep a record that cannot be used in the dead letters; raises as `read` does."""
        topic = BY_FULL_NAME.get(incoming.topic)
        self.metrics.add(m.DEAD_LETTERS, topic=topic.name if topic else "unknown")
        self.log.warning(
            "dead letter", topic=incoming.topic, partition=incoming.partition,
            offset=incoming.offset, error=error,
        )  # fmt: skip
        letter = DeadLetter(
            topic=incoming.topic,
            partition=incoming.partition,
            offset=incoming.offset,
            key=incoming.key.encode(),
            value=incoming.value,
            headers=dict(incoming.headers),
            service=self.settings.service,
            error=error,
            at_ms=self.clock.now_ms(),
        )
        await self.publish(Publication(DEAD_LETTERS, incoming.key, letter))
        self._recent.append(True)
        bad = sum(self._recent)
        if len(self._recent) == self._recent.maxlen and bad > (
            self.settings.dead_letter_ratio * len(self._recent)
        ):
            raise DeadLetterLimit(
                f"{bad} of the last {len(self._recent)} records could not be read; they are on "
                f"{DEAD_LETTERS.full_name}. Is this service older than its writers?"
            )

    async def consume(
        self,
        topics: Sequence[Topic],
        handler: PartitionHandler,
        *,
        group: str = "",
        client_id: str = "",
        kinds: frozenset[str] | None = None,
    ) -> BusConsumer:
        """Join the service's consumer group; `kinds` lets other events be skipped undecoded.

        A kind with a requestor, `tool_called/user`, lets in that requestor's alone.
        """

        def accept(_topic: str, headers: Any) -> bool:
            kind = headers.get("kind")
            if kinds is None or kind is None or kind in kinds:
                return True
            return f"{kind}/{headers.get('requestor', '')}" in kinds

        consumer = BusConsumer(
            self.bus,
            group or self.settings.service,
            [topic.full_name for topic in topics],
            handler,
            client_id=client_id or self.settings.name,
            instance_id=self.settings.name,
            accept=accept,
        )
        await consumer.start()
        for topic in topics:
            self._read_from(topic, partial(consumer.lag, topic.full_name))
        self.on_stop(lambda: consumer.stop(self.settings.drain_s))
        self.watch(consumer.wait_failed(), f"consumer of {', '.join(t.name for t in topics)}")
        return consumer

    async def follow(self, topic: Topic, apply: Callable[[Incoming], None]) -> BusTable:
        """Read a compacted topic to its end, and keep following it."""

        def counted(incoming: Incoming) -> None:
            self.metrics.add(m.EVENTS_CONSUMED, topic=topic.name)
            apply(incoming)

        table = BusTable(self.bus, topic.full_name, counted, f"{self.settings.name}-{topic.name}")
        self._read_from(topic, table.lag)
        await table.start()
        self.on_stop(lambda: table.stop(self.settings.drain_s))
        self.watch(table.wait_failed(), f"table {topic.name}")
        return table

    def _read_from(self, topic: Topic, lag: Callable[[], int]) -> None:
        """Show what concerns a topic that is read, by however many readers."""
        for metric in (m.EVENTS_CONSUMED, m.DEAD_LETTERS):
            self.metrics.zero(metric, topic=topic.name)
        readers = self._lags.setdefault(topic.name, [])
        readers.append(lag)
        self.metrics.measure(
            m.CONSUMER_LAG, lambda: float(sum(one() for one in readers)), topic=topic.name
        )

    def ready_when(self, what: str, condition: Callable[[], bool]) -> None:
        """Readiness waits for this; `what` is shown to whoever asks why it is not ready."""
        self._waiting_for[what] = condition

    def waiting_for(self) -> list[str]:
        """What the service still waits for; empty when it is ready."""
        return [what for what, condition in self._waiting_for.items() if not condition()]

    def on_stop(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Called when stopping, last registered first."""
        self._stopping.append(callback)

    def watch(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run something for as long as the service runs; its failure stops the service."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._watched)
        return task

    def fail(self, error: BaseException) -> None:
        """Stop the process because of this."""
        if not self.failed.done():
            self.failed.set_exception(error)

    def _watched(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def stop(self) -> None:
        """Stop every part, last started first, each within its deadline."""
        for callback in reversed(self._stopping):
            try:
                async with asyncio.timeout(self.settings.drain_s + 1):
                    await callback()
            except Exception as error:
                self.log.error("a part did not stop cleanly", error=repr(error))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def outgoing_record(codec: Codec, publication: Publication) -> Outgoing:
    """A publication as the bus takes it; headers let readers skip without decoding."""
    record = publication.record
    headers = [("type", full_name(type(record)))]
    if isinstance(record, TrajectoryEvent):
        headers.append(("kind", record.kind))
        if record.tool_called is not None and record.tool_called.requestor != AGENT:
            headers.append(("requestor", record.tool_called.requestor))
    if run_id := getattr(record, "run_id", ""):
        headers.append(("run", run_id))
    return Outgoing(
        topic=publication.topic.full_name,
        key=publication.key,
        value=codec.encode(record),
        headers=tuple(headers),
    )


def run(cls: type[S], start: Callable[[Service[S]], Awaitable[None]]) -> None:
    """Run a service until it is told to stop. Exits 0, 1 (failed) or 2 (configuration)."""
    try:
        settings = load_settings(cls)
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        raise SystemExit(EXIT_CONFIGURATION) from None
    try:
        import uvloop

        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        raise SystemExit(runner.run(_serve(settings, start)))


async def _serve(settings: S, start: Callable[[Service[S]], Awaitable[None]]) -> int:
    log = configure(settings.name, settings.log_level)
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    try:
        codec = await asyncio.to_thread(codec_for, settings)
        service = Service(settings, codec, log, SystemClock(), RandomIds())
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIGURATION
    started: asyncio.Future[Any] = asyncio.create_task(_start(service, start))
    stopping: asyncio.Future[Any] = asyncio.create_task(stop_requested.wait())
    try:
        await asyncio.wait({started, stopping, service.failed}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            started.result()
            log.info("started", http_port=service.http_port)
            await asyncio.wait({stopping, service.failed}, return_when=asyncio.FIRST_COMPLETED)
        if service.failed.done():
            service.failed.result()
        return 0
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return EXIT_CONFIGURATION
    except (BusError, DeadLetterLimit) as error:
        log.error("stopped", error=f"{type(error).__name__}: {error}")
        return EXIT_FAILED
    except Exception as error:
        log.error("stopped by a bug", exc_info=error)
        return EXIT_FAILED
    finally:
        started.cancel()
        stopping.cancel()
        await asyncio.gather(started, stopping, return_exceptions=True)
        await service.stop()
        if not service.failed.done():
            service.failed.cancel()
        log.info("stopped")


async def _start(service: Service[S], start: Callable[[Service[S]], Awaitable[None]]) -> None:
    settings = service.settings
    service.metrics.measure(m.READY, lambda: float(not service.waiting_for()))
    started = False
    service.ready_when("start", lambda: started)
    app = application(service.metrics, service.waiting_for)
    starting = Starting(app)
    server = HttpServer(app, settings.http_host, settings.http_port, settings.http_fd)
    service.http_port = await server.start()
    await service.producer.start()
    service.on_stop(lambda: service.producer.stop(settings.drain_s))
    service.on_stop(server.stop)
    await start(service)
    starting.over(service.routes)
    started = True
