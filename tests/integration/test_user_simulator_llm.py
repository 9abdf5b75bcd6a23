"""The user played by a model, over real HTTP against an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from schemas.briefs import UserBrief
from schemas.user import Persona, UserGoal
from services.runtime.metrics import Metrics
from services.runtime.models import Model, ModelUnusable, load_litellm
from services.user_simulator.llm import LlmSimulator
from services.user_simulator.prompt import RESPONSE_FORMAT
from services.user_simulator.service import UserSimulatorSettings
from services.user_simulator.simulator import AgentSaid, History, UserMove, UserSaid
from services.user_simulator.validity import checked
from tests.support.users import EMAIL, ORDER, RETURN, brief, conversation

pytestmark = pytest.mark.timeout(180)

KEY = "sk-user-simulator-0123456789"
MODEL = "scripted-1"
TOLD = UserBrief(
    narrative="You bought a lamp that flickers. You want your money back.",
    persona=Persona(name="tired", style="terse", patience=3, description="You work at night."),
    seed=7,
)
TALKED: History = (UserSaid(1, "My lamp flickers."), AgentSaid(1, "Which lamp is it?"))


def good(message: str = "Hello, my lamp flickers.", status: str = "continue") -> dict[str, Any]:
    return says(json.dumps({"message": message, "status": status}))


def says(content: str | None, **message: Any) -> dict[str, Any]:
    return {
        "id": "c1", "object": "chat.completion", "created": 1, "model": MODEL,
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": content, **message},
        }],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }  # fmt: skip


def failure(status: int) -> tuple[int, dict[str, Any]]:
    # Providers quote keys in their errors, so this one does.
    return status, {"error": {"message": f"refused for key {KEY}", "type": "x", "code": "x"}}


class Provider:
    """Answers with a script, one entry a request, and keeps the requests."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.delay_s = 0.0
        app = Starlette(routes=[Route("/v1/chat/completions", self._answer, methods=["POST"])])
        config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}/v1"

    async def _answer(self, request: Request) -> JSONResponse:
        self.bodies.append(await request.json())
        self.keys.append(request.headers["authorization"])
        entry = self.script.pop(0)
        if entry == "hang":
            await asyncio.sleep(self.delay_s)
            entry = good()
        status, body = entry if isinstance(entry, tuple) else (200, entry)
        return JSONResponse(body, status)


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    one = Provider()
    one.thread.start()
    deadline = time.monotonic() + 10
    while not one.server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    assert one.server.started
    yield one
    one.server.should_exit = True
    one.thread.join(10)
    assert not one.thread.is_alive()


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    # As in the service: one loop for all calls, since litellm keeps its clients.
    with asyncio.Runner() as runner:
        yield runner


class Bench:
    """One simulator, its provider, and what it slept."""

    def __init__(self, provider: Provider, runner: asyncio.Runner) -> None:
        self.provider = provider
        provider.script, provider.bodies, provider.keys = [], [], []
        self.runner = runner
        self.metrics = Metrics()
        self.slept: list[float] = []

    def model(self, **settings: Any) -> Model:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        values = {
            "model": f"openai/{MODEL}", "api_base": self.provider.url, "api_key": SecretStr(KEY),
            "timeout_s": 10, **settings,
        }  # fmt: skip
        named = {f"user_{name}" if name == "model" else f"user_model_{name}": value
                 for name, value in values.items()}  # fmt: skip
        configured = UserSimulatorSettings(**named).model()
        assert configured is not None
        return Model(configured, "user", self.metrics, sleep=sleep)

    def simulator(self, **settings: Any) -> LlmSimulator:
        return LlmSimulator(self.model(**settings))

    def turn(
        self, *script: Any, user: UserBrief = TOLD, history: History = (), **settings: Any
    ) -> UserMove:
        self.provider.script = list(script)
        return self.run(self.simulator(**settings).next_turn(user, history))

    def run(self, work: Coroutine[Any, Any, UserMove]) -> UserMove:
        return self.runner.run(work)


@pytest.fixture
def bench(provider: Provider, loop: asyncio.Runner) -> Bench:
    load_litellm()  # seconds, the first time: no test's time goes into it
    return Bench(provider, loop)


@pytest.mark.req("V02", "V03")
def test_the_brief_comes_first_and_roles_are_kept(bench: Bench) -> None:
    move = bench.turn(good("The bedside one."), history=TALKED)
    assert (move.text, move.ending, move.invalid) == ("The bedside one.", None, None)
    (body,) = bench.provider.bodies
    assert body["model"] == MODEL
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"]
    system = body["messages"][0]["content"]
    for part in (TOLD.narrative, "You work at night.", "few words", "3 answers", '"give_up"'):
        assert part in system
    assert json.loads(body["messages"][2]["content"]) == {
        "message": "My lamp flickers.", "status": "continue",
    }  # fmt: skip
    assert body["messages"][3]["content"] == "Which lamp is it?"
    assert body["response_format"]["type"] == "json_schema"
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["message", "status"]
    assert schema["properties"]["status"]["enum"] == ["continue", "goal_met", "give_up"]
    assert body["temperature"] == 0.7
    assert bench.provider.keys == [f"Bearer {KEY}"]


@pytest.mark.req("V02", "V03")
def test_a_written_brief_is_told_whole_and_only_for_the_conversation_at_hand(bench: Bench) -> None:
    later = UserGoal(say=("Has the parcel {order_id} arrived?",), done_when=("arrived",))
    user = brief(
        conversation(RETURN, pushes=("I am the owner of {order_id}!",)),
        conversation(later, consents=False, after="3d"),
    )
    bench.turn(good("Hi"), user=user)
    first = bench.provider.bodies[0]["messages"][0]["content"]
    for part in (RETURN.say[0], "return (has been|was)", f"owner of {ORDER}!", EMAIL, "you agree"):
        assert part in first
    assert "parcel" not in first
    over: History = (*TALKED, UserSaid(1, "Bye", closing=True))
    bench.turn(good("Hi"), user=user, history=over)
    second = bench.provider.bodies[1]["messages"]
    assert f"parcel {ORDER} arrived" in second[0]["content"]
    assert "you decline" in second[0]["content"]
    assert [m["role"] for m in second] == ["system", "user", "assistant", "user", "assistant",
                                           "user"]  # fmt: skip
    assert "3d later" in second[-1]["content"]


@pytest.mark.req("V02")
@pytest.mark.parametrize(
    ("status", "conversations", "ending"),
    [
        ("continue", 1, None),
        ("goal_met", 1, "goal_met"),
        ("goal_met", 2, "conversation_over"),
        ("give_up", 2, "gave_up"),
    ],
)
def test_endings(bench: Bench, status: str, conversations: int, ending: str | None) -> None:
    user = brief(*[conversation()] * conversations)
    answer = "Your return was booked." if status == "goal_met" else "Which lamp is it?"
    history: History = (UserSaid(1, "My lamp flickers."), AgentSaid(1, answer))
    move = bench.turn(good("Fine.", status), user=user, history=history)
    assert move.ending == ending
    assert checked(user, history, move).invalid is None


@pytest.mark.req("V02")
def test_a_model_that_is_content_too_early_is_found_out(bench: Bench) -> None:
    user = brief(conversation())
    move = bench.turn(good("Fine.", "goal_met"), user=user, history=TALKED)
    assert "ends too early" in (checked(user, TALKED, move).invalid or "")


@pytest.mark.req("V02")
@pytest.mark.parametrize(
    "bad",
    [
        "Hello, my lamp flickers.",
        '{"message": "Hello"',
        '{"message": "Hello", "status": "happy"}',
        '{"message": "Hello", "status": "continue", "thoughts": "hm"}',
        '{"message": "", "status": "continue"}',
        "",
    ],
)
def test_malformed_output_is_repaired(bench: Bench, bad: str) -> None:
    move = bench.turn(says(bad), good())
    assert (move.text, move.invalid) == ("Hello, my lamp flickers.", None)
    first, second = bench.provider.bodies
    assert second["messages"][:-2] == first["messages"]
    assert second["messages"][-2] == {"role": "assistant", "content": bad}
    assert "not usable" in second["messages"][-1]["content"]
    assert move.usage is not None
    assert (move.usage.input_tokens, move.usage.output_tokens) == (200, 40)


@pytest.mark.req("V02")
def test_repairs_are_bounded(bench: Bench) -> None:
    move = bench.turn(*[says("no json")] * 3, good())
    assert "output contract" in (move.invalid or "")
    assert len(bench.provider.bodies) == 3
    assert move.usage is not None
    assert move.usage.input_tokens == 300


@pytest.mark.req("V02")
def test_a_refusal_of_the_model_is_invalid_at_once(bench: Bench) -> None:
    move = bench.turn(says(None, refusal="I will not do that."), good())
    assert "declined" in (move.invalid or "")
    assert len(bench.provider.bodies) == 1


def test_what_may_pass_is_tried_again(bench: Bench) -> None:
    move = bench.turn(failure(429), failure(503), good())
    assert move.text == "Hello, my lamp flickers."
    assert len(bench.provider.bodies) == 3
    assert bench.slept == [0.5, 1.0]
    rendered = bench.metrics.render().decode()
    assert 'windtunnel_model_calls_total{outcome="retry",role="user"} 2.0' in rendered
    assert 'windtunnel_model_calls_total{outcome="ok",role="user"} 1.0' in rendered
    tokens = (
        f'windtunnel_model_tokens_total{{direction="input",model="openai/{MODEL}",role="user"}}'
    )
    assert f"{tokens} 100.0" in rendered


@pytest.mark.parametrize(("status", "requests"), [(429, 4), (500, 4), (401, 1), (400, 1)])
def test_what_does_not_pass_is_invalid_and_keeps_the_key(
    bench: Bench, status: int, requests: int, caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    move = bench.turn(*[failure(status)] * 6)
    assert f"HTTP {status}" in (move.invalid or "")
    assert f"{requests} attempt" in (move.invalid or "")
    assert len(bench.provider.bodies) == requests
    out, err = capfd.readouterr()
    assert KEY not in (move.invalid or "") + caplog.text + out + err


def test_no_exception_carries_the_key(bench: Bench) -> None:
    bench.provider.script = [failure(401)]
    context = [{"role": "system", "content": "x"}]
    with pytest.raises(ModelUnusable) as caught:
        bench.runner.run(bench.model().ask(context, RESPONSE_FORMAT, 1))
    assert KEY not in repr(caught.value)
    assert (caught.value.error, caught.value.status) == ("AuthenticationError", 401)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_a_model_that_hangs_is_given_up(bench: Bench) -> None:
    bench.provider.delay_s = 3.0
    started = time.monotonic()
    move = bench.turn("hang", "hang", timeout_s=0.3, attempts=2)
    assert "Timeout" in (move.invalid or "")
    assert len(bench.provider.bodies) == 2
    assert time.monotonic() - started < 3.0
    assert bench.turn("hang", good("Back again."), timeout_s=0.3).text == "Back again."
    bench.provider.script = ["hang"]
    asking = bench.model(timeout_s=0.3, attempts=1).ask([], RESPONSE_FORMAT)
    with pytest.raises(ModelUnusable) as caught:
        bench.runner.run(asking)
    assert caught.value.error == "Timeout"


def test_a_provider_that_is_not_there_is_invalid(bench: Bench) -> None:
    move = bench.turn(api_base="http://127.0.0.1:9/v1", attempts=2)
    assert "2 attempts" in (move.invalid or "")


@pytest.mark.req("V04")
def test_the_seed_travels_and_depends_on_session_and_turn(bench: Bench) -> None:
    other = TOLD.model_copy(update={"seed": 8})
    for user, history in ((TOLD, ()), (TOLD, ()), (other, ()), (TOLD, TALKED)):
        bench.turn(good("Hi"), user=user, history=history)
    first, again, another, later = [body["seed"] for body in bench.provider.bodies]
    assert first == again
    assert len({first, another, later}) == 3


@pytest.mark.req("V10")
def test_the_pin_names_model_and_temperature(bench: Bench) -> None:
    assert bench.simulator().pin() == "llm:openai/scripted-1@temperature=0.7"
    assert bench.simulator(temperature=0).pin() == "llm:openai/scripted-1@temperature=0"


@pytest.mark.req("V02")
def test_a_model_that_swaps_roles_is_caught(bench: Bench) -> None:
    move = bench.turn(good("How can I help you today?"), history=TALKED)
    assert "speaks as the agent" in (checked(TOLD, TALKED, move).invalid or "")


def test_calls_at_once_are_bounded(bench: Bench) -> None:
    bench.provider.delay_s = 0.2
    bench.provider.script = ["hang"] * 6

    async def six() -> UserMove:
        simulator = bench.simulator(concurrency=2)
        seen = []

        async def watch() -> None:
            while True:
                seen.append(len(bench.provider.bodies) - (6 - len(left())))
                await asyncio.sleep(0.02)

        def left() -> list[asyncio.Task[UserMove]]:
            return [task for task in tasks if not task.done()]

        tasks = [asyncio.create_task(simulator.next_turn(TOLD, ())) for _ in range(6)]
        watcher = asyncio.create_task(watch())
        moves = await asyncio.gather(*tasks)
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
        assert max(seen) == 2
        return moves[-1]

    assert bench.run(six()).invalid is None
