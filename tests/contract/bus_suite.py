"""What every broker must do for the bus, and the bus for its users. Inherited once per broker.

What a broker cannot do is marked in its own module, as a strict expected failure with its reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from services.cli.stack.broker import EmbeddedBroker, KafkaBroker
from services.runtime.bus import (
    BusConsumer,
    BusProducer,
    BusSettings,
    BusTable,
    BusUnavailable,
    Incoming,
    Outgoing,
    Partition,
    RecordTooLarge,
    TopicSpec,
    beginning_offsets,
    create_topics,
    end_offsets,
    group_owners,
    partition_for,
    read_range,
)
from tests.contract.bus_tools import Recorder, consuming, eventually, numbered, producing

ROOT = Path(__file__).parents[2]
NewTopic = Callable[..., str]


class BusSuite:
    """Needs the fixtures `broker`, `settings` and `topic`, which the inheriting module provides."""

    @pytest.fixture(autouse=True)
    def _no_client_is_left(self) -> Iterator[None]:
        """A client that nobody closed goes on trying for as long as the process lives."""
        yield
        left = [t.name for t in threading.enumerate() if t.name.startswith("kafka-io-")]
        assert left == []

    joins_together = True
    """Whether a rebalance waits until every member has come, as Kafka's does. Without it members
    are not told apart in time: partitions that stay are taken away and given back, and records of
    partitions that move may be read by both."""

    # -- appending and reading

    def test_appends_are_read_back_in_order(self, settings: BusSettings, topic: NewTopic) -> None:
        name = topic(4)

        async def scenario() -> None:
            handler = Recorder()
            async with producing(settings) as producer:
                offsets = await producer.append(numbered(name, 40))
                again = await producer.append([Outgoing(name, "key-0", b"40", (("event", "a"),))])
                async with consuming(settings, f"{name}-g", [name], handler):
                    await eventually(lambda: len(handler.records) == 41)
            assert sorted(handler.values, key=int) == [str(n) for n in range(41)]
            for partition in range(4):
                assert handler.of(partition) == sorted(handler.of(partition))
            by_value = {record.value: record for record in handler.records}
            assert [by_value[str(n).encode()].offset for n in range(40)] == offsets
            last = by_value[b"40"]
            assert (last.offset, last.key, dict(last.headers)) == (
                again[0],
                "key-0",
                {"event": "a"},
            )
            assert last.partition == partition_for("key-0", 4)

        asyncio.run(scenario())

    def test_an_acknowledged_record_is_in_the_log(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            async with producing(settings) as producer:
                assert await producer.append(numbered(name, 3)) == [0, 1, 2]
                ends = await asyncio.to_thread(end_offsets, settings, name)
                assert ends == {0: 3}
                calls = (producer.append(numbered(name, 1, n)) for n in range(3, 203))
                offsets = await asyncio.gather(*calls)
                assert [offset for [offset] in offsets] == list(range(3, 203))
                assert producer.in_flight == 0

        asyncio.run(scenario())
        assert beginning_offsets(settings, name) == {0: 0}

    def test_a_large_record_is_refused_and_nothing_of_its_call_is_sent(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            async with producing(settings) as producer:
                fits = Outgoing(name, "k", b"x" * (settings.max_record_bytes - 1000))
                assert await producer.append([fits]) == [0]
                huge = Outgoing(name, "k", b"x" * (settings.max_record_bytes + 1))
                with pytest.raises(RecordTooLarge, match="max_record_bytes"):
                    await producer.append([*numbered(name, 2), huge])
                assert await producer.append(numbered(name, 1)) == [1]

        asyncio.run(scenario())

    def test_what_only_the_broker_finds_too_large_is_refused_too(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            generous = BusSettings(
                settings.bootstrap, max_record_bytes=20_000_000, **self.options(settings)
            )
            async with producing(generous) as producer:
                with pytest.raises(RecordTooLarge):
                    await producer.append([Outgoing(name, "k", b"x" * 5_000_000)])
                assert await producer.append(numbered(name, 1)) == [0]
                assert producer.replaced == 1

        asyncio.run(scenario())

    def test_skipped_records_still_advance_the_positions(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            handler = Recorder()
            async with producing(settings) as producer:
                await producer.append(
                    [
                        Outgoing(name, "k", str(n).encode(), (("kind", "ab"[n % 2]),))
                        for n in range(9)
                    ]
                )
            async with consuming(
                settings,
                f"{name}-g",
                [name],
                handler,
                accept=lambda _, headers: headers["kind"] == "b",
            ):
                await eventually(lambda: handler.positions == {Partition(name, 0): 9})
            assert handler.values == ["1", "3", "5", "7"]

        asyncio.run(scenario())

    def test_bytes_that_are_not_text_do_not_stop_a_reader(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        from kafka import KafkaProducer

        name = topic(1)
        raw = KafkaProducer(bootstrap_servers=settings.bootstrap)
        raw.send(name, key=b"\xff\xfe", value=b"\x80", headers=[("h", b"\xff")]).get(10)
        raw.send(name, value=b"no key").get(10)
        raw.close()
        keyless = list(read_range(settings, name, 0, 0, 2))
        assert [record.key for record in keyless] == ["\ufffd\ufffd", ""]
        assert dict(keyless[0].headers) == {"h": "\ufffd"}

    # -- groups

    def test_a_group_resumes_at_its_low_water_mark(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)
        only = Partition(name, 0)

        class Half(Recorder):
            def low_water_marks(self) -> dict[Partition, int]:
                return {only: 5} if self.positions else {}

        async def scenario() -> None:
            first, second = Half(), Recorder()
            async with producing(settings) as producer:
                await producer.append(numbered(name, 9))
            async with consuming(settings, f"{name}-g", [name], first):
                await eventually(lambda: len(first.records) == 9)
            assert first.spans[only] == (0, 9)
            async with consuming(settings, f"{name}-g", [name], second):
                await eventually(lambda: len(second.records) == 4)
            assert second.spans[only] == (5, 9)
            assert second.of(0) == [5, 6, 7, 8]

        asyncio.run(scenario())

    def test_partitions_move_when_a_member_joins_and_leaves(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name, twin = topic(4), topic(4)

        async def scenario() -> None:
            one, two = Recorder(), Recorder()
            group = f"{name}-g"
            async with (
                producing(settings) as producer,
                consuming(settings, group, [name, twin], one, "one"),
            ):
                await producer.append(numbered(name, 50))
                await eventually(lambda: len(one.records) == 50 and len(one.owned) == 8)
                second = BusConsumer(
                    settings, group, [name, twin], two, "two", commit_interval_s=0.2
                )
                await second.start()
                took = await eventually(lambda: len(one.owned) == 4 and len(two.owned) == 4)
                # Topics with equal partition counts are owned together.
                for handler in (one, two):
                    mine = {n for t, n in handler.owned if t == name}
                    assert mine == {n for t, n in handler.owned if t == twin}
                assert not one.owned & two.owned
                if self.joins_together:
                    # What stayed was not taken away in between; what moved starts at the mark.
                    assert [what for what, _ in one.log] == ["assigned", "revoked"]
                    assert all(span.start == span.end for span in two.spans.values())
                await self.owned_by(settings, group, name, {"one": 2, "two": 2})
                await producer.append(numbered(name, 50, 50))
                await eventually(lambda: len({*one.values, *two.values}) == 100)
                await second.stop(5.0)
                assert not two.owned
                back = await eventually(lambda: len(one.owned) == 8)
                await producer.append(numbered(name, 50, 100))
                await eventually(lambda: len({*one.values, *two.values}) == 150)
            if self.joins_together:
                assert len(one.values + two.values) == 150, "records were read twice"
            print(f"rebalance: joined in {took:.2f} s, left in {back:.2f} s")

        asyncio.run(scenario())

    def test_a_killed_static_member_replays_from_its_mark_at_once(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            async with producing(settings) as producer:
                await producer.append(numbered(name, 20))
            with self.member(settings, f"{name}-g", name, "replica-1", mark=7) as victim:
                await asyncio.to_thread(self.read_until, victim, 20)
                await asyncio.sleep(0.6)  # a commit of the mark goes out every tenth of a second
                victim.kill()
                victim.wait()
            handler = Recorder()
            async with consuming(settings, f"{name}-g", [name], handler, instance_id="replica-1"):
                took = await eventually(lambda: len(handler.records) == 13, 20)
            assert handler.of(0) == list(range(7, 20))
            assert took < settings.session_timeout_ms / 1000, took

        asyncio.run(scenario())

    def test_a_killed_member_is_replaced_by_the_others(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(2)

        async def scenario() -> None:
            handler = Recorder()
            with self.member(settings, f"{name}-g", name, "", mark=0) as victim:
                async with (
                    producing(settings) as producer,
                    consuming(settings, f"{name}-g", [name], handler),
                ):
                    await eventually(lambda: len(handler.owned) == 1)
                    await producer.append(numbered(name, 20))
                    victim.kill()
                    victim.wait()
                    limit = settings.session_timeout_ms / 1000 + 5
                    took = await eventually(lambda: len(handler.owned) == 2, limit)
                    await eventually(lambda: len(handler.records) == 20)
            print(f"killed member replaced in {took:.2f} s")

        asyncio.run(scenario())

    def test_a_slow_handler_holds_reading_back_and_keeps_its_place(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(2)
        # The handler is slower than a member may be silent: only polling on keeps it in the group.
        tight = BusSettings(
            settings.bootstrap, rebalance_timeout_ms=1_500, **self.options(settings)
        )

        async def scenario() -> None:
            handler = Recorder(delay_s=2.5)
            async with producing(settings) as producer:
                await producer.append(numbered(name, 400))
            async with consuming(
                tight, f"{name}-g", [name], handler, max_records=20, max_outstanding=60
            ) as consumer:
                await eventually(lambda: consumer.outstanding >= 60)
                most = 0
                for _ in range(40):
                    most = max(most, consumer.outstanding)
                    await asyncio.sleep(0.1)
                assert 60 <= most < 60 + 2 * 20 + 2, most
                assert [what for what, _ in handler.log] == ["assigned"]
                handler.delay_s = 0
                await eventually(lambda: len(handler.records) == 400)
            assert sorted(map(int, handler.values)) == list(range(400))

        asyncio.run(scenario())

    def test_a_failing_handler_ends_its_consumer_loudly(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            handler, heir = Recorder(fails_at=3), Recorder()
            async with producing(settings) as producer:
                await producer.append(numbered(name, 3))
            async with consuming(settings, f"{name}-g", [name], handler) as consumer:
                with pytest.raises(ZeroDivisionError, match="own fault"):
                    await asyncio.wait_for(consumer.wait_failed(), 10)
            async with consuming(settings, f"{name}-g", [name], heir) as consumer:
                await eventually(lambda: len(heir.records) == 3)
                waiting = asyncio.create_task(consumer.wait_failed())
            await asyncio.wait_for(waiting, 5)

        asyncio.run(scenario())

    # -- tables, ranges, topics

    def test_a_table_is_complete_at_its_start_and_follows(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(2, {"cleanup.policy": "compact"})

        async def scenario() -> None:
            state: dict[str, bytes] = {}

            def apply(record: Incoming) -> None:
                if record.is_tombstone:
                    state.pop(record.key, None)
                else:
                    state[record.key] = record.value

            async with producing(settings) as producer:
                await producer.append([Outgoing(name, f"k{n % 10}", b"%d" % n) for n in range(95)])
                await producer.append([Outgoing(name, "k3", b"")])
                table = BusTable(settings, name, apply, "table")
                await table.start()
                expected = {f"k{n % 10}": b"%d" % n for n in range(95)}
                del expected["k3"]
                assert state == expected
                assert table.lag() == 0
                await producer.append([Outgoing(name, "k0", b"new"), Outgoing(name, "k1", b"")])
                await eventually(lambda: state.get("k0") == b"new" and "k1" not in state)
                await table.stop()

            def broken(record: Incoming) -> None:
                raise ZeroDivisionError

            failing = BusTable(settings, name, broken, "table")
            with pytest.raises(ZeroDivisionError):
                await failing.start()
            await failing.stop()
            missing = BusTable(settings, f"{name}-missing", apply, "table")
            with pytest.raises(BusUnavailable, match="does not exist"):
                await missing.start()
            await missing.stop()

        asyncio.run(scenario())

    @pytest.mark.req("D07")
    @pytest.mark.parametrize(("last", "known"), [(0, 0), (4, 4), (100, 10)])
    def test_a_tail_begins_so_many_records_before_the_end(
        self, settings: BusSettings, topic: NewTopic, last: int, known: int
    ) -> None:
        name = topic(1)
        applied: list[int] = []

        async def scenario() -> None:
            async with producing(settings) as producer:
                await producer.append(numbered(name, 10))
                tail = BusTable(
                    settings, name, lambda record: applied.append(record.offset), "tail", last=last
                )
                await tail.start()
                try:
                    assert applied == list(range(10 - known, 10))
                    await producer.append(numbered(name, 2))
                    await eventually(lambda: applied[known:] == [10, 11])
                finally:
                    await tail.stop()

        asyncio.run(scenario())

    def test_a_range_is_read_within_its_bounds(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(1)

        async def scenario() -> None:
            async with producing(settings) as producer:
                await producer.append(numbered(name, 30))

        asyncio.run(scenario())
        offsets = [record.offset for record in read_range(settings, name, 0, 4, 27)]
        assert offsets == list(range(4, 27))
        assert list(read_range(settings, name, 0, 30, 30)) == []
        with pytest.raises(ValueError, match="holds offsets 0 to 30"):
            list(read_range(settings, name, 0, 0, 31))

    def test_creating_topics_again_changes_nothing(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(3)
        outcome = create_topics(settings, [TopicSpec(name, 5), TopicSpec(f"{name}-new", 2)])
        assert (outcome.created, outcome.existed) == ((f"{name}-new",), (name,))
        assert sorted(end_offsets(settings, name)) == [0, 1, 2]

    def test_owners_of_an_unknown_group_are_none(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        assert group_owners(settings, "nobody", topic(1)) == {}

    def test_a_static_member_is_known_by_the_client_id_it_came_back_with(
        self, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(2)

        async def scenario() -> None:
            for client in ("service@http://here:1", "service@http://there:2"):
                async with consuming(
                    settings, f"{name}-g", [name], Recorder(), client, instance_id="one"
                ):
                    await self.owned_by(settings, f"{name}-g", name, {client: 2})

        asyncio.run(scenario())

    # -- outages

    def test_an_outage_fails_appends_in_time_and_loses_nothing_acknowledged(
        self, broker: EmbeddedBroker | KafkaBroker, settings: BusSettings, topic: NewTopic
    ) -> None:
        name = topic(2)

        async def scenario() -> None:
            handler = Recorder()
            async with (
                producing(settings) as producer,
                consuming(settings, f"{name}-g", [name], handler),
            ):
                acknowledged = await self.append_all(producer, name, 0, 100)
                await eventually(lambda: len(handler.records) == 100)
                await asyncio.to_thread(broker.stop)
                began = time.monotonic()
                with pytest.raises(BusUnavailable):
                    await producer.append(numbered(name, 1, 10_000), timeout_s=1.0)
                assert 0.9 < time.monotonic() - began < 2.0
                with pytest.raises(BusUnavailable):
                    await asyncio.to_thread(
                        end_offsets, BusSettings(settings.bootstrap, connect_timeout_ms=500), name
                    )
                # From this thread: the broker dies with the thread that started it.
                broker.start()
                began = time.monotonic()
                acknowledged |= await self.append_all(producer, name, 100, 200)
                appended = time.monotonic() - began
                seen = eventually(lambda: acknowledged <= set(handler.values), 30, "reading on")
                consumed = await seen
                print(f"after a restart: appended in {appended:.2f} s, read after {consumed:.2f} s")
            assert acknowledged == {str(n) for n in range(200)}
            assert handler.log[0][0] == "assigned"

        asyncio.run(scenario())

    # -- tools

    @staticmethod
    async def owned_by(
        settings: BusSettings, group: str, name: str, expected: dict[str, int]
    ) -> None:
        """Wait until the broker names these owners: while it rebalances it names none."""
        counts: Counter[str] = Counter()
        for _ in range(300):
            # A broker that has just started has no coordinator for a while.
            with suppress(BusUnavailable):
                owners = await asyncio.to_thread(group_owners, settings, group, name)
                counts = Counter(owners.values())
            if counts == expected:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"owners are {dict(counts)}, expected {expected}")

    @staticmethod
    async def append_all(producer: BusProducer, name: str, first: int, end: int) -> set[str]:
        """Append one by one, again while the broker is unavailable; what was acknowledged."""
        done = set()
        for n in range(first, end):
            for _ in range(30):
                try:
                    await producer.append(numbered(name, 1, n), timeout_s=2.0)
                except BusUnavailable:
                    continue
                done.add(str(n))
                break
        return done

    @staticmethod
    def options(settings: BusSettings) -> dict[str, Any]:
        return {
            "poll_pause_max_ms": settings.poll_pause_max_ms,
            "session_timeout_ms": settings.session_timeout_ms,
            "heartbeat_interval_ms": settings.heartbeat_interval_ms,
        }

    def member(
        self, settings: BusSettings, group: str, name: str, instance: str, mark: int
    ) -> subprocess.Popen[bytes]:
        """A group member in a process of its own, running once it has printed something."""
        arguments = [settings.bootstrap, group, name, instance, str(mark)]
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.contract.bus_member",
                *arguments,
                json.dumps(self.options(settings)),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    @staticmethod
    def read_until(member: subprocess.Popen[bytes], count: int) -> None:
        assert member.stdout is not None
        for line in member.stdout:
            if line.split() == [b"read", str(count).encode()]:
                return
        raise AssertionError("the member ended before it had read everything")


def bus_settings(broker: EmbeddedBroker | KafkaBroker) -> BusSettings:
    """Impatient settings: tests should not wait for anybody."""
    return BusSettings(
        broker.bootstrap,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        request_timeout_ms=5_000,
        delivery_timeout_ms=8_000,
        **dict[str, Any](broker.bus_options),
    )


def topic_maker(settings: BusSettings) -> Iterator[NewTopic]:
    """Creates topics with names of their own."""
    prefix = f"t{os.getpid()}-{time.monotonic_ns()}"
    made: list[str] = []

    def make(partitions: int, config: dict[str, str] | None = None) -> str:
        name = f"{prefix}-{len(made)}"
        made.append(name)
        create_topics(settings, [TopicSpec(name, partitions, config or {})])
        return name

    yield make
