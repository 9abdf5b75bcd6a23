"""The user simulator as its own process, on the embedded broker."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.briefs import UserBrief
from schemas.latency import Latency
from schemas.pins import AGENDA
from schemas.topics import TRAJECTORIES
from schemas.trajectory import AgentTurn, Limits, SessionEnded, SessionStarted, TrajectoryEvent
from schemas.user import Persona, RecordedLine
from services.runtime.bus import BusProducer, BusSettings
from services.runtime.service import Publication, outgoing_record
from services.user_simulator.pacing import pause_ms
from tests.contract.bus_tools import eventually, producing
from tests.support.live import CODEC, Start, decoded, live_broker, live_services
from tests.support.users import REFUND, RETURN, brief, conversation


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[BusSettings]:
    with live_broker(tmp_path) as settings:
        yield settings


@pytest.fixture
def start(bus: BusSettings, tmp_path: Path) -> Iterator[Start]:
    with live_services(bus, tmp_path) as start:
        yield start


def event(session: str, step: str, kind: str, body: object, turn: int = 0, talk: int = 1) -> (
    TrajectoryEvent
):  # fmt: skip
    return TrajectoryEvent(
        event_id=f"{session}:{step}", session_id=session, run_id="r", kind=kind, turn=turn,
        conversation=talk, at_ms=1, **{kind: body},  # type: ignore[arg-type]
    )  # fmt: skip


def started(session: str, user_brief: str) -> TrajectoryEvent:
    body = SessionStarted(
        scenario_id="s", category="happy", trial=0, seed=1, suite="s", suite_hash="h",
        agent_id="a", agent_fingerprint="f", task_id=1, user_brief=user_brief, tool_brief="{}",
        limits=Limits(), conversations=2,
    )  # fmt: skip
    return event(session, "start", "session_started", body)


def agent(session: str, turn: int, text: str, talk: int = 1) -> TrajectoryEvent:
    body = AgentTurn(outcome="ok", final_response=text)
    return event(session, f"a{turn}", "agent_turn", body, turn, talk)


RECORDED = UserBrief(
    persona=Persona(name="plain"),
    seed=4,
    think=Latency(min_ms=1, max_ms=60),
    recording=tuple(
        RecordedLine.model_validate({"who": who, "text": text})
        for who, text in (
            ("user", "my kettle leaks"), ("agent", "What is your order number?"),
            ("user", "its ORD-4711"), ("agent", "A refund has been issued."),
            ("user", "great, bye"),
        )
    ),
)  # fmt: skip


class Log:
    """The trajectories topic, written and read."""

    def __init__(self, settings: BusSettings, producer: BusProducer) -> None:
        self._settings = settings
        self._producer = producer

    async def append(self, *events: TrajectoryEvent) -> None:
        await self._producer.append(
            [outgoing_record(CODEC, Publication(TRAJECTORIES, e.session_id, e)) for e in events]
        )

    def user_turns(self, session: str) -> list[tuple[int, int, str | None, str | None]]:
        """(turn, conversation, ending, invalid) of each, in log order, duplicates included."""
        return [
            (e.turn, e.conversation, e.user_turn.ending, e.user_turn.invalid)
            for e in self.events(session)
            if e.user_turn is not None
        ]

    def events(self, session: str) -> list[TrajectoryEvent]:
        events = decoded(self._settings, TRAJECTORIES, TrajectoryEvent)
        return [event for event in events if event.session_id == session]

    async def has(self, session: str, count: int) -> None:
        await eventually(
            lambda: len(self.user_turns(session)) >= count, 30, f"user turn {count} of {session}"
        )


@pytest.mark.req("D01", "V02", "V14")
def test_it_plays_over_the_log_and_goes_on_after_a_kill(
    bus: BusSettings, start: Start, tmp_path: Path
) -> None:
    user = brief(conversation(RETURN), conversation(REFUND)).model_dump_json()
    process = start("services.user_simulator")

    async def scenario() -> None:
        nonlocal process
        async with producing(bus) as producer:
            log = Log(bus, producer)
            await log.append(started("one", user), started("bad", "{}"))
            await log.has("one", 1)
            await log.has("bad", 1)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            # The answer comes while nobody is there to hear it.
            await log.append(agent("one", 1, "Your return has been created."))
            process = start("services.user_simulator")
            # It ends the first conversation, and opens the second of its own accord.
            await log.has("one", 3)
            await log.append(agent("one", 3, "You get it within 5 days.", 2))
            await log.has("one", 4)
            ended = SessionEnded(reason="goal_met")
            await log.append(event("one", "end", "session_ended", ended, 4, 2))
            await log.append(started("after", user))
            await log.has("after", 1)
            assert log.user_turns("one") == [
                (1, 1, None, None), (2, 1, "conversation_over", None), (3, 2, None, None),
                (4, 2, "goal_met", None),
            ]  # fmt: skip
            await log.append(started("recorded", RECORDED.model_dump_json()))
            await log.has("recorded", 1)
            await log.append(agent("recorded", 1, "What's the order number?"))
            await log.has("recorded", 2)
            await log.append(agent("recorded", 2, "And your date of birth?"))
            await log.has("recorded", 3)
            said = [e.user_turn for e in log.events("recorded") if e.user_turn]
            assert [turn.replayed for turn in said] == [True, True, False]
            assert [turn.think_ms for turn in said] == [pause_ms(RECORDED, n) for n in (1, 2, 3)]
            ((turn, _, ending, invalid),) = log.user_turns("bad")
            assert (turn, ending) == (1, None)
            assert "cannot be read" in (invalid or "")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0

    asyncio.run(scenario())
    assert AGENDA in (tmp_path / "services.user_simulator.log").read_text()
