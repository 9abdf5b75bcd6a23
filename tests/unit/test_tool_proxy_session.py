"""A session's state: what calls do to it, what is recorded, and that the log gives it back."""

from __future__ import annotations

import asyncio
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.briefs import ToolBrief, ToolSpec
from schemas.errors import DecodeError
from schemas.trajectory import TOOL_CALLED, ToolCalled
from services.tool_proxy import jsons
from services.tool_proxy.errors import Refused
from services.tool_proxy.proxy import Trace
from services.tool_proxy.session import Posting, ProxyCore
from services.tool_proxy.world import Context
from tests.support.tool_proxy import (
    NOW_MS,
    STATE,
    Bench,
    MemoryLog,
    answer_of,
    ended,
    make_brief,
    make_world,
    specs,
    started,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 1.0]) | st.text("ab~/"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab~/"), inner, max_size=4),
    max_leaves=12,
)


def run(brief: ToolBrief, *calls: tuple[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], Bench]:
    bench = Bench(brief)

    async def session() -> list[dict[str, Any]]:
        return [answer_of(await bench.call(tool, arguments)) for tool, arguments in calls]

    answers = asyncio.run(session())
    bench.close()
    return answers, bench


@settings(deadline=None)
@given(JSON, JSON)
def test_a_difference_leads_exactly_from_one_value_to_the_other(before: Any, after: Any) -> None:
    old, new = jsons.canonical(before), jsons.canonical(after)
    patch = jsons.difference(old, new)
    assert jsons.canonical(jsons.patched(old, patch)) == new
    assert bool(patch) == (old != new)


@settings(deadline=None)
@given(JSON, JSON)
def test_likeness_of_json_values(left: Any, right: Any) -> None:
    assert jsons.same(left, left)
    if jsons.canonical(left) == jsons.canonical(right):
        assert jsons.same(left, right)
    assert not jsons.same([1], [True])
    assert not jsons.same({"a": 0}, {"a": False})


@pytest.mark.req("V05", "V06")
def test_the_end_state_follows_from_the_trajectory_alone() -> None:
    brief = make_brief(state={"orders": {"2": None, "1": {"status": "lost"}}, "extra": [1]})
    _, bench = run(
        brief,
        ("get_order", {"order_id": "1"}),
        ("add_note", {"text": "first"}),
        ("add_note", {"text": "undo"}),
        ("add_note", {"text": "second", "kind": "mail"}),
    )
    state: Any = "whatever"
    for call in bench.log.calls():
        state = jsonpatch.apply_patch(state, orjson.loads(call.state_patch or "[]"))
        assert call.state_hash == jsons.state_hash(jsons.canonical(state))
    assert state["orders"] == {"1": {**STATE["orders"]["1"], "status": "lost"}}
    assert state["extra"] == [1]
    assert [note["text"] for note in state["notes"]] == ["first", "second"]
    patched = [call.state_patch is not None for call in bench.log.calls()]
    assert patched == [True, True, False, True]
    first = orjson.loads(bench.log.calls()[0].state_patch or "")
    assert [(op["op"], op["path"]) for op in first] == [("replace", "")]


@pytest.mark.req("V05")
def test_a_tool_sees_the_worlds_time_and_its_own_randomness() -> None:
    brief = make_brief(elapsed_s=(0, 3 * 86400))
    bench = Bench(brief)

    async def session() -> list[dict[str, Any]]:
        return [
            answer_of(await bench.call("add_note", {"text": "x"}, conversation=n, turn=n))[
                "response"
            ]
            for n in (1, 1, 2)
        ]

    first, second, third = asyncio.run(session())
    bench.close()
    assert first["at"] == second["at"] == "2026-01-15T09:00:00+00:00"
    assert third["at"] == "2026-01-18T09:00:00+00:00"
    assert first["number"] != second["number"]
    again, _ = run(brief, ("get_order", {"order_id": "1"}), ("add_note", {"text": "y"}))
    assert again[1]["response"]["number"] == second["number"]


@pytest.mark.req("V05")
def test_a_world_that_fails_spoils_the_call_and_leaves_the_state() -> None:
    (broken,), bench = run(make_brief(), ("crash", {}))
    assert broken["error"]["code"] == "world_failed"
    (call,) = bench.log.calls()
    assert (call.source, call.status, call.error_code) == ("error", 500, "world_failed")
    assert "ZeroDivision" not in call.response
    state = bench.log.table["s1"]
    assert state.current == state.initial


@pytest.mark.req("V05")
def test_a_world_that_hangs_is_given_up_on() -> None:
    bench = Bench(make_brief(), world_timeout_s=0.05)
    reply = asyncio.run(bench.call("hang", {"seconds": 0.3}))
    bench.close()
    assert answer_of(reply)["error"]["code"] == "world_failed"


@pytest.mark.req("V05")
@pytest.mark.parametrize("value", [{"a": 2**70}, object()])
def test_a_state_that_is_not_json_is_the_worlds_failure(value: Any) -> None:
    world = make_world()
    brief = make_brief(tools=specs(world, ToolSpec(name="spoil", input_schema={})))

    @world.tool
    def spoil(ctx: Context) -> dict[str, Any]:
        ctx.state["bad"] = value
        return {}

    bench = Bench(brief, log=MemoryLog(ProxyCore({"desk": world})))
    reply = asyncio.run(bench.call("spoil"))
    bench.close()
    assert answer_of(reply)["error"]["code"] == "world_failed"


@pytest.mark.req("R04")
@pytest.mark.parametrize(
    ("value", "response", "is_text"),
    [
        ({"a": 1}, {"a": 1}, False),
        ([1, "x"], [1, "x"], False),
        ("pong", "pong", True),
        ("", "", True),
        (5, "5", True),
        (True, "true", True),
        (None, "null", True),
        ("<p>\n é</p>", "<p>\n é</p>", True),
        (' {"a": 1} ', {"a": 1}, False),
        ('{"a": ', '{"a": ', True),
        ('"quoted"', '"quoted"', True),
    ],
)
def test_responses_arrive_decoded(value: Any, response: Any, is_text: bool) -> None:
    (answer,), bench = run(make_brief(), ("answer", {"value": value}))
    assert answer["response"] == response
    assert type(answer["response"]) is type(response)
    (call,) = bench.log.calls()
    assert call.response_is_text is is_text


@pytest.mark.req("R03")
def test_validation_is_the_result_against_the_output_schema() -> None:
    answers, bench = run(
        make_brief(
            rules=[{"tool": "get_order", "arguments": {"order_id": "x"}, "respond": {"a": 1}}]
        ),
        ("answer", {"value": 5}),
        ("answer", {"value": "five"}),
        ("get_order", {"order_id": "none"}),
        ("get_order", {"order_id": "x"}),
    )
    assert answers[0]["validation"] == {"valid": True}
    assert answers[1]["validation"]["valid"] is False
    assert answers[1]["validation"]["errors"][0]["rule"] == "/type"
    # A tool's own error is no answer, so it is not measured against the answer's schema.
    assert answers[2]["response"]["error"]["order_id"] == "none"
    assert answers[2]["validation"] == {"valid": True}
    assert (answers[3]["response"], answers[3]["matched_rule_index"]) == ({"a": 1}, 0)
    assert all(call.source == "odyssey" and call.validation for call in bench.log.calls())


def test_rules_answer_without_a_world_and_nothing_else_does() -> None:
    tools = [ToolSpec(name="ping", input_schema={"type": "object"})]
    brief = make_brief(world=None, tools=tools, rules=[{"respond": "pong", "times": 1}])
    (pong, nothing), bench = run(brief, ("ping", {}), ("ping", {}))
    assert pong["response"] == "pong"
    assert nothing["error"]["code"] == "tool_unavailable"
    assert [call.state_hash for call in bench.log.calls()] == [None, None]


def test_an_unreadable_brief_is_refused_at_the_start() -> None:
    event = started(make_brief())
    assert event.session_started is not None
    object.__setattr__(event.session_started, "tool_brief", "{}")
    with pytest.raises(DecodeError, match="tool brief"):
        ProxyCore({}).start(event)


def test_an_event_that_does_not_follow_is_refused_and_changes_nothing() -> None:
    _, bench = run(make_brief(), ("add_note", {"text": "x"}))
    state = bench.log.table["s1"]
    before = state.copy()
    event = bench.log.events()[-1]
    assert event.kind == TOOL_CALLED
    with pytest.raises(ValueError, match="expected call 2"):
        bench.log.core.apply(state, event)
    called = event.tool_called
    assert isinstance(called, ToolCalled)
    object.__setattr__(called, "call", 2)
    object.__setattr__(called, "state_patch", '[{"op": "remove", "path": "/notes"}]')
    with pytest.raises(ValueError, match="another state"):
        bench.log.core.apply(state, event)
    object.__setattr__(called, "state_patch", '[{"op": "remove", "path": "/nowhere"}]')
    with pytest.raises(ValueError, match="does not fit"):
        bench.log.core.apply(state, event)
    assert state == before


CALLS = st.lists(
    st.tuples(
        st.sampled_from([
            ("get_order", {"order_id": "1"}), ("get_order", {"order_id": "?"}),
            ("add_note", {"text": "a"}), ("add_note", {"text": "b", "kind": "mail"}),
            ("add_note", {"text": "undo"}), ("add_note", {"text": 3}), ("crash", {}),
            ("answer", {"value": [1, {"b": None}]}), ("unheard-of", {}), ("trace", {}),
        ]),
        st.integers(0, 1),  # posted again before this call?
        st.integers(0, 3),  # 3: the next turn begins
        st.sampled_from([None, None, "k1", "k2"]),
    ),
    max_size=25,
)  # fmt: skip
FAILURES = st.lists(
    st.fixed_dictionaries({
        "kind": st.sampled_from(
            ["timeout", "malformed", "content", "partial", "slow", "rate_limit", "outage"]
        ),
        "tool": st.sampled_from(["*", "get_order", "add_note", "answer"]),
        "probability": st.sampled_from([0.3, 1.0]),
        "times": st.integers(0, 2),
        "calls": st.lists(st.integers(1, 6), max_size=2),
    }),
    max_size=3,
)  # fmt: skip
RULES = [
    {"tool": "add_note", "arguments": {"text": "b"}, "respond": {"canned": ["x"]}, "times": 2},
    {"tool": "answer", "probability": 0.4, "respond": "text"},
]


@pytest.mark.req("V04", "V05", "V06", "R10")
@settings(max_examples=60, deadline=None)
@given(calls=CALLS, failures=FAILURES, seed=st.integers(0, 2**40), lag=st.booleans())
def test_a_state_rebuilt_from_the_log_equals_the_live_one(
    calls: list[Any], failures: list[dict[str, Any]], seed: int, lag: bool
) -> None:
    brief = make_brief(
        failures=[{"id": f"f{n}", "content": "X", **f} for n, f in enumerate(failures)],
        rules=RULES, seed=seed, max_calls=18,
    )  # fmt: skip
    bench = Bench(brief)
    bench.log.reads_back = not lag
    refusals = set()

    async def session() -> None:
        posting, turn = 1, 1
        for (tool, arguments), again, step, key in calls:
            posting += again
            turn += step == 3
            try:
                if tool == "trace":
                    entry = Trace(
                        "plan", {"n": step}, Posting(NOW_MS + posting, f"d{posting}"), turn, 1
                    )
                    await bench.proxy.trace("s1", [entry])
                else:
                    await bench.call(tool, arguments, posting=posting, turn=turn, key=key)
            except Refused as refused:
                refusals.add(refused.row.code)

    asyncio.run(session())
    bench.close()
    known = bench.proxy._live._live
    live = known["s1"].view if "s1" in known else bench.log.table["s1"]
    rebuilt = bench.log.rebuilt().table["s1"]
    assert refusals <= {"idempotency_key_reused", "tool_call_limit"}
    rebuilt.world = live.world  # equal worlds are not identical ones
    assert rebuilt == live
    ids = [event.event_id for event in bench.log.events()]
    assert len(ids) == len(bench.log.records)


@pytest.mark.req("R22")
def test_nothing_is_held_of_a_session_that_is_over() -> None:
    bench = Bench(make_brief())

    async def sessions() -> None:
        for n in range(20):
            bench.log.put(started(make_brief(), f"n{n}"))
            await bench.call("get_order", {"order_id": "1"}, session_id=f"n{n}")
            bench.log.put(ended(f"n{n}"))

    asyncio.run(sessions())
    bench.close()
    assert len(bench.proxy._live._live) <= 2
