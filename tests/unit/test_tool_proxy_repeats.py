"""Calls made twice: by a posted-again turn, by a retrying client, past a failing broker."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.tool_proxy.errors import Refused
from services.tool_proxy.proxy import Trace
from services.tool_proxy.session import Posting
from tests.support.tool_proxy import NOW_MS, Bench, answer_of, ended, make_brief, started

ORDER = ("get_order", {"order_id": "1"})
NOTE = ("add_note", {"text": "a"})
ANY_CALL = st.sampled_from([ORDER, NOTE, ("add_note", {"text": "b"}), ("crash", {})])


def refusal(coroutine: Any) -> str:
    with pytest.raises(Refused) as refused:
        asyncio.run(coroutine)
    return refused.value.row.code


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_CALL, max_size=8), st.data())
@pytest.mark.req("V06")
def test_a_turn_posted_again_leaves_the_trajectory_of_one_posting(
    calls: list[Any], data: st.DataObject
) -> None:
    """Whenever the first posting dies, and however often: same replies, each effect once."""
    failures = [{"id": "f", "kind": "outage", "probability": 0.5}]
    undisturbed = Bench(make_brief(failures=failures))
    disturbed = Bench(make_brief(failures=failures))

    async def whole() -> list[bytes]:
        return [(await undisturbed.call(*call)).body for call in calls]

    async def with_deaths() -> list[bytes]:
        for posting in range(1, 3):
            for call in calls[: data.draw(st.integers(0, len(calls)))]:
                await disturbed.call(*call, posting=posting)
        return [(await disturbed.call(*call, posting=3)).body for call in calls]

    expected, replies = asyncio.run(whole()), asyncio.run(with_deaths())
    undisturbed.close()
    disturbed.close()
    assert replies == expected
    for one, other in zip(disturbed.log.calls(), undisturbed.log.calls(), strict=True):
        assert (one.tool, one.arguments, one.response) == (
            other.tool, other.arguments, other.response,
        )  # fmt: skip
        assert one.state_hash == other.state_hash


@pytest.mark.req("V06")
def test_equal_calls_of_one_posting_are_different_calls() -> None:
    bench = Bench(make_brief())

    async def session() -> list[Any]:
        first = [answer_of(await bench.call(*NOTE)) for _ in range(2)]
        again = [answer_of(await bench.call(*NOTE, posting=2)) for _ in range(3)]
        return [answer["response"]["number"] for answer in first + again]

    one, two, *again, new = asyncio.run(session())
    bench.close()
    assert one != two
    assert again == [one, two]
    assert new not in (one, two)
    assert [call.dispatch_id for call in bench.log.calls()] == ["d1", "d1", "d2"]


@pytest.mark.req("V06")
def test_an_older_posting_is_refused_also_after_a_restart() -> None:
    bench = Bench(make_brief())
    asyncio.run(bench.call(*ORDER, posting=1))
    asyncio.run(bench.call(*ORDER, posting=2))  # a repetition: leaves nothing in the log
    assert refusal(bench.call(*NOTE, posting=1)) == "turn_superseded"
    asyncio.run(bench.call(*NOTE, posting=2))
    restarted = Bench(log=bench.log.rebuilt())
    assert refusal(restarted.call(*NOTE, posting=1)) == "turn_superseded"
    asyncio.run(restarted.call(*NOTE, posting=1, turn=2))
    asyncio.run(restarted.call(*NOTE, posting=1, turn=1))  # late, of a turn that is over
    assert [call.tool for call in restarted.log.calls()] == ["get_order"] + ["add_note"] * 3
    bench.close()
    restarted.close()


@pytest.mark.req("R10", "V06")
def test_trace_events_of_a_posted_again_turn_are_not_doubled() -> None:
    bench = Bench(make_brief(), traces=3)

    def trace(posting: int, n: int) -> Any:
        return bench.proxy.trace(
            "s1", [Trace("plan", {"n": n}, Posting(NOW_MS + posting, f"d{posting}"), 1, 1)]
        )

    async def session() -> None:
        await trace(1, 1)
        await bench.call(*ORDER)
        await trace(1, 2)
        for n in (1, 2, 3):
            await trace(2, n)

    asyncio.run(session())
    bench.close()
    events = [event.trace for event in bench.log.events() if event.trace]
    assert [(e.number, e.payload, e.after_call) for e in events] == [
        (1, '{"n":1}', 0), (2, '{"n":2}', 1), (3, '{"n":3}', 1),
    ]  # fmt: skip
    assert [event.step for event in bench.log.events()] == ["start", "x1", "t1", "x2", "x3"]
    assert refusal(trace(2, 4)) == "trace_limit"
    assert refusal(trace(1, 4)) == "turn_superseded"


@pytest.mark.req("V06")
def test_an_idempotency_key_stands_for_one_call_in_a_session() -> None:
    bench = Bench(make_brief())

    async def session() -> list[bytes]:
        return [
            (await bench.call(*NOTE, key="k", turn=turn, posting=turn)).body for turn in (1, 1, 3)
        ]

    replies = asyncio.run(session())
    assert len(set(replies)) == 1
    assert len(bench.log.calls()) == 1
    assert refusal(bench.call(*ORDER, key="k", turn=3, posting=3)) == "idempotency_key_reused"
    reordered = bench.call("add_note", {"kind": "call", "text": "a"}, key="j", turn=3, posting=3)
    asyncio.run(reordered)
    same = bench.call("add_note", {"text": "a", "kind": "call"}, key="j", turn=3, posting=3)
    asyncio.run(same)
    assert len(bench.log.calls()) == 2
    restarted = Bench(log=bench.log.rebuilt())
    assert asyncio.run(restarted.call(*NOTE, key="k", turn=9, posting=9)).body == replies[0]
    bench.close()
    restarted.close()


@pytest.mark.req("V06")
@pytest.mark.parametrize("fate", ["lost", "landed"])
@pytest.mark.parametrize("reads_back", [True, False])
def test_a_call_that_was_not_acknowledged_happens_once_when_it_is_retried(
    fate: str, reads_back: bool
) -> None:
    bench = Bench(make_brief())
    asyncio.run(bench.call(*NOTE))
    bench.log.reads_back = reads_back
    bench.log.failing = fate
    # Once it is read back, the log answers, whatever the broker is like.
    known = fate == "landed" and reads_back
    for _ in range(1 if known else 3):
        assert refusal(bench.call(*NOTE)) == "log_unavailable"
    assert bench.log.table["s1"].calls == (2 if known else 1)
    bench.log.failing = ""
    retried = answer_of(asyncio.run(bench.call(*NOTE)))["response"]
    assert len(bench.log.calls()) == 2
    fresh = answer_of(asyncio.run(bench.call(*NOTE)))["response"]
    bench.close()
    assert fresh["number"] != retried["number"]
    assert [call.call for call in bench.log.calls()] == [1, 2, 3]


@pytest.mark.req("V06")
def test_another_call_after_an_unacknowledged_one_does_not_take_its_place() -> None:
    bench = Bench(make_brief())
    bench.log.failing = "landed"
    bench.log.reads_back = False
    assert refusal(bench.call(*NOTE)) == "log_unavailable"
    bench.log.failing = ""
    asyncio.run(bench.call(*ORDER))
    bench.log.reads_back = True
    bench.log.read_back()
    asyncio.run(bench.call(*ORDER))
    bench.close()
    assert [call.tool for call in bench.log.calls()] == ["add_note", "get_order", "get_order"]
    assert bench.log.table["s1"].calls == 3


@pytest.mark.req("V06")
def test_where_another_writer_was_first_the_log_is_right() -> None:
    bench = Bench(make_brief())
    zombie = Bench(make_brief())
    asyncio.run(zombie.call("add_note", {"text": "theirs"}))
    bench.log.reads_back = False
    bench.log.put(zombie.log.events()[-1])
    asyncio.run(bench.call("add_note", {"text": "ours"}))  # second of its id: ignored by readers
    bench.log.reads_back = True
    bench.log.read_back()
    asyncio.run(bench.call("add_note", {"text": "after"}))
    bench.close()
    zombie.close()
    assert [call.arguments for call in bench.log.calls()] == [
        '{"text":"theirs"}', '{"text":"after"}',
    ]  # fmt: skip
    state = bench.log.table["s1"]
    assert state.calls == 2
    notes = orjson.loads(state.current or b"")["notes"]
    assert [note["text"] for note in notes] == ["theirs", "after"]


@pytest.mark.req("R22")
def test_calls_of_a_session_take_turns_and_only_so_many_wait() -> None:
    bench = Bench(make_brief(), waiting_calls=3)

    async def burst() -> list[Any]:
        calls = [bench.call("add_note", {"text": str(n)}) for n in range(9)]
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run(burst())
    bench.close()
    busy = [r.row.code for r in results if isinstance(r, Refused)]
    assert busy == ["session_busy"] * 5
    assert [call.call for call in bench.log.calls()] == [1, 2, 3, 4]


@pytest.mark.req("R22")
def test_where_a_session_is_not_known_nothing_is_guessed() -> None:
    bench = Bench()
    assert refusal(bench.call(*ORDER)) == "session_not_ready"
    bench.log.owned = False
    assert refusal(bench.call(*ORDER)) == "session_moved"
    bench.log.owned = True

    async def late_start() -> int:
        calling = asyncio.create_task(bench.call(*ORDER))
        await asyncio.sleep(0.05)
        bench.log.put(started(make_brief()))
        return (await calling).status

    assert asyncio.run(late_start()) == 200
    bench.log.put(ended())
    assert refusal(bench.call(*ORDER)) == "token_invalid"
    bench.close()
    assert len(bench.log.calls()) == 1


@pytest.mark.req("R06")
def test_the_rate_limit_is_a_moving_minute_of_the_session() -> None:
    bench = Bench(make_brief(calls_per_minute=3))
    bench.log.put(started(make_brief(calls_per_minute=1), "s2"))

    async def session() -> list[Any]:
        outcomes: list[Any] = []
        for wait in (0, 10, 10, 10, 31, 0, 9, 1):
            bench.clock.ms += wait * 1000
            try:
                outcomes.append((await bench.call(*ORDER)).status)
            except Refused as refused:
                outcomes.append((refused.row.code, refused.retry_after_s))
        await bench.call(*ORDER, session_id="s2")
        return outcomes

    outcomes = asyncio.run(session())
    bench.close()
    assert outcomes == [
        200, 200, 200, ("rate_limited", 30), 200, ("rate_limited", 9), 200, ("rate_limited", 9),
    ]  # fmt: skip


@pytest.mark.req("R06")
def test_the_call_limit_is_recorded_once() -> None:
    bench = Bench(make_brief(max_calls=2))

    async def session() -> list[str]:
        codes = []
        for _ in range(5):
            try:
                reply = answer_of(await bench.call(*ORDER))
                codes.append(reply["error"]["code"] if "error" in reply else "ok")
            except Refused as refused:
                codes.append(refused.row.code)
        return codes

    assert asyncio.run(session()) == ["ok", "ok"] + ["tool_call_limit"] * 3
    bench.close()
    assert [call.error_code for call in bench.log.calls()] == [None, None, "tool_call_limit"]
