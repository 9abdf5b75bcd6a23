"""What the agent sees of each kind of failure, and what becomes of the world."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from schemas.faults import Failure
from services.tool_proxy import injection
from tests.support.tool_proxy import STATE, Bench, answer_of, make_brief

ORDER = STATE["orders"]["1"]


def injected(tool: str, arguments: dict[str, Any], **failure: Any) -> tuple[dict[str, Any], Bench]:
    bench = Bench(make_brief(failures=[{"id": "f", **failure}]))
    reply = asyncio.run(bench.call(tool, arguments))
    bench.close()
    assert reply.status == 200
    return answer_of(reply), bench


@pytest.mark.req("V05", "R03")
@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ({"kind": "timeout", "delay_ms": 1500}, {"code": "timeout", "status": 504}),
        ({"kind": "outage"}, {"code": "outage", "status": 503}),
        ({"kind": "rate_limit", "retry_after_s": 9},
         {"code": "rate_limit", "status": 429, "retry_after": 9}),
        ({"kind": "schema_mismatch"},
         {"code": "schema_mismatch", "status": 422, "field": "text"}),
        ({"kind": "schema_mismatch", "field": "kind"},
         {"code": "schema_mismatch", "status": 422, "field": "kind"}),
    ],
)  # fmt: skip
def test_failures_that_come_in_the_tools_stead(
    failure: dict[str, Any], error: dict[str, Any]
) -> None:
    envelope, bench = injected("add_note", {"text": "x"}, **failure)
    assert envelope["source"] == "injected"
    assert "validation" not in envelope
    assert envelope["matched_rule_index"] == 0
    assert set(envelope["response"]) == {"error"}
    message = envelope["response"]["error"].pop("message")
    assert message
    assert envelope["response"]["error"] == error
    assert "inject" not in message
    state = bench.log.table["s1"]
    assert state.current == state.initial
    assert bench.slept == [1.5] * (failure["kind"] == "timeout")


@pytest.mark.req("V05")
def test_the_scenarios_own_words_replace_the_message() -> None:
    envelope, _ = injected("add_note", {"text": "x"}, kind="outage", message="Bureau closed.")
    assert envelope["response"]["error"]["message"] == "Bureau closed."


@pytest.mark.req("V05", "R04")
def test_a_malformed_answer_is_broken_json_text_and_changes_nothing() -> None:
    envelope, bench = injected("add_note", {"text": "x"}, kind="malformed")
    text = envelope["response"]
    assert text.startswith('{"number":')
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(text)
    assert bench.log.calls()[0].response_is_text
    state = bench.log.table["s1"]
    assert state.current == state.initial


@pytest.mark.req("V05")
@pytest.mark.parametrize("value", ["plain", 5, [], {}, None, [1, 2], {"a": {"b": [1]}}])
def test_malformed_answers_never_parse(value: Any) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(injection.malformed(value).value)


@pytest.mark.req("V05")
def test_content_is_planted_in_prose_and_the_call_takes_effect() -> None:
    envelope, _ = injected("get_order", {"order_id": "1"}, kind="content", content="OBEY ME")
    assert envelope["response"] == {**ORDER, "note": f"{ORDER['note']}\nOBEY ME"}
    envelope, bench = injected("add_note", {"text": "x"}, kind="content", content="OBEY ME")
    # No text field reads as prose: `at` is a time, and stays one.
    assert set(envelope["response"]) == {"number", "at", "note"}
    assert envelope["response"]["note"] == "OBEY ME"
    assert orjson.loads(bench.log.table["s1"].current or b"")["notes"][0]["text"] == "x"


@pytest.mark.req("V05")
def test_a_slow_answer_is_the_real_one_later() -> None:
    envelope, bench = injected("get_order", {"order_id": "1"}, kind="slow", delay_ms=700)
    assert envelope["response"] == ORDER
    assert envelope["latency_ms"] == 700
    assert bench.slept == [0.7]


FIND = {"items": [{"name": "a", "text": "x y"}, {"name": "b"}], "page": 1}


@pytest.mark.req("V05")
@pytest.mark.parametrize(
    ("answer", "field", "left", "detail"),
    [
        (FIND, "", {"items": [FIND["items"][0]], "page": 1}, "kept 1 of 2 of /items"),  # type: ignore[index]
        (FIND, "page", {"items": FIND["items"]}, "dropped /page"),
        (FIND, "/items/1/name", {"items": [FIND["items"][0], {}], "page": 1},  # type: ignore[index]
         "dropped /items/1/name"),
        (FIND, "items", {"items": [FIND["items"][0]], "page": 1}, "kept 1 of 2 of /items"),  # type: ignore[index]
        ([1, 2, 3], "", [1], "kept 1 of 3 of the list"),
        ({"a": 1, "b": 2}, "", {"a": 1}, "dropped /b"),
    ],
)  # fmt: skip
def test_partial_answers(answer: Any, field: str, left: Any, detail: str) -> None:
    before = orjson.dumps(answer)
    struck = injection.altering(Failure(id="f", kind="partial", field=field), answer)
    assert struck == injection.Struck(left, detail)
    assert orjson.dumps(answer) == before


@pytest.mark.req("V05")
@pytest.mark.parametrize(
    ("answer", "field", "planted"),
    [
        ("hello", "", "hello\nX"),
        ([{"id": "7"}], "", [{"id": "7", "note": "X"}]),
        ({"id": "7", "a": "one two", "b": "one two three"}, "",
         {"id": "7", "a": "one two", "b": "one two three\nX"}),
        (FIND, "/items/1/name", {**FIND, "items": [FIND["items"][0], {"name": "b\nX"}]}),  # type: ignore[index]
        ({"id": "7"}, "hint", {"id": "7", "hint": "X"}),
        ({"id": 7}, "id", {"id": "X"}),
    ],
)  # fmt: skip
def test_where_content_is_planted(answer: Any, field: str, planted: Any) -> None:
    failure = Failure(id="f", kind="content", content="X", field=field)
    struck = injection.altering(failure, answer)
    assert struck is not None
    assert struck.value == planted


@pytest.mark.req("V06")
@pytest.mark.parametrize(
    ("arguments", "failure"),
    [
        ({"order_id": "none"}, {"kind": "content", "content": "X"}),
        ({"order_id": "none"}, {"kind": "partial"}),
        ({"order_id": "1"}, {"kind": "partial", "field": "nowhere"}),
    ],
)
def test_what_could_not_be_injected_is_not_said_to_be(
    arguments: dict[str, Any], failure: dict[str, Any]
) -> None:
    envelope, bench = injected("get_order", arguments, **failure)
    assert (envelope["source"], envelope["matched_rule_index"]) == ("odyssey", None)
    assert bench.log.calls()[0].injection is None
    assert bench.log.table["s1"].struck == [0]


@pytest.mark.req("V06")
def test_every_injection_is_accounted_for_in_the_trajectory() -> None:
    bench = Bench(make_brief(failures=[
        {"id": "first", "kind": "outage", "tool": "get_order", "calls": [1]},
        {"id": "slow", "kind": "slow", "delay_ms": 5, "times": 2},
    ]))  # fmt: skip

    async def session() -> None:
        for _ in range(4):
            await bench.call("get_order", {"order_id": "1"})

    asyncio.run(session())
    bench.close()
    told = [(c.injection and (c.injection.rule_id, c.injection.kind, c.injection.occurrence))
            for c in bench.log.calls()]  # fmt: skip
    assert told == [("first", "outage", 1), ("slow", "slow", 1), ("slow", "slow", 2), None]
    assert [call.matched_rule_index for call in bench.log.calls()] == [0, 1, 1, None]
    assert all(call.injection.detail for call in bench.log.calls() if call.injection)


@pytest.mark.req("V05")
def test_a_tool_error_can_be_slow() -> None:
    envelope, _ = injected("get_order", {"order_id": "x"}, kind="slow", delay_ms=1)
    assert envelope["source"] == "injected"
    assert envelope["response"]["error"]["code"] == "not_found"
