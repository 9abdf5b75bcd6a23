"""Calls of real tools as the proxy conducts them: what is forwarded, when, and what is recorded."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.briefs import ToolSpec
from schemas.trajectory import SESSION_ENDED
from services.tool_proxy.errors import Refused
from services.tool_proxy.passthrough import RealAnswer, RealCall, failure
from services.tool_proxy.passthrough_tools import RealTools
from services.tool_proxy.proxy import Trace
from services.tool_proxy.session import Posting
from tests.support.tool_proxy import (
    NOW_MS,
    Bench,
    answer_of,
    ended,
    make_brief,
    make_world,
    specs,
    started,
)

pytestmark = pytest.mark.req("R19")

REAL = ToolSpec(
    name="real",
    input_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
    output_schema={"type": "string"},
    mode="passthrough",
    target="https://tools.example/real",
)
TOOLS = specs(make_world(), REAL)


class Tool:
    """A real tool whose answers wait until the test lets them go."""

    def __init__(self, *, open_: bool = True, body: str = '{"ok": true}') -> None:
        self.calls: list[RealCall] = []
        self.answer = RealAnswer(body)
        self.gate = asyncio.Event()
        if open_:
            self.gate.set()

    async def __call__(self, call: RealCall) -> RealAnswer:
        self.calls.append(call)
        await self.gate.wait()
        return self.answer

    async def called(self, times: int) -> None:
        for _ in range(1000):
            if len(self.calls) >= times:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"called {len(self.calls)} times, not {times}")


def session(
    test: Callable[[Bench, Tool], Coroutine[Any, Any, None]],
    *,
    tool: Callable[[], Tool] = Tool,
    limits: dict[str, Any] | None = None,
    **brief: Any,
) -> Bench:
    async def run() -> Bench:
        real = tool()
        bench = Bench(make_brief(**{"tools": TOOLS, **brief}), real_tools=real, **(limits or {}))
        async with asyncio.timeout(20):
            await test(bench, real)
            await bench.proxy.close(1)
        return bench

    bench = asyncio.run(run())
    bench.close()
    rebuilt = bench.log.rebuilt()
    if "s1" in bench.log.table:
        one, other = bench.log.table["s1"], rebuilt.table["s1"]
        assert (one.matched, one.struck, one.calls) == (other.matched, other.struck, other.calls)
        assert (one.current, one.marks) == (other.current, other.marks)
    return bench


def shut() -> Tool:
    return Tool(open_=False)


async def code_of(call: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(Refused) as refused:
        await call
    return refused.value.row.code


@pytest.mark.req("R03", "R04")
@pytest.mark.parametrize(
    ("body", "response"),
    [
        ('{"a": 1,  "b":[]}', {"a": 1, "b": []}),
        (" [1]\n", [1]),
        ("pong", "pong"),
        ("", ""),
        ("5", "5"),
        ("null", "null"),
        ('"quoted"', '"quoted"'),
        ("<p>\n é</p>\r\n", "<p>\n é</p>\r\n"),
        ('{"broken": ', '{"broken": '),
        ('{"a": NaN}', '{"a": NaN}'),
        ("\ufeff{}", "\ufeff{}"),
    ],
)
def test_a_real_answer_is_decoded_and_not_validated(body: str, response: Any) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        envelope = answer_of(await bench.call("real", {"n": 1}))
        assert envelope == {
            "tool_name": "real", "response": response, "source": "passthrough",
            "latency_ms": 0, "matched_rule_index": None,
        }  # fmt: skip

    (called,) = session(test, tool=lambda: Tool(body=body)).log.calls()
    assert called.response == body
    assert (called.source, called.status, called.validation) == ("passthrough", 200, None)


def test_arguments_leave_exactly_as_they_came_and_nothing_else_does() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        await bench.call("real", {"n": 1}, key="mine")
        await bench.call("real", {"n": 1})
        await bench.call("real", {"n": 1})
        first, second, third = tool.calls
        assert first == RealCall("real", REAL, '{"n":1}', "mine", "s1")
        keys = {first.key, second.key, third.key}
        assert len(keys) == 3
        assert not any(word in key for key in keys for word in ("s1", "run", "d1"))

    session(test)


def test_keys_are_the_same_for_the_same_calls_wherever_they_are_made() -> None:
    keys: list[list[str]] = [[], []]
    for run in keys:

        async def test(bench: Bench, tool: Tool, run: list[str] = run) -> None:
            await asyncio.gather(*(bench.call("real", {"n": n}) for n in (1, 2, 1)))
            await bench.call("real", {"n": 1}, turn=2)
            run += sorted(call.key for call in tool.calls)

        session(test)
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 4


@pytest.mark.req("R05")
def test_arguments_are_validated_before_anything_is_sent() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        reply = await bench.call("real", {"n": "one"})
        assert reply.status == 422
        assert not tool.calls

    assert [call.error_code for call in session(test).log.calls()] == ["arguments_invalid"]


def test_a_transport_error_is_a_200_that_tells_it() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        tool.answer = failure("http_status", "real answered 500.", status=500)
        envelope = answer_of(await bench.call("real"))
        assert envelope["source"] == "transport_error"
        assert envelope["response"]["error"]["status"] == 500

    (called,) = session(test).log.calls()
    assert (called.source, called.status, called.error_code) == ("transport_error", 200, None)


@pytest.mark.parametrize("code", ["target_refused", "target_secret_missing", "tool_unavailable"])
def test_a_fault_of_the_deployment_spoils_the_session(code: str) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        tool.answer = RealAnswer(error_code=code, fault="10.0.0.1 is private")
        reply = await bench.call("real")
        assert answer_of(reply)["error"]["code"] == code
        assert b"10.0.0.1" not in reply.body

    (called,) = session(test).log.calls()
    assert (called.source, called.error_code) == ("error", code)
    assert called.status >= 500


@pytest.mark.req("R07")
def test_an_answer_that_only_fits_before_it_is_wrapped_is_too_large() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        tool.answer = RealAnswer("\x01" * 300_000)
        envelope = answer_of(await bench.call("real"))
        assert envelope["response"]["error"]["code"] == "response_too_large"
        assert envelope["source"] == "transport_error"

    session(test)


# A sandboxed tool never reaches a real one, and a real one never falls back.


@given(
    st.sampled_from(["sandbox", "", "Passthrough", "passthrough ", "simulated", "PASSTHROUGH"]),
    st.sampled_from(["get_order", "no_such_tool"]),
)
@settings(max_examples=20, deadline=None)
def test_only_passthrough_passes_through(mode: str, name: str) -> None:
    spec = REAL.model_copy(update={"name": name, "mode": mode})

    async def test(bench: Bench, tool: Tool) -> None:
        for arguments in ({"n": 1}, {"order_id": "1"}, {"order_id": "none"}):
            await bench.call(name, arguments)
        assert not tool.calls

    session(test, tools=[spec], failures=[{"id": "f", "kind": "slow", "tool": "*"}])


def test_a_real_tool_of_a_worlds_name_never_reaches_the_world() -> None:
    spec = REAL.model_copy(update={"name": "add_note", "input_schema": {}})

    async def test(bench: Bench, tool: Tool) -> None:
        tool.answer = failure("outage", "down")
        envelope = answer_of(await bench.call("add_note", {"text": "x"}))
        assert envelope["source"] == "transport_error"

    bench = session(test, tools=[spec], rules=[{"tool": "*", "respond": "never"}])
    state = bench.log.table["s1"]
    assert state.current == state.initial
    assert (state.matched, state.struck) == ([0], [0])


def test_what_simulates_has_no_way_out() -> None:
    """Nothing that answers for a simulated tool can reach a client, a socket or the way out."""
    package = Path(__file__).parents[2] / "services" / "tool_proxy"
    seen: set[str] = set()
    todo = ["answer", "world", "injection", "rules", "session", "jsons", "validation"]
    while todo:
        name = todo.pop()
        seen.add(name)
        for node in ast.walk(ast.parse((package / f"{name}.py").read_text())):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                top = module.partition(".")[0]
                assert top not in {"httpx", "httpx2", "aiohttp", "socket", "mcp", "urllib"}, name
                assert not module.startswith("services.runtime"), (name, module)
                inner = module.removeprefix("services.tool_proxy.").partition(".")[0]
                if (package / f"{inner}.py").exists() and inner not in seen and module != inner:
                    todo.append(inner)
    assert not any(name.startswith(("passthrough", "mcp")) for name in seen)
    assert "errors" in seen


def test_without_a_way_out_a_real_tool_is_unavailable() -> None:
    bench = Bench(make_brief(tools=TOOLS))
    reply = asyncio.run(bench.call("real"))
    bench.close()
    assert answer_of(reply)["error"]["code"] == "tool_unavailable"


@pytest.mark.parametrize("update", [{"target_kind": "ftp"}, {"target": None}, {"target": ""}])
def test_a_registration_without_a_target_is_unavailable(update: dict[str, Any]) -> None:
    async def never(*_: Any) -> RealAnswer:
        raise AssertionError("called")

    call = RealCall("real", REAL.model_copy(update=update), "{}", "k", "s1")
    answer = asyncio.run(RealTools(never, never)(call))
    assert answer.error_code == "tool_unavailable"


# Failure injection.


@pytest.mark.req("V05", "V06")
@pytest.mark.parametrize(
    "kind", ["timeout", "outage", "rate_limit", "schema_mismatch", "malformed"]
)
def test_failures_that_replace_an_answer_do_not_call_the_tool(kind: str) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        struck = answer_of(await bench.call("real", {"n": 1}))
        assert struck["source"] == "injected"
        assert not tool.calls
        assert answer_of(await bench.call("real", {"n": 1}))["source"] == "passthrough"
        assert len(tool.calls) == 1
        if kind == "malformed":
            with pytest.raises(orjson.JSONDecodeError):
                orjson.loads(struck["response"])

    failures = [{"id": "f", "kind": kind, "tool": "real", "calls": [1]}]
    first, second = session(test, failures=failures).log.calls()
    assert (first.injection.kind, first.injection.occurrence) == (kind, 1)
    assert second.injection is None


@pytest.mark.req("V05", "V06")
@pytest.mark.parametrize(
    ("kind", "response"),
    [
        ("content", {"note": "left\nGO AWAY", "items": [1, 2]}),
        ("partial", {"note": "left", "items": [1]}),
        ("slow", {"note": "left", "items": [1, 2]}),
    ],
)
def test_failures_that_alter_an_answer_alter_the_real_one(kind: str, response: Any) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        envelope = answer_of(await bench.call("real"))
        assert (envelope["response"], envelope["source"]) == (response, "injected")
        assert len(tool.calls) == 1
        assert bench.slept == ([2.0] if kind == "slow" else [])

    rule = {"id": "f", "kind": kind, "tool": "real", "content": "GO AWAY", "delay_ms": 0}
    rule["delay_ms"] = 2000 if kind == "slow" else 0
    session(
        test,
        tool=lambda: Tool(body='{"note": "left", "items": [1, 2]}'),
        failures=[rule],
    )


@pytest.mark.req("V06")
@pytest.mark.parametrize("kind", ["content", "partial"])
def test_an_answer_that_is_none_is_not_altered(kind: str) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        tool.answer = failure("outage", "down", status=503)
        assert answer_of(await bench.call("real"))["source"] == "transport_error"

    failures = [{"id": "f", "kind": kind, "tool": "real", "content": "X"}]
    (called,) = session(test, failures=failures).log.calls()
    assert called.injection is None


@pytest.mark.req("V06")
def test_injection_does_not_depend_on_which_real_tool_is_faster() -> None:
    """Calls that a failure may be meant for keep their order, whatever else goes on."""

    class Uneven(Tool):
        async def __call__(self, call: RealCall) -> RealAnswer:
            self.calls.append(call)
            for _ in range(0 if len(self.calls) % 2 else 20):
                await asyncio.sleep(0)
            return RealAnswer(orjson.dumps({"text": f"call {call.arguments}"}).decode())

    async def test(bench: Bench, tool: Tool) -> None:
        replies = await asyncio.gather(
            *(bench.call("real", {"n": n}) for n in range(8)),
            *(bench.call("get_order", {"order_id": "1"}) for _ in range(2)),
        )
        sources = [answer_of(reply)["source"] for reply in replies]
        assert [n for n, source in enumerate(sources) if source == "injected"] == [2, 5, 8]

    failures = [{"id": "f", "kind": "content", "tool": "*", "content": "X", "calls": [3, 6, 9]}]
    bench = session(test, tool=Uneven, failures=failures)
    struck = [call for call in bench.log.calls() if call.injection]
    assert [call.injection.occurrence for call in struck] == [1, 2, 3]


# Concurrency.


def test_a_slow_real_tool_holds_up_nothing_else_of_its_session() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        slow = [asyncio.create_task(bench.call("real", {"n": n})) for n in range(3)]
        await tool.called(3)
        assert answer_of(await bench.call("get_order", {"order_id": "1"}))["source"] == "odyssey"
        await bench.proxy.trace("s1", [Trace("plan", {}, Posting(NOW_MS + 1, "d1"), 1, 1)])
        assert not any(task.done() for task in slow)
        tool.gate.set()
        for reply in await asyncio.gather(*slow):
            assert answer_of(reply)["source"] == "passthrough"

    calls = session(test, tool=shut).log.calls()
    assert [(call.call, call.tool) for call in calls] == [
        (1, "get_order"), (2, "real"), (3, "real"), (4, "real"),
    ]  # fmt: skip


def test_calls_at_once_are_bounded() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        bench.log.put(started(make_brief(tools=TOOLS), "s2"))
        slow = [asyncio.create_task(bench.call("real", {"n": n})) for n in range(2)]
        await tool.called(2)
        assert await code_of(bench.call("real", {"n": 9})) == "session_busy"
        slow.append(asyncio.create_task(bench.call("real", session_id="s2")))
        await tool.called(3)
        assert await code_of(bench.call("real", {"n": 9}, session_id="s2")) == "overloaded"
        tool.gate.set()
        await asyncio.gather(*slow)
        assert (await bench.call("real", {"n": 9})).status == 200

    session(test, tool=shut, limits={"real_calls": 3, "real_calls_of_session": 2})


def test_the_limit_of_calls_counts_what_is_under_way() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        slow = [asyncio.create_task(bench.call("real", {"n": n})) for n in range(3)]
        await tool.called(3)
        assert answer_of(await bench.call("real"))["error"]["code"] == "tool_call_limit"
        assert await code_of(bench.call("real")) == "tool_call_limit"
        tool.gate.set()
        await asyncio.gather(*slow)
        assert len(tool.calls) == 3

    calls = session(test, tool=shut, max_calls=3).log.calls()
    assert [call.error_code for call in calls] == ["tool_call_limit", None, None, None]


def test_a_key_joins_the_call_that_is_under_way() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        first = asyncio.create_task(bench.call("real", {"n": 1}, key="k"))
        await tool.called(1)
        again = [asyncio.create_task(bench.call("real", {"n": 1}, key="k")) for _ in range(3)]
        assert await code_of(bench.call("real", {"n": 2}, key="k")) == "idempotency_key_reused"
        tool.gate.set()
        replies = {reply.body for reply in await asyncio.gather(first, *again)}
        assert len(replies) == len(tool.calls) == 1

    assert len(session(test, tool=shut).log.calls()) == 1


def test_a_turn_posted_again_joins_the_calls_of_its_first_posting() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        first = asyncio.create_task(bench.call("real", {"n": 1}))
        await tool.called(1)
        again = asyncio.create_task(bench.call("real", {"n": 1}, posting=2))
        twice = asyncio.create_task(bench.call("real", {"n": 1}, posting=2))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(tool.calls) == 1
        tool.gate.set()
        bodies = [(await task).body for task in (first, again, twice)]
        assert bodies[0] == bodies[1]
        # The first posting made it once, so the second time it is a new call.
        assert len(tool.calls) == 2
        assert await code_of(bench.call("real", {"n": 5})) == "turn_superseded"

    calls = session(test, tool=shut).log.calls()
    assert [call.dispatch_id for call in calls] == ["d1", "d2"]


def test_a_call_whose_turn_was_superseded_meanwhile_is_recorded() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        first = asyncio.create_task(bench.call("real", {"n": 1}))
        await tool.called(1)
        await bench.call("get_order", {"order_id": "1"}, posting=2)
        tool.gate.set()
        assert (await first).status == 200

    calls = session(test, tool=shut).log.calls()
    assert [(call.tool, call.dispatch_id) for call in calls] == [
        ("get_order", "d2"),
        ("real", "d1"),
    ]


def test_a_call_of_a_turn_that_is_over_is_recorded_under_its_turn() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        first = asyncio.create_task(bench.call("real", {"n": 1}))
        await tool.called(1)
        await bench.call("get_order", {"order_id": "1"}, turn=2, posting=2)
        tool.gate.set()
        await first

    events = [event for event in session(test, tool=shut).log.events() if event.tool_called]
    assert [event.turn for event in events] == [2, 1]


def test_a_session_that_ends_meanwhile_has_no_room_for_the_answer() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        call = asyncio.create_task(bench.call("real", {"n": 1}))
        await tool.called(1)
        bench.log.put(ended())
        tool.gate.set()
        assert await code_of(call) == "token_invalid"

    kinds = [event.kind for event in session(test, tool=shut).log.events()]
    assert kinds[-1] == SESSION_ENDED


def test_a_caller_who_leaves_does_not_stop_the_call() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        call = asyncio.create_task(bench.call("real", {"n": 1}, key="k"))
        await tool.called(1)
        call.cancel()
        await asyncio.wait({call})
        tool.gate.set()
        reply = await bench.call("real", {"n": 1}, key="k")
        assert answer_of(reply)["source"] == "passthrough"
        assert len(tool.calls) == 1

    assert len(session(test, tool=shut).log.calls()) == 1


def test_closing_waits_and_then_gives_up() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        call = asyncio.create_task(bench.call("real", {"n": 1}))
        await tool.called(1)
        await bench.proxy.close(0.01)
        await asyncio.wait({call}, timeout=5)
        assert call.cancelled()

    assert not session(test, tool=shut).log.calls()


@pytest.mark.parametrize("failing", ["lost", "landed"])
@pytest.mark.parametrize("key", ["k", None])
def test_an_answer_that_could_not_be_recorded_is_kept_for_the_repetition(
    failing: str, key: str | None
) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        bench.log.failing = failing
        assert await code_of(bench.call("real", {"n": 1}, key=key)) == "log_unavailable"
        if failing == "lost":
            assert await code_of(bench.call("real", {"n": 1}, key=key)) == "log_unavailable"
            bench.log.failing = ""
        reply = await bench.call("real", {"n": 1}, key=key)
        assert answer_of(reply)["source"] == "passthrough"
        assert len(tool.calls) == 1

    assert len(session(test).log.calls()) == 1


def test_answers_that_meet_a_dead_log_are_all_recorded_later() -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        calls = [asyncio.create_task(bench.call("real", {"n": n})) for n in range(3)]
        await tool.called(3)
        bench.log.failing = "lost"
        tool.gate.set()
        for call in calls:
            assert await code_of(call) == "log_unavailable"
        bench.log.failing = ""
        assert (await bench.call("get_order", {"order_id": "1"})).status == 200
        for n in range(3):
            assert answer_of(await bench.call("real", {"n": n}))["source"] == "passthrough"
        assert len(tool.calls) == 3

    calls = session(test, tool=shut).log.calls()
    assert [call.tool for call in calls] == ["real", "real", "real", "get_order"]


@given(st.lists(st.sampled_from(["real", "note", "trace"]), max_size=10), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_parallel_calls_leave_a_log_that_gives_the_state_back(kinds: list[str], seed: int) -> None:
    async def test(bench: Bench, tool: Tool) -> None:
        async def one(number: int, kind: str) -> None:
            if kind == "real":
                await bench.call("real", {"n": number})
            elif kind == "note":
                await bench.call("add_note", {"text": str(number)})
            else:
                trace = Trace("plan", {"n": number}, Posting(NOW_MS + 1, "d1"), 1, 1)
                await bench.proxy.trace("s1", [trace])

        await asyncio.gather(*(one(number, kind) for number, kind in enumerate(kinds)))
        assert len(tool.calls) <= kinds.count("real")

    failures = [
        {"id": "a", "kind": "outage", "tool": "real", "probability": 0.3},
        {"id": "b", "kind": "content", "tool": "*", "content": "X", "probability": 0.5},
    ]
    bench = session(test, failures=failures, seed=seed)
    assert len(bench.log.calls()) == sum(kind != "trace" for kind in kinds)
