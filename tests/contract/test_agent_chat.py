"""Agent kind `openai`: a model with a prompt and tools, over the wire of a chat endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from schemas.registry import AgentRegistration, ChatSettings
from services.dispatcher.agents.chat import ChatAgent
from services.dispatcher.agents.kind import Superseded
from services.dispatcher.agents.prices import Prices
from services.runtime.agents.client import AgentFailed
from tests.support import kinds
from tests.support.http_server import serve

SECRET = "Bearer sk-canary-9f3e"


class Catalogue:
    """Stands where litellm stands, whose import takes seconds."""

    model_cost = {"known-model": {"input_cost_per_token": 2e-6, "output_cost_per_token": 6e-6}}  # noqa: RUF012


def make(exchanger: Any, proxy: Any, clock: Any) -> ChatAgent:
    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    return ChatAgent(exchanger, proxy, clock, prices=Prices(Catalogue), sleep=sleep)


class Model:
    """A chat endpoint that answers as it is told, and keeps what it is asked."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._models),
            ]
        )

    async def _complete(self, request: Request) -> Response:
        self.asked.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if callable(answer) and not isinstance(answer, Response):
            answer = answer(self.asked[-1])
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    async def _models(self, request: Request) -> Response:
        ok = request.headers.get("authorization") == SECRET
        return JSONResponse({"data": []}, 200 if ok else 401)


def says(
    text: Any = "Shipped.", *, reason: str = "stop", tokens: Any = (10, 2), **message: Any
) -> Any:
    answer: dict[str, Any] = {
        "id": "x", "object": "chat.completion", "model": "known-model",
        "choices": [
            {
                "index": 0, "finish_reason": reason,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
    }  # fmt: skip
    if tokens is not None:
        answer["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return answer


def calls(*made: tuple[str, Any], reason: str = "tool_calls") -> Any:
    return says(
        None, reason=reason,
        tool_calls=[
            {
                "id": f"c{n}", "type": "function",
                "function": {
                    "name": name,
                    "arguments": given if isinstance(given, str) else json.dumps(given),
                },
            }
            for n, (name, given) in enumerate(made)
        ],
    )  # fmt: skip


def agent_at(url: str, **chat: Any) -> AgentRegistration:
    return AgentRegistration(
        agent_id="a", name="a", kind="openai", endpoint=f"{url}/v1", tools=kinds.tools(),
        auth_header="Authorization", auth_value_ref="env:TEST_MODEL_KEY", run_timeout_s=20,
        chat=ChatSettings(**{"model": "m", "system_prompt": "You are a clerk.", **chat}),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODEL_KEY", SECRET)


@pytest.mark.req("R14", "R18")
def test_a_turn_with_tools_goes_through_the_proxy_and_back() -> None:
    model = Model([calls(("get_order", {"order_id": "1"})), says("It was shipped.")])
    with serve(model.app) as url, kinds.proxy() as proxy:
        agent = agent_at(url, parameters='{"temperature": 0, "seed": 7}')
        parsed = kinds.turn(
            make, agent, kinds.request_of(proxy, history=("Hi", "Hello"), state={"customer": "c9"})
        )
    first, second = model.asked
    assert model.headers[0]["authorization"] == SECRET
    assert (first["model"], first["temperature"], first["seed"]) == ("m", 0, 7)
    assert [m["role"] for m in first["messages"]] == ["system", "user", "assistant", "user"]
    assert first["messages"][0]["content"] == 'You are a clerk.\n\nInput:\n{"customer":"c9"}'
    assert first["messages"][-1]["content"] == "Where is order 1?"
    assert {tool["function"]["name"] for tool in first["tools"]} == {t.name for t in kinds.tools()}
    assert all(tool["function"]["parameters"]["type"] == "object" for tool in first["tools"])
    tool = second["messages"][-1]
    assert (tool["role"], tool["tool_call_id"]) == ("tool", "c0")
    assert json.loads(tool["content"])["status"] == "shipped"
    (called,) = kinds.calls(proxy)
    assert (called.tool, json.loads(called.arguments)) == ("get_order", {"order_id": "1"})
    assert called.idempotency_key
    assert parsed.final_response == "It was shipped."
    assert parsed.messages is not None
    assert [m["role"] for m in parsed.messages] == ["user", "assistant", "tool", "assistant"]
    assert parsed.metadata is not None
    runtime_ms = parsed.metadata.pop("agent_runtime_ms")
    assert isinstance(runtime_ms, int)
    assert parsed.metadata == {
        "model": "known-model", "total_input_tokens": 20, "total_output_tokens": 4, "rounds": 2,
        "cost_usd": pytest.approx(20 * 2e-6 + 4 * 6e-6),
    }  # fmt: skip
    assert parsed.usage is not None
    assert (parsed.usage.input_tokens, parsed.usage.output_tokens) == (20, 4)
    assert parsed.soft_warnings == ()
    assert SECRET not in repr(parsed)


def test_parallel_calls_are_made_in_the_order_given() -> None:
    wanted = [("get_order", {"order_id": str(n % 2 + 1)}) for n in range(6)]
    model = Model([calls(*wanted), says()])
    with serve(model.app) as url, kinds.proxy() as proxy:
        kinds.turn(make, agent_at(url), kinds.request_of(proxy))
    made = [(one.tool, json.loads(one.arguments)) for one in kinds.calls(proxy)]
    assert made == wanted
    answers = [m for m in model.asked[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in answers] == [f"c{n}" for n in range(6)]
    assert len({one.idempotency_key for one in kinds.calls(proxy)}) == 6


@pytest.mark.req("R05")
def test_what_the_model_gets_wrong_it_is_told() -> None:
    model = Model(
        [
            calls(
                ("get_order", "{nope"), ("get_order", "[1]"), ("no_such_tool", {}),
                ("../../trace", {}), ("get_order", {"order_id": 5}),
                ("get_order", {"order_id": "9"}),
                ("get_order", {"order_id": "1", "deep": eval("[" * 50 + "]" * 50)}),
            ),
            says(),
        ]
    )  # fmt: skip
    with serve(model.app) as url, kinds.proxy() as proxy:
        kinds.turn(make, agent_at(url), kinds.request_of(proxy))
    told = [json.loads(m["content"]) for m in model.asked[1]["messages"] if m["role"] == "tool"]
    assert [one["error"]["code"] for one in told] == [
        "arguments_invalid", "arguments_invalid", "tool_unknown", "tool_unknown",
        "arguments_invalid", "not_found", "arguments_invalid",
    ]  # fmt: skip
    assert told[4]["error"]["details"]["errors"][0]["path"] == "/order_id"
    # What reached the proxy is in the trajectory, refusals included.
    assert [one.error_code for one in kinds.calls(proxy)] == [
        "tool_unknown", "arguments_invalid", None, "arguments_invalid",
    ]  # fmt: skip


def test_rounds_are_bounded_and_the_last_calls_are_not_made() -> None:
    model = Model([calls(("add_note", {"text": "again"}))])
    with serve(model.app) as url, kinds.proxy() as proxy:
        with pytest.raises(AgentFailed) as caught:
            kinds.turn(make, agent_at(url, max_rounds=3), kinds.request_of(proxy))
        assert (caught.value.outcome, caught.value.code) == ("error", "tool_loop_limit")
    assert len(model.asked) == 3
    assert len(kinds.calls(proxy)) == 2


def raw(text: str | bytes, status: int = 200, **headers: str) -> Response:
    return Response(text, status, headers=headers)


FAILURES: dict[str, tuple[Any, str]] = {
    "empty": (says(""), "model_empty_answer"),
    "null": (says(None), "model_empty_answer"),
    "blank": (says(" \n"), "model_empty_answer"),
    "parts without text": (says([{"type": "image"}]), "model_empty_answer"),
    "filtered": (says(None, reason="content_filter"), "content_filtered"),
    "nothing but reasoning": (says("", reason="length"), "model_cut_off"),
    "calls cut off": (calls(("get_order", '{"order_id": "1'), reason="length"), "model_cut_off"),
    "too many calls": (calls(*[("get_order", {})] * 65), "too_many_tool_calls"),
    "calls are no array": (says(None, tool_calls={"id": "c"}), "model_response_malformed"),
    "call without name": (says(None, tool_calls=[{"id": "c"}]), "model_response_malformed"),
    "no choices": ({"choices": []}, "model_response_malformed"),
    "choices of null": ({"choices": [None]}, "model_response_malformed"),
    "no message": ({"choices": [{"finish_reason": "stop"}]}, "model_response_malformed"),
    "an error in a 200": ({"error": {"message": "boom"}}, "model_response_malformed"),
    "an array": ([], "model_response_malformed"),
    "no JSON": (raw("data: [DONE]"), "response_not_json"),
    "nothing": (raw(b""), "response_not_json"),
    "400": (raw('{"error": "bad tool name"}', 400), "http_status"),
    "401": (raw("no", 401), "http_status"),
    "500 for ever": (raw("boom", 500), "http_status"),
    "redirect": (raw("", 307, location="http://169.254.169.254/"), "redirect"),
}


@pytest.mark.req("R13")
@pytest.mark.parametrize("name", FAILURES)
def test_what_a_model_fails_with_is_typed(name: str) -> None:
    answer, code = FAILURES[name]
    model = Model([answer])
    with serve(model.app) as url, pytest.raises(AgentFailed) as caught:
        kinds.turn(make, agent_at(url), kinds.request_of(None))
    assert (caught.value.outcome, caught.value.code) == ("error", code)
    assert SECRET not in caught.value.detail
    assert len(model.asked) == (3 if name == "500 for ever" else 1)


def test_what_passes_is_asked_again() -> None:
    model = Model([raw("busy", 429, **{"retry-after": "1"}), raw("x", 503), says("Done.")])
    with serve(model.app) as url:
        assert kinds.turn(make, agent_at(url), kinds.request_of(None)).final_response == "Done."
    assert model.asked[0] == model.asked[2]


@pytest.mark.parametrize(
    ("answer", "text", "warning"),
    [
        (says("Half of", reason="length"), "Half of", "cut off"),
        (says(None, refusal="I cannot do that."), "I cannot do that.", "refused"),
        (says([{"type": "text", "text": t} for t in ("In ", "parts")]), "In parts", None),
        (says("Hi", tokens=None), "Hi", "tokens"),
        (says("Hi", tokens=(-1, True)), "Hi", "tokens"),
        (says("Hi", tokens=("3", 2**70)), "Hi", "tokens"),
    ],
)  # fmt: skip
def test_answers_of_all_kinds(answer: Any, text: str, warning: str | None) -> None:
    with serve(Model([answer]).app) as url:
        parsed = kinds.turn(make, agent_at(url), kinds.request_of(None))
    assert parsed.final_response == text
    assert [warning in one for one in parsed.soft_warnings] == ([True] if warning else [])


def test_small_liberties_of_servers_are_taken() -> None:
    loose = says(None, reason="stop", tool_calls=[
        {"function": {"name": "get_order", "arguments": {"order_id": "1"}}},
        {"id": None, "type": "function", "function": {"name": "get_order", "arguments": ""}},
    ])  # fmt: skip
    model = Model([loose, says()])
    with serve(model.app) as url, kinds.proxy() as proxy:
        parsed = kinds.turn(make, agent_at(url), kinds.request_of(proxy))
    assert [m["tool_call_id"] for m in model.asked[1]["messages"] if m["role"] == "tool"] == [
        "call_1_1", "call_1_2",
    ]  # fmt: skip
    assert parsed.messages is not None
    assert len(kinds.calls(proxy)) == 2


@pytest.mark.req("R16")
def test_the_turn_as_a_whole_is_bounded() -> None:
    async def never(_: Request) -> Response:
        await asyncio.sleep(10)
        return Response()

    app = Starlette(routes=[Route("/v1/chat/completions", never, methods=["POST"])])
    with serve(app) as url, pytest.raises(AgentFailed) as caught:
        kinds.turn(make, replace(agent_at(url), run_timeout_s=1), kinds.request_of(None))
    assert caught.value.outcome == "timeout"

    def slow(_: Any) -> Any:
        import time

        time.sleep(0.4)
        return calls(("get_order", {"order_id": "1"}))

    model = Model([slow])
    with serve(model.app) as url, kinds.proxy() as proxy:
        agent = replace(agent_at(url, max_rounds=100), run_timeout_s=1)
        with pytest.raises(AgentFailed) as caught:
            kinds.turn(make, agent, kinds.request_of(proxy))
    assert caught.value.outcome == "timeout"


def proxy_that(answer: Callable[[int], Response]) -> tuple[Starlette, list[Request]]:
    seen: list[Request] = []

    async def handler(request: Request) -> Response:
        seen.append(request)
        return answer(len(seen))

    return Starlette(routes=[Route("/{path:path}", handler, methods=["POST"])]), seen


def refusal(code: str, status: int, retryable: bool, **headers: str) -> Response:
    error = {"code": code, "message": "m", "retryable": retryable}
    return JSONResponse({"error": error}, status, headers=headers)


ENVELOPE = {"tool_name": "t", "response": "text", "source": "odyssey", "latency_ms": 1}


@pytest.mark.req("R08")
def test_conditions_of_the_platform_are_waited_out_with_one_key() -> None:
    answers = [
        refusal("session_not_ready", 503, True),
        refusal("rate_limited", 429, True, **{"retry-after": "7"}),
        refusal("log_unavailable", 503, True),
        JSONResponse(ENVELOPE),
    ]
    app, seen = proxy_that(lambda n: answers[n - 1])
    slept: list[float] = []
    model = Model([calls(("get_order", {"order_id": "1"})), says()])
    with serve(app) as proxy_url, serve(model.app) as url:
        request = kinds.request_of(None, proxy_url=proxy_url, token="the-token")
        kinds.turn(make, agent_at(url), request, slept)
    assert len({one.headers["idempotency-key"] for one in seen}) == 1
    assert {one.headers["authorization"] for one in seen} == {"Bearer the-token"}
    assert model.asked[1]["messages"][-1]["content"] == "text"
    assert len(slept) == 3
    assert 0.5 <= slept[0] <= 1.25
    assert slept[1] == 7
    assert 2 <= slept[2] <= 4


@pytest.mark.req("R08")
def test_a_platform_that_stays_away_is_not_the_agents_fault() -> None:
    cases: list[tuple[Response, type[Exception], int]] = [
        (refusal("overloaded", 503, True), LookupError, 4),
        (refusal("token_invalid", 401, False), LookupError, 1),
        (raw("<html>", 502), LookupError, 1),
        (JSONResponse({"no": "envelope"}), LookupError, 1),
        (refusal("turn_superseded", 409, False), Superseded, 1),
    ]
    for answer, error, attempts in cases:
        app, seen = proxy_that(lambda _, answer=answer: answer)  # type: ignore[misc]
        model = Model([calls(("get_order", {"order_id": "1"})), says()])
        with serve(app) as proxy_url, serve(model.app) as url, pytest.raises(error):
            kinds.turn(make, agent_at(url), kinds.request_of(None, proxy_url=proxy_url))
        assert len(seen) == attempts
    model = Model([calls(("get_order", {"order_id": "1"})), says()])
    with pytest.raises(LookupError, match="unreachable"), serve(model.app) as url:
        kinds.turn(make, agent_at(url), kinds.request_of(None))


def test_a_rate_limit_that_stays_is_told_to_the_model() -> None:
    app, seen = proxy_that(lambda _: refusal("rate_limited", 429, True, **{"retry-after": "600"}))
    model = Model([calls(("get_order", {"order_id": "1"})), says()])
    with serve(app) as proxy_url, serve(model.app) as url:
        kinds.turn(make, agent_at(url), kinds.request_of(None, proxy_url=proxy_url))
    assert len(seen) == 1
    assert "rate_limited" in model.asked[1]["messages"][-1]["content"]


def test_a_turn_posted_again_repeats_its_calls_and_not_their_effects() -> None:
    model = Model([calls(("add_note", {"text": "a"}), ("add_note", {"text": "b"})), says()])
    other = Model([calls(("add_note", {"text": "b"}), ("add_note", {"text": "c"})), says()])
    with serve(model.app) as url, serve(other.app) as other_url, kinds.proxy() as proxy:
        kinds.turn(make, agent_at(url), kinds.request_of(proxy, dispatch="d1"))
        kinds.turn(make, agent_at(other_url), kinds.request_of(proxy, dispatch="d2"))
    assert [json.loads(one.arguments)["text"] for one in kinds.calls(proxy)] == ["a", "b", "c"]
    assert "error" not in other.asked[1]["messages"][-1]["content"]


@pytest.mark.req("R17")
def test_the_check_asks_for_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(Model([]).app) as url:
        kinds.run(make, lambda kind: kind.check(agent_at(url), 5))
        monkeypatch.setenv("TEST_MODEL_KEY", "Bearer wrong")
        with pytest.raises(AgentFailed, match="401"):
            kinds.run(make, lambda kind: kind.check(agent_at(url), 5))
    with pytest.raises(AgentFailed):
        kinds.run(make, lambda kind: kind.check(agent_at("http://127.0.0.1:1"), 5))
