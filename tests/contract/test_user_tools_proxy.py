"""V05, D01, dual control: the tool proxy does what the user asks for, once, in the one world."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.briefs import ToolBrief
from schemas.trajectory import ToolCalled, TrajectoryEvent
from services.judge.trajectory import read
from services.runtime.bus.errors import BusUnavailable
from services.tool_proxy.session import ProxyCore
from tests.support.dual import PHONE, acts, ends, started, tool_brief
from tests.support.tool_proxy import Bench, MemoryLog, answer_of


def new_log() -> MemoryLog:
    return MemoryLog(ProxyCore({"phone": PHONE}))


class Phone(Bench):
    """A proxy that works on a phone, and performs what the user asks for as the table would."""

    def __init__(
        self, brief: ToolBrief | None = None, *, log: MemoryLog | None = None, **limits: Any
    ) -> None:
        super().__init__(log=log or new_log(), **limits)
        if log is None:
            self.log.put(started(tools=brief))

    async def perform(self) -> None:
        """All that is due, as the session table has it done: the same deed once."""
        done = None
        while (state := self.log.get("s1")) and (due := self.log.core.wants(state)) not in (
            None, done,
        ):  # fmt: skip
            await self.proxy.user_calls.perform(state)
            done = due

    async def act(self, call: int, tool: str, turn: int = 2, **arguments: Any) -> ToolCalled:
        self.log.put(acts(call, turn, tool, json.dumps(arguments)))
        await self.perform()
        return self.results()[call - 1]

    def results(self) -> list[ToolCalled]:
        return [call for call in self.log.calls() if call.requestor == "user"]

    @property
    def state(self) -> Any:
        current = self.log.table["s1"].current
        return None if current is None else json.loads(current)

    def restarted(self) -> Phone:
        """Another replica that reads the same log from its beginning."""
        log = new_log()
        log.records = list(self.log.records)
        log.read_back()
        return Phone(log=log)


def phone(work: Callable[[Phone], Awaitable[None]], *args: Any, **limits: Any) -> None:
    async def run() -> None:
        bench = Phone(*args, **limits)
        try:
            await work(bench)
        finally:
            bench.close()

    asyncio.run(run())


@pytest.mark.req("V05", "D01")
def test_user_and_agent_change_one_world_each_with_tools_of_its_own() -> None:
    async def work(bench: Phone) -> None:
        first = answer_of(await bench.call("refresh_line"))
        assert first["response"] == {"connected": False}
        called = await bench.act(1, "set_airplane_mode", on=False)
        assert (called.call, called.requestor, called.error_code) == (1, "user", None)
        assert json.loads(called.response) == {"airplane_mode": "off"}
        assert json.loads(called.state_patch or "")[-1]["path"] == "/airplane_mode"
        second = answer_of(await bench.call("refresh_line", turn=2, posting=2))
        assert second["response"] == {"connected": True}
        assert bench.state == {"airplane_mode": False, "refreshed": 1, "pin": "4711"}
        assert [event.step for event in bench.log.events()] == ["start", "t1", "c1", "r1", "t2"]
        trajectory = read([*bench.log.events(), ends(2)])
        assert trajectory.world is not None
        assert trajectory.world.end == bench.state

    phone(work)


@pytest.mark.req("V05", "V14")
def test_neither_can_use_what_is_the_others() -> None:
    async def work(bench: Phone) -> None:
        # They are registered with the agent, and still not there for it.
        for tool in PHONE.user_tools():
            reply = await bench.call(tool, {"on": False})
            assert (reply.status, answer_of(reply)["error"]["code"]) == (404, "tool_unknown")
        called = await bench.act(1, "refresh_line")
        assert (called.status, called.error_code, called.state_patch) == (404, "tool_unknown", None)
        assert "You have no tool named refresh_line" in called.response
        assert bench.state["airplane_mode"] is True

    phone(work)


def test_what_the_scenario_does_not_give_the_user_nobody_has() -> None:
    async def work(bench: Phone) -> None:
        assert (await bench.act(1, "unlock", pin="4711")).error_code == "tool_unknown"
        assert (await bench.call("unlock", {"pin": "4711"})).status == 404
        # A scenario that gives the user what the world has for agents is at fault, not the agent.
        called = await bench.act(2, "refresh_line")
        assert (called.error_code, called.status) == ("tool_unavailable", 501)
        assert (await bench.call("refresh_line", posting=2)).status == 404

    phone(work, tool_brief(user_tools=("roll", "refresh_line")))


@pytest.mark.req("V05", "V06")
def test_failures_rules_and_limits_are_for_the_agent_alone() -> None:
    brief = tool_brief(
        failures=({"id": "down", "tool": "*", "kind": "outage", "calls": (1,)},),
        rules=({"id": "r", "tool": "*", "respond": {"ruled": True}},),
        max_calls=1, calls_per_minute=1,
    )  # fmt: skip

    async def work(bench: Phone) -> None:
        for call in range(1, 5):
            called = await bench.act(call, "set_airplane_mode", on=False)
            assert (called.error_code, called.injection, called.source) == (None, None, "odyssey")
        reply = await bench.call("refresh_line")
        assert answer_of(reply)["response"]["error"]["code"] == "outage"
        assert [c.call for c in bench.log.calls()] == [1, 2, 3, 4, 1]

    phone(work, brief)


def test_what_the_user_gets_wrong_is_an_answer_and_no_fault() -> None:
    async def work(bench: Phone) -> None:
        wrong = await bench.act(1, "unlock", pin=4711)
        assert (wrong.error_code, wrong.status) == ("arguments_invalid", 422)
        refused = await bench.act(2, "unlock", pin="1234")
        assert refused.error_code is None
        assert json.loads(refused.response)["error"]["code"] == "wrong_pin"
        for call, raw in enumerate(("", "[1]", "{", '{"a": NaN}'), 3):
            bench.log.put(acts(call, 2, "unlock", raw))
            await bench.perform()
            assert bench.results()[-1].error_code == "arguments_invalid"
        right = await bench.act(7, "unlock", pin="4711")
        assert (right.response, right.response_is_text) == ("unlocked", True)

    phone(work)


@pytest.mark.req("D01", "D02")
def test_a_call_is_made_once_however_often_it_is_asked_for_and_whoever_asks() -> None:
    async def work(bench: Phone) -> None:
        called = await bench.act(1, "roll")
        for _ in range(3):
            bench.log.put(acts(1, 2, "roll"))  # redelivered
            await bench.perform()
        assert bench.results() == [called]
        # Another replica finds it in the log, and its next random is that of the second call.
        other = bench.restarted()
        await other.perform()
        assert (other.results(), other.state) == ([called], bench.state)
        mine, others = await bench.act(2, "roll"), await other.act(2, "roll")
        assert mine == others
        assert mine.response != called.response
        other.close()

    phone(work)


@pytest.mark.req("D01", "D02")
@pytest.mark.parametrize("failing", ["lost", "landed"])
def test_a_broker_that_does_not_answer_makes_no_call_twice(failing: str) -> None:
    async def work(bench: Phone) -> None:
        bench.log.reads_back = False
        bench.log.put(acts(1, 2, "roll"))
        bench.log.read_back()
        bench.log.failing = failing
        state = bench.log.table["s1"]
        for _ in range(2):
            with pytest.raises(BusUnavailable):
                await bench.proxy.user_calls.perform(state)
        bench.log.failing = ""
        await bench.proxy.user_calls.perform(state)
        await bench.proxy.user_calls.perform(state)
        bench.log.reads_back = True
        bench.log.read_back()
        assert len(bench.results()) == 1
        assert bench.state["rolled"] == json.loads(bench.results()[0].response)["rolled"]
        assert bench.log.core.wants(bench.log.table["s1"]) is None
        # What an agent does next is done on the world as the user left it.
        assert (await bench.call("refresh_line")).status == 200
        assert bench.log.calls()[-1].state_hash == bench.restarted().log.calls()[-1].state_hash

    phone(work)


def test_a_session_that_is_over_or_elsewhere_is_left_alone() -> None:
    async def work(bench: Phone) -> None:
        bench.log.put(acts(1, 2, "roll"))
        state = bench.log.table["s1"]
        bench.log.owned = False
        await bench.proxy.user_calls.perform(state)
        bench.log.owned = True
        bench.log.put(ends(2))
        await bench.proxy.user_calls.perform(state)
        assert bench.results() == []

    phone(work)


def test_a_world_that_hangs_is_answered_for() -> None:
    async def work(bench: Phone) -> None:
        called = await bench.act(1, "roll")
        assert (called.error_code, called.status) == ("world_unknown", 501)

    phone(work, tool_brief(world={"name": "elsewhere"}))


STEPS = ("user", "agent", "again", "restart")


@pytest.mark.req("D02", "V05")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=12))
def test_whatever_comes_again_or_is_restarted_the_log_is_the_same(steps: list[str]) -> None:
    """Calls of both in any order, redelivered and resumed: as if nothing had happened."""

    async def play(disturbed: bool) -> list[TrajectoryEvent]:
        bench, calls, turn = Phone(), 0, 1
        for step in steps:
            if step == "user":
                calls += 1
                await bench.act(calls, "roll", turn=turn)
            elif step == "agent":
                turn += 1
                await bench.call("refresh_line", turn=turn, posting=turn)
            elif disturbed and step == "again" and calls:
                bench.log.put(*bench.log.events()[1:])
                await bench.perform()
            elif disturbed and step == "restart":
                bench.close()
                bench = bench.restarted()
                await bench.perform()
        bench.close()
        return bench.log.events()

    assert asyncio.run(play(True)) == asyncio.run(play(False))
