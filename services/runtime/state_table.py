"""The shell that every stateful service shares: states by key, rebuilt from the log.

A service's core is pure: it folds a key's records (a session's events, a run's request) into a
state, and says what that state wants done next. The shell reads the log, folds, performs what is
wanted, and lets the offset move only below the oldest key that is not finished. What a service
appends to the log counts when it is read back, so that of two writers the first one wins for
everybody.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_exponential

from schemas.errors import DecodeError
from schemas.topics import Topic
from services.runtime import metrics as m
from services.runtime.bus.errors import BusUnavailable
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from services.runtime.core import Core, Stream
from services.runtime.service import Service
from services.runtime.slots import Slots

R = TypeVar("R")
St = TypeVar("St")
FINISHED_REMEMBERED = 20_000
OUTAGE_S = 120
"""How long a broker may be away before the service gives up and lets itself be restarted."""


@dataclass(slots=True)
class _Held(Generic[St]):
    state: St
    key: str
    partition: int
    since: int
    began_ms: int
    foreign_since: int
    seen: set[str] = field(default_factory=set)
    done: Hashable | None = None
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class _Owned(Generic[St]):
    """One partition of the stream, with its co-partitioned companion."""

    end: int
    position: int
    foreign_end: int = 0
    foreign_start: int = 0
    foreign_position: int = 0
    live: bool = False
    held: dict[str, _Held[St]] = field(default_factory=dict)
    finished: OrderedDict[str, None] = field(default_factory=OrderedDict)
    parked: OrderedDict[str, list[Incoming]] = field(default_factory=OrderedDict)


class StateTable(Generic[R, St]):
    """Holds the states of the owned partitions. A PartitionHandler for the stream's topic and, if
    `foreign` is given, one co-partitioned topic with the same keys.

    `act(state, action)` performs what a core wants: it returns when the effects are durable, and
    an exception from it stops the service. At most `concurrency` run at once, one a key.
    `refused` hears of records that were buried, with the reason.
    """

    def __init__(
        self,
        service: Service[Any],
        stream: Stream[R],
        core: Core[R, St],
        act: Callable[[St, Hashable], Awaitable[None]] | None = None,
        *,
        foreign: Topic | None = None,
        concurrency: int = 1000,
        refused: Callable[[Incoming, str], Awaitable[None]] | None = None,
    ) -> None:
        self._service = service
        self._stream = stream
        self._topic = stream.topic.full_name
        self._core = core
        self._act = act
        self._refused = refused
        self._foreign = foreign
        self._slots = Slots(concurrency)
        self._owned: dict[int, _Owned[St]] = {}
        self._by_key: dict[str, _Held[St]] = {}
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._assigned_once = False
        name = stream.topic.name
        service.ready_when(f"partitions of {name}", lambda: self._assigned_once)
        service.ready_when(f"replay of {name}", lambda: all(o.live for o in self._owned.values()))

    def measured(self) -> None:
        """Let this table's figures be the service's session metrics."""
        metrics = self._service.metrics
        metrics.measure(m.SESSIONS_HELD, lambda: float(len(self._by_key)))
        self._slots.measured(metrics, "actions")
        metrics.measure(m.LOW_WATER_LAG, lambda: float(self._lag()))
        metrics.measure(m.LOW_WATER_AGE, self._age_s)

    # What the service asks.

    def get(self, key: str) -> St | None:
        """The state of a key, if it is held and its partition has been read to its end."""
        held = self._by_key.get(key)
        if held is None or not self._owned[held.partition].live:
            return None
        return held.state

    def states(self) -> Iterator[tuple[str, St]]:
        """Every key that is held in partitions read to their end."""
        for owned in list(self._owned.values()):
            if owned.live:
                for key, held in list(owned.held.items()):
                    yield key, held.state

    def owns(self, partition: int) -> bool:
        """Whether this partition is ours and read to its end."""
        owned = self._owned.get(partition)
        return owned is not None and owned.live

    def has_finished(self, key: str) -> bool:
        """Whether the key is known to have finished; only the latest are remembered."""
        return any(key in owned.finished for owned in self._owned.values())

    async def wait_for(self, key: str, timeout_s: float) -> St | None:
        """The state of a key, waiting so long for its start to be read; None in vain."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (state := self.get(key)) is None:
            waiter: asyncio.Future[None] = loop.create_future()
            waiters = self._waiters.setdefault(key, [])
            waiters.append(waiter)
            try:
                async with asyncio.timeout_at(deadline):
                    await waiter
            except TimeoutError:
                return None
            finally:
                waiters.remove(waiter)
                if not waiters:
                    self._waiters.pop(key, None)
        return state

    def pursue(self, key: str) -> None:
        """Look again at what a key wants, because something outside the log has changed."""
        held = self._by_key.get(key)
        if held is not None and self._owned[held.partition].live:
            self._pursue(held)

    # What the bus tells.

    async def assigned(self, starts: Mapping[Partition, PartitionSpan]) -> None:
        for partition, span in starts.items():
            if partition.topic == self._topic:
                owned = self._owned.setdefault(partition.number, _Owned(span.end, span.start))
                owned.end, owned.position = span.end, span.start
        for partition, span in starts.items():
            if (
                self._foreign
                and partition.topic == self._foreign.full_name
                and partition.number in self._owned
            ):
                owned = self._owned[partition.number]
                owned.foreign_start = owned.foreign_position = span.start
                owned.foreign_end = span.end
        self._assigned_once = True
        for number in {partition.number for partition in starts}:
            self._catch_up(number)

    async def revoked(self, partitions: Collection[Partition]) -> None:
        tasks = []
        for partition in partitions:
            if partition.topic != self._topic:
                continue
            owned = self._owned.pop(partition.number, None)
            for held in owned.held.values() if owned else ():
                self._by_key.pop(held.key, None)
                if held.task is not None:
                    held.task.cancel()
                    tasks.append(held.task)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def batch(self, records: Sequence[Incoming], positions: Mapping[Partition, int]) -> None:
        touched: dict[str, _Held[St]] = {}
        for incoming in records:
            owned = self._owned.get(incoming.partition)
            if owned is None:
                continue
            if incoming.topic == self._topic:
                held = await self._fold(owned, incoming)
            else:
                held = await self._fold_foreign(owned, incoming)
            if held is not None:
                touched[held.key] = held
        for partition, position in positions.items():
            if (owned := self._owned.get(partition.number)) is not None:
                if partition.topic == self._topic:
                    owned.position = position
                else:
                    owned.foreign_position = position
        for held in touched.values():
            if held.key in self._by_key and self._owned[held.partition].live:
                self._pursue(held)
        for number in {partition.number for partition in positions}:
            self._catch_up(number)

    def low_water_marks(self) -> Mapping[Partition, int]:
        marks = {}
        for number, owned in self._owned.items():
            if not owned.live:
                continue
            held = owned.held.values()
            marks[Partition(self._topic, number)] = min(
                (one.since for one in held), default=owned.position
            )
            if self._foreign:
                marks[Partition(self._foreign.full_name, number)] = min(
                    (one.foreign_since for one in held), default=owned.foreign_position
                )
        return marks

    # Inside.

    async def _fold(self, owned: _Owned[St], incoming: Incoming) -> _Held[St] | None:
        try:
            record = self._service.codec.decode(self._stream.record, incoming.value)
            key, step = self._stream.key_of(record), self._stream.step_of(record)
            if key != incoming.key:
                raise DecodeError(f"the record's key is {incoming.key!r}, its content says {key!r}")
            self._service.metrics.add(m.EVENTS_CONSUMED, topic=self._stream.topic.name)
            if key in owned.finished:
                return self._ignored("finished")
            held = owned.held.get(key)
            if held is None:
                if not self._stream.starts(record):
                    return self._ignored("unknown")
                held = await self._hold(owned, key, self._core.start(record), incoming)
            elif step in held.seen:
                return self._ignored("duplicate")
            else:
                self._core.apply(held.state, record)
        # Whatever a strange record sets off in a core is that record's fault, not the service's.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            await self._service.bury(incoming, reason)
            if self._refused is not None:
                await self._refused(incoming, reason)
            return None
        self._service.readable()
        held.seen.add(step)
        return held

    async def _hold(self, owned: _Owned[St], key: str, state: St, incoming: Incoming) -> _Held[St]:
        since = owned.foreign_position if owned.live else owned.foreign_start
        began_ms = incoming.timestamp_ms
        held = _Held(state, key, incoming.partition, incoming.offset, began_ms, since)
        owned.held[key] = self._by_key[key] = held
        for parked in owned.parked.pop(key, ()):
            await self._apply_foreign(state, parked)
        if owned.live:
            self._wake(key)
        return held

    async def _fold_foreign(self, owned: _Owned[St], incoming: Incoming) -> _Held[St] | None:
        assert self._foreign is not None
        self._service.metrics.add(m.EVENTS_CONSUMED, topic=self._foreign.name)
        held = owned.held.get(incoming.key)
        if held is not None:
            await self._apply_foreign(held.state, incoming)
        elif not owned.live:
            # Replay can bring it before the start of what it is about.
            _remember(owned.parked, incoming.key, [*owned.parked.get(incoming.key, ()), incoming])
        else:
            # About nothing that is held, so it changes nothing; but what nobody can read is buried.
            await self._service.read(incoming, self._foreign.record)
        return held

    async def _apply_foreign(self, state: St, incoming: Incoming) -> None:
        try:
            self._core.foreign(state, incoming)
        # As above: the record's fault.
        except Exception as error:
            await self._service.bury(incoming, f"{type(error).__name__}: {error}")
            return
        self._service.readable()

    def _ignored(self, why: str) -> _Held[St] | None:
        self._service.metrics.add(m.EVENTS_IGNORED, why=why)
        return None

    def _catch_up(self, number: int) -> None:
        owned = self._owned.get(number)
        if (
            owned is None
            or owned.live
            or owned.position < owned.end
            or owned.foreign_position < owned.foreign_end
        ):
            return
        owned.live = True
        owned.parked.clear()
        for held in list(owned.held.values()):
            self._wake(held.key)
            self._pursue(held)

    def _wake(self, key: str) -> None:
        for waiter in self._waiters.get(key, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _pursue(self, held: _Held[St]) -> None:
        if held.task is not None:
            return  # looked at again when the task is done
        if self._core.finished(held.state):
            owned = self._owned[held.partition]
            owned.held.pop(held.key, None)
            self._by_key.pop(held.key, None)
            _remember(owned.finished, held.key, None)
            return
        if self._act is None:
            return
        action = self._core.wants(held.state)
        if action is not None and action != held.done:
            held.task = asyncio.create_task(self._perform(held, action))

    async def _perform(self, held: _Held[St], action: Hashable) -> None:
        clock = self._service.clock
        try:
            async with self._slots:
                started = clock.monotonic()
                try:
                    await self._patiently(held.state, action)
                finally:
                    self._service.metrics.observe(
                        m.ACTION_SECONDS, clock.monotonic() - started, action=kind_of(action)
                    )
            held.done = action
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._service.fail(error)
            return
        finally:
            held.task = None
        if held.key in self._by_key:
            self._pursue(held)

    async def _patiently(self, state: St, action: Hashable) -> None:
        """Perform, waiting out a broker that is away; the ids are the same each time."""
        assert self._act is not None
        try:
            await self._act(state, action)
        except BusUnavailable:
            self._service.log.warning("waiting for the broker")
        else:
            return
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(BusUnavailable),
            wait=wait_exponential(multiplier=0.5, max=5),
            stop=stop_after_delay(OUTAGE_S),
            reraise=True,
        ):
            with attempt:
                self._service.metrics.add(m.RETRIES, what="action")
                await self._act(state, action)

    def _lag(self) -> int:
        marks = self.low_water_marks()
        return sum(
            owned.position - marks.get(Partition(self._topic, number), owned.position)
            for number, owned in self._owned.items()
        )

    def _age_s(self) -> float:
        began = [
            next(iter(owned.held.values())).began_ms  # held in the order of the log
            for owned in self._owned.values()
            if owned.live and owned.held
        ]
        return max(0.0, (self._service.clock.now_ms() - min(began)) / 1000) if began else 0.0


def kind_of(action: Hashable) -> str:
    """What an action is called, however many of its kind there are: its own name, or the first of
    a tuple's parts, or the name of its class."""
    first = action[0] if isinstance(action, tuple) else action
    return first if isinstance(first, str) else type(first).__name__.lower()


V = TypeVar("V")


def _remember(entries: OrderedDict[str, V], key: str, value: V) -> None:
    """Keep the latest entries only."""
    entries[key] = value
    entries.move_to_end(key)
    while len(entries) > FINISHED_REMEMBERED:
        entries.popitem(last=False)
