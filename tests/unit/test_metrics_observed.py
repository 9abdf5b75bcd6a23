"""D07: what the metrics say is what was done."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

import pytest

from schemas.briefs import ToolSpec
from schemas.codec import Codec
from schemas.registry import Suite
from schemas.runs import RunRequest, SessionNotice
from schemas.scenario import Scenario
from schemas.topics import RUN_PROGRESS, SCORES, TRAJECTORIES
from services.dispatcher.expansion import make_plan
from services.dispatcher.run_core import Accept, Admit, Complete, RunCore, RunState
from services.dispatcher.session_core import End, Notify, Post
from services.runtime import metrics as m
from services.runtime.bus.handler import PartitionSpan
from services.runtime.bus.records import Incoming, Partition
from services.runtime.metrics import Metric, Metrics
from services.runtime.sessions import SessionTable
from services.runtime.slots import Slots
from services.runtime.state_table import kind_of
from services.tool_proxy.answer import Call, Made, Question
from services.tool_proxy.errors import Refused
from services.tool_proxy.passthrough import RealAnswer, RealCall
from services.tool_proxy.session import SessionState
from tests.support.services import OfflineService
from tests.support.tool_proxy import Bench, make_brief, make_world, specs
from tests.unit.test_runtime_state_table import P0, EchoCore, ended, said, start
from tests.unit.test_tool_proxy_passthrough import TOOLS

pytestmark = pytest.mark.req("D07")
CODEC = Codec()


def value(metrics: Metrics, metric: Metric, suffix: str = "", **labels: str) -> float | None:
    """A sample as a scrape would have it; None where there is none."""
    return metrics.registry.get_sample_value(metric.name + suffix, labels)


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        ([Post(1), Post(2)], "post"),
        ([End("agent_error", "x"), End("goal_met", "y")], "end"),
        ([Notify()], "notify"),
        ([Accept()], "accept"),
        ([Admit(0, 1), Admit(1, 700)], "admit"),
        ([Complete()], "complete"),
        ([("user", 1), ("user", 2, 9)], "user"),
        (["score"], "score"),
    ],
)
def test_an_action_is_named_by_its_kind_alone(actions: list[Hashable], kind: str) -> None:
    assert {kind_of(action) for action in actions} == {kind}
    assert any((kind,) in known for known in m.ACTION_SECONDS.by.values())


def test_actions_of_many_sessions_are_one_series() -> None:
    async def main() -> None:
        service = OfflineService()

        async def act(_state: Any, _action: Hashable) -> None:
            await asyncio.sleep(0)

        table = SessionTable(service, EchoCore(), act)
        await table.assigned({P0: PartitionSpan(0, 0)})
        records = [
            one for n in range(9) for one in (start(2 * n, f"s{n}"), said(2 * n + 1, f"s{n}", n))
        ]
        await table.batch(records, {P0: 18})
        for _ in range(20):
            await asyncio.sleep(0)
        assert value(service.metrics, m.ACTION_SECONDS, "_count", action="echo") == 9
        (family,) = (
            f for f in service.metrics.registry.collect() if f.name == m.ACTION_SECONDS.name
        )
        assert {sample.labels["action"] for sample in family.samples} == {"echo"}

    asyncio.run(main())


def test_age_and_lag_are_those_of_the_oldest_session_that_is_not_finished() -> None:
    async def main() -> None:
        service = OfflineService()
        table = SessionTable(service, EchoCore())

        def at(incoming: Incoming, ago_s: int) -> Incoming:
            now_ms = service.clock.now_ms() - ago_s * 1000
            return Incoming(
                incoming.topic, 0, incoming.offset, incoming.key, incoming.value, {}, now_ms
            )

        await table.assigned({P0: PartitionSpan(0, 3)})
        await table.batch([at(start(0, "old"), 90)], {P0: 1})
        assert value(service.metrics, m.LOW_WATER_AGE) == 0  # it may well end in what is to come
        await table.batch([at(start(1, "new"), 20), at(said(2, "new", 1), 5)], {P0: 3})
        assert value(service.metrics, m.LOW_WATER_AGE) == 90
        assert value(service.metrics, m.LOW_WATER_LAG) == 3
        await table.batch([at(ended(3, "old"), 0)], {P0: 4})
        assert value(service.metrics, m.LOW_WATER_AGE) == 20
        await table.batch([at(ended(4, "new"), 0)], {P0: 5})
        assert value(service.metrics, m.LOW_WATER_AGE) == 0
        assert value(service.metrics, m.LOW_WATER_LAG) == 0

    asyncio.run(main())


def test_records_of_the_topic_beside_are_counted_too() -> None:
    async def main() -> None:
        service = OfflineService()
        table = SessionTable(service, EchoCore(), foreign=SCORES)
        s0 = Partition(SCORES.full_name, 0)
        await table.assigned({P0: PartitionSpan(0, 0), s0: PartitionSpan(0, 0)})
        notice = CODEC.encode(
            SessionNotice(
                run_id="r", session_id="s", scenario_id="x", category="happy", trial=0,
                what="scored", reason="", valid=True, at_ms=1,
            )
        )  # fmt: skip
        scored = Incoming(SCORES.full_name, 0, 0, "s", notice, {}, 0)
        await table.batch([start(0, "s"), scored], {P0: 1, s0: 1})
        for topic in (TRAJECTORIES, SCORES):
            assert value(service.metrics, m.EVENTS_CONSUMED, topic=topic.name) == 1

    asyncio.run(main())


def test_slots_tell_how_many_are_inside_and_how_many_wait() -> None:
    async def main() -> None:
        metrics, slots, go = Metrics(), Slots(2), asyncio.Event()
        slots.measured(metrics, "sandboxes")

        async def work() -> None:
            async with slots:
                await go.wait()

        def figures() -> list[float | None]:
            shown = (m.ACTIONS_RUNNING, m.ACTIONS_WAITING, m.ACTIONS_LIMIT)
            return [value(metrics, metric, bound="sandboxes") for metric in shown]

        tasks = [asyncio.create_task(work()) for _ in range(5)]
        await asyncio.sleep(0)
        assert figures() == [2, 3, 2]
        tasks[4].cancel()
        await asyncio.gather(tasks[4], return_exceptions=True)
        assert figures() == [2, 2, 2]
        go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert figures() == [0, 0, 2]

    asyncio.run(main())


# Admission.

USER = {"goals": [{"say": ["hi"], "done_when": ["done"]}]}
CORE = RunCore(CODEC)


def conducted(*scenarios: dict[str, Any], **request: Any) -> RunState:
    asked = RunRequest(**({"run_id": "r", "suite": "s", "agent_id": "a"} | request))
    made = [
        Scenario.model_validate({"id": f"s{n}", "name": f"s{n}", "user": USER} | one)
        for n, one in enumerate(scenarios)
    ]
    state = CORE.start(asked)
    state.suite = Suite(suite_hash="h", name="s", version="1", owner="o", scenarios=())
    state.accept(make_plan(asked, made, can_improvise=False))
    return state


def end(state: RunState, session_id: str) -> None:
    notice = SessionNotice(
        run_id="r", session_id=session_id, scenario_id="s0", category="happy", trial=0,
        what="ended", reason="goal_met", valid=True, at_ms=1,
    )  # fmt: skip
    CORE.foreign(state, Incoming(RUN_PROGRESS.full_name, 0, 0, "r", CODEC.encode(notice), {}, 0))


def test_the_admission_queue_by_what_is_waited_for() -> None:
    state = conducted({}, {"category": "load", "load": {"sessions": 3, "concurrency": 2}}, trials=4)
    sizes = [len(phase.sessions) for phase in state.phases]
    assert len(sizes) > 1
    assert state.queued(0) == {"room": sizes[0], "arrival": 0, "phase": sum(sizes[1:])}
    state.admitted = 1
    end(state, state.current()[0].session_id)
    assert state.queued(0)["room"] == sizes[0] - 1
    # After a takeover it is admitted again, and skipped.
    state.admitted = 0
    assert state.queued(0)["room"] == sizes[0] - 1
    state.overdue = True
    assert set(state.queued(0).values()) == {0}


def test_sessions_of_an_open_loop_wait_for_their_time_and_then_for_room() -> None:
    state = conducted(
        {
            "category": "load",
            "load": {
                "sessions": 4, "concurrency": 1, "arrival": {"per_s": 1, "spacing": "even"}
            },
        },
        trials=1,
    )  # fmt: skip
    assert state.queued(0) == {"room": 0, "arrival": 4, "phase": 0}
    phase = state.phases[0]
    state.began_ms[phase.name] = 1_000
    assert state.queued(1_000 + phase.arrivals[1]) == {"room": 2, "arrival": 2, "phase": 0}
    state.admitted = 1
    assert state.queued(1_000 + phase.arrivals[1]) == {"room": 1, "arrival": 2, "phase": 0}
    assert state.queued(10**9) == {"room": 3, "arrival": 0, "phase": 0}


# The tool proxy.


def overhead(bench: Bench, source: str) -> tuple[float | None, float | None]:
    """How many calls, and the seconds that the proxy added to them."""
    count, total = (
        value(bench.metrics, m.TOOL_OVERHEAD, suffix, source=source)
        for suffix in ("_count", "_sum")
    )
    return count, total


def slow_log(bench: Bench, ms: int) -> None:
    """Every acknowledgement takes so long."""
    record = bench.log.record

    async def slowly(event: Any) -> None:
        bench.clock.ms += ms
        await record(event)

    bench.proxy._record = slowly


def test_the_proxys_time_is_that_of_the_log_and_no_injected_delay() -> None:
    failure = {"id": "f", "kind": "slow", "delay_ms": 9_000, "tool": "get_order"}

    async def main() -> None:
        bench = Bench(make_brief(failures=[failure]))
        slow_log(bench, 40)
        await bench.call("get_order", {"order_id": "1"})
        await bench.call("add_note", {"text": "x"})
        (slow, quick) = bench.log.calls()
        assert slow.injection is not None
        assert bench.slept == [9.0]
        assert overhead(bench, slow.source) == (1, pytest.approx(0.04))
        assert overhead(bench, quick.source) == (1, pytest.approx(0.04))
        seconds = value(bench.metrics, m.TOOL_SECONDS, "_sum", source=slow.source)
        assert seconds == pytest.approx(9)
        bench.close()

    asyncio.run(main())


def test_the_proxys_time_is_not_that_of_the_real_tool() -> None:
    async def main() -> None:
        async def real(_call: RealCall) -> RealAnswer:
            bench.clock.ms += 5_000
            return RealAnswer("{}")

        bench = Bench(make_brief(tools=TOOLS), real_tools=real)
        slow_log(bench, 30)
        await bench.call("real", {"n": 1})
        assert overhead(bench, "passthrough") == (1, pytest.approx(0.03))
        assert bench.log.calls()[0].latency_ms == 5_000
        bench.close()

    asyncio.run(main())


def test_the_proxys_time_is_not_that_of_the_model_that_plays_a_tool() -> None:
    async def main() -> None:
        async def model(_state: SessionState, _call: Call, _question: Question) -> Made:
            bench.clock.ms += 3_000
            return Made({"made": "up"})

        played = ToolSpec(name="played", input_schema={"type": "object"})
        brief = make_brief(tools=specs(make_world(), played), answers="model")
        bench = Bench(brief, ask_model=model)
        slow_log(bench, 20)
        await bench.call("played")
        (called,) = bench.log.calls()
        assert called.latency_ms == 3_000
        assert overhead(bench, called.source) == (1, pytest.approx(0.02))
        bench.close()

    asyncio.run(main())


def test_a_call_that_is_recorded_late_is_counted_once() -> None:
    async def main() -> None:
        bench = Bench(make_brief())
        bench.log.failing = "lost"
        with pytest.raises(Refused, match="log_unavailable"):
            await bench.call("get_order", {"order_id": "1"}, key="k")
        bench.log.failing = ""
        await bench.call("get_order", {"order_id": "1"}, key="k")
        assert len(bench.log.calls()) == 1
        counted = value(bench.metrics, m.TOOL_CALLS, source="odyssey", injection="")
        assert counted == 1
        bench.close()

    asyncio.run(main())
