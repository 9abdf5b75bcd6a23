"""The shell's guarantees: act only on whole histories, first write wins, effects before offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest

from schemas.codec import Codec
from schemas.runs import SessionNotice
from schemas.topics import DEAD_LETTERS, SCORES, TRAJECTORIES
from schemas.trajectory import (
    Limits,
    SessionEnded,
    SessionStarted,
    TrajectoryEvent,
    UserTurn,
)
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from services.runtime.service import DeadLetterLimit
from services.runtime.sessions import SessionTable
from services.runtime.settings import Settings
from tests.support.services import OfflineService

CODEC = Codec()
P0 = Partition(TRAJECTORIES.full_name, 0)
S0 = Partition(SCORES.full_name, 0)


@dataclass
class State:
    session_id: str
    turns: list[str] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)
    over: bool = False


class EchoCore:
    """Wants one deed for each user turn; finished at the end of the session."""

    def start(self, event: TrajectoryEvent) -> State:
        return State(event.session_id)

    def apply(self, state: State, event: TrajectoryEvent) -> None:
        if event.user_turn is not None:
            if event.user_turn.text == "explode":
                raise ValueError("cannot be applied")
            state.turns.append(event.user_turn.text)
        state.over = event.session_ended is not None

    def foreign(self, state: State, incoming: Incoming) -> None:
        CODEC.decode(SessionNotice, incoming.value)
        state.foreign.append(incoming.offset)

    def wants(self, state: State) -> Hashable | None:
        return ("echo", len(state.turns)) if state.turns and not state.over else None

    def finished(self, state: State) -> bool:
        return state.over


def record(offset: int, session: str, step: str, **body: Any) -> Incoming:
    event = TrajectoryEvent(
        event_id=f"{session}:{step}", session_id=session, run_id="r", kind=next(iter(body)),
        at_ms=1, **body,
    )  # fmt: skip
    return Incoming(P0.topic, 0, offset, session, CODEC.encode(event), {}, 0)


def start(offset: int, session: str) -> Incoming:
    body = SessionStarted(
        scenario_id="x", category="happy", trial=0, seed=1, suite="s", suite_hash="h",
        agent_id="a", agent_fingerprint="f", task_id=1, user_brief="", tool_brief="",
        limits=Limits(),
    )  # fmt: skip
    return record(offset, session, "start", session_started=body)


def said(offset: int, session: str, n: int, text: str = "hi") -> Incoming:
    return record(offset, session, f"u{n}", user_turn=UserTurn(text=text))


def ended(offset: int, session: str) -> Incoming:
    return record(offset, session, "end", session_ended=SessionEnded(reason="goal_met"))


class Harness:
    """A table, its service, and what was performed."""

    def __init__(self, settings: Settings | None = None, **more: Any) -> None:
        self.service = OfflineService(settings)
        self.done: list[tuple[str, Hashable]] = []
        self.table: SessionTable[State] = SessionTable(self.service, EchoCore(), self._act, **more)

    async def _act(self, state: State, action: Hashable) -> None:
        await asyncio.sleep(0)
        self.done.append((state.session_id, action))

    async def give(self, *records: Incoming, position: int | None = None) -> None:
        await self.table.batch(records, {P0: position or records[-1].offset + 1})
        for _ in range(10):
            await asyncio.sleep(0)


def run(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(body())  # type: ignore[arg-type]


def test_nothing_is_done_before_the_history_has_been_read() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 3)})
        assert not h.table.owns(0)
        await h.give(start(0, "s"), said(1, "s", 1))
        assert h.done == []
        assert h.table.get("s") is None
        assert h.service.waiting_for() == ["replay of trajectories"]
        await h.give(said(2, "s", 2))
        # Only what is due at the end of the history, not what once was.
        assert h.done == [("s", ("echo", 2))]
        assert h.table.get("s") is not None
        assert h.service.waiting_for() == []

    run(body)


def test_a_second_event_with_the_same_id_changes_nothing() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        await h.give(start(0, "s"), said(1, "s", 1, "first"), said(2, "s", 1, "second"))
        state = h.table.get("s")
        assert state is not None
        assert state.turns == ["first"]
        assert h.done == [("s", ("echo", 1))]

    run(body)


def test_the_same_deed_is_done_once_however_often_the_session_is_looked_at() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        await h.give(start(0, "s"), said(1, "s", 1))
        for _ in range(3):
            h.table.pursue("s")
            await asyncio.sleep(0)
        assert h.done == [("s", ("echo", 1))]

    run(body)


def test_the_low_water_mark_is_the_oldest_session_that_is_not_finished() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        await h.give(start(0, "old"), start(1, "new"), said(2, "new", 1))
        assert h.table.low_water_marks() == {P0: 0}
        await h.give(ended(3, "old"))
        assert h.table.low_water_marks() == {P0: 1}
        await h.give(ended(4, "new"))
        assert h.table.low_water_marks() == {P0: 5}
        await h.table.batch([], {P0: 40})
        assert h.table.low_water_marks() == {P0: 40}

    run(body)


def test_a_partition_that_is_not_read_to_its_end_commits_nothing() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 10)})
        await h.give(start(0, "s"))
        assert h.table.low_water_marks() == {}

    run(body)


def test_events_of_a_finished_session_do_not_revive_it() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        await h.give(start(0, "s"), ended(1, "s"))
        assert h.table.has_finished("s")
        await h.give(start(2, "s"), said(3, "s", 1))
        assert h.table.get("s") is None
        assert h.done == []

    run(body)


def test_revoking_drops_the_states_and_stops_what_was_going_on() -> None:
    async def body() -> None:
        h = Harness()
        hanging = asyncio.Event()
        cancelled = asyncio.Event()

        async def hang(_: State, __: Hashable) -> None:
            hanging.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        h.table = SessionTable(h.service, EchoCore(), hang)
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        await h.table.batch([start(0, "s"), said(1, "s", 1)], {P0: 2})
        await hanging.wait()
        await h.table.revoked([P0])
        assert cancelled.is_set()
        assert h.table.low_water_marks() == {}
        assert h.table.get("s") is None

    run(body)


def test_a_failing_deed_stops_the_service() -> None:
    async def body() -> None:
        h = Harness()

        async def fail(_: State, __: Hashable) -> None:
            raise RuntimeError("broken")

        h.table = SessionTable(h.service, EchoCore(), fail)
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        await h.give(start(0, "s"), said(1, "s", 1))
        with pytest.raises(RuntimeError, match="broken"):
            h.service.failed.result()

    run(body)


def test_poisoned_records_are_buried_and_the_rest_goes_on() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        wrong_key = start(1, "other")
        poisoned = [
            Incoming(P0.topic, 0, 0, "s", b"junk", {}, 0),
            Incoming(P0.topic, 0, 1, "s", wrong_key.value, {}, 0),
            said(3, "s", 1, "explode"),
        ]
        await h.give(poisoned[0], poisoned[1], start(2, "s"), poisoned[2], said(4, "s", 2))
        letters = [p.record for p in h.service.published if p.topic is DEAD_LETTERS]
        assert [letter.offset for letter in letters] == [0, 1, 3]
        assert [letter.value for letter in letters] == [one.value for one in poisoned]
        assert "cannot be applied" in letters[2].error
        assert h.done == [("s", ("echo", 1))]

    run(body)


def test_too_many_dead_letters_stop_the_service() -> None:
    async def body() -> None:
        h = Harness(Settings(dead_letter_window=10, dead_letter_ratio=0.5))
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        with pytest.raises(DeadLetterLimit, match="of the last 10 records"):
            await h.give(*(Incoming(P0.topic, 0, i, "s", b"junk", {}, 0) for i in range(11)))

    run(body)


def notice(offset: int, session: str) -> Incoming:
    value = SessionNotice(
        run_id="r", session_id=session, scenario_id="x", category="happy", trial=0, what="scored"
    )
    return Incoming(S0.topic, 0, offset, session, CODEC.encode(value), {}, 0)


def test_a_companion_topic_may_be_replayed_before_the_sessions_it_is_about() -> None:
    async def body() -> None:
        h = Harness(foreign=SCORES)
        await h.table.assigned({P0: PartitionSpan(0, 1), S0: PartitionSpan(5, 7)})
        await h.table.batch([notice(5, "s"), notice(6, "gone")], {S0: 7})
        await h.give(start(0, "s"))
        state = h.table.get("s")
        assert state is not None
        assert state.foreign == [5]
        # What was read of the companion while replaying must be found again after a crash.
        assert h.table.low_water_marks() == {P0: 0, S0: 5}
        await h.give(ended(1, "s"))
        assert h.table.low_water_marks() == {P0: 2, S0: 7}

    run(body)


def test_waiting_for_a_session_is_bounded_and_ends_when_it_is_read() -> None:
    async def body() -> None:
        h = Harness()
        await h.table.assigned({P0: PartitionSpan(0, 0)})
        assert await h.table.wait_for("s", 0.01) is None
        waiting = asyncio.create_task(h.table.wait_for("s", 5))
        await asyncio.sleep(0)
        await h.give(start(0, "s"))
        state = await waiting
        assert state is not None
        assert state.session_id == "s"

    run(body)
