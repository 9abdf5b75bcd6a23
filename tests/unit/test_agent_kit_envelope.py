"""The agent's side of a dispatch: reading the envelope, and what is bound where."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import json
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from services.agent_kit import (
    Envelope,
    EnvelopeError,
    actor,
    bound,
    current,
    kit,
    run_async_in_thread,
    set_current,
)

ROOT = Path(__file__).parents[2]
TOKEN = "canary-token-5f2a"
BODY: dict[str, Any] = {
    "task_id": 42, "run_id": 17, "agent_id": 8,
    "input": {"task_id": 42, "user_instruction": "Refund it.", "input": {"order_id": "4521"}},
    "odyssey_proxy_url": "https://api.example.com/api/odyssey-proxy/runs/abc",
    "run_token_jti": "2105977b",
}  # fmt: skip
HEADERS = {
    "Content-Type": "application/json",
    "X-Pipelines-Run-Token": TOKEN,
    "X-Pipelines-Odyssey-Proxy-Url": "https://header.example.com/runs/abc",
    "X-Pipelines-Run-Id": "18",
    "X-Pipelines-Task-Id": "43",
    "X-Pipelines-Run-Token-Jti": "from-header",
}
ENVIRON = {
    "PIPELINES_ODYSSEY_PROXY_URL": "http://127.0.0.1:8081/api/odyssey-proxy/runs/abc",
    "PIPELINES_RUN_TOKEN": TOKEN,
    "PIPELINES_RUN_TOKEN_JTI": "2105977b",
    "PIPELINES_RUN_ID": "17",
    "PIPELINES_TASK_ID": "42",
    "_PIPELINES_TASK_INPUT_JSON": json.dumps(BODY["input"]),
}


def envelope(token: str = TOKEN) -> Envelope:
    return Envelope.from_request(BODY, {**HEADERS, "X-Pipelines-Run-Token": token})


@pytest.fixture
def no_dispatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ENVIRON:
        monkeypatch.delenv(name, raising=False)
    yield
    with pytest.raises(EnvelopeError):
        current()  # nothing that a test bound is left behind


@pytest.mark.req("R12", "R26")
def test_the_body_is_preferred() -> None:
    found = Envelope.from_request(BODY, HEADERS)
    assert (found.task_id, found.run_id, found.agent_id) == (42, 17, 8)
    assert found.user_instruction == "Refund it."
    assert found.task_input == {"order_id": "4521"}
    assert found.proxy_url == "https://api.example.com/api/odyssey-proxy/runs/abc"
    assert (found.run_token, found.run_token_jti) == (TOKEN, "2105977b")
    assert found.session is None


@pytest.mark.req("R11", "R26")
@pytest.mark.parametrize("spelling", [str.lower, str.upper, str])
def test_headers_stand_in_for_what_was_stripped(spelling: Any) -> None:
    headers = {spelling(name): value for name, value in HEADERS.items()}
    body = {"input": BODY["input"], "run_id": None}
    for given in (headers, Headers(headers)):
        found = Envelope.from_request(body, given)
        assert (found.task_id, found.run_id, found.agent_id) == (43, 18, None)
        assert found.proxy_url == "https://header.example.com/runs/abc"
        assert found.run_token_jti == "from-header"


@pytest.mark.req("R12")
@pytest.mark.parametrize("task", [None, {}, {"user_instruction": None, "input": None}])
def test_what_a_task_may_leave_out(task: Any) -> None:
    found = Envelope.from_request(BODY | {"input": task}, HEADERS)
    assert (found.user_instruction, found.task_input) == ("", {})


@pytest.mark.req("R12")
def test_the_session_of_a_conversation() -> None:
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    session = {"id": "s", "conversation": 1, "turn": 2, "history": history, "more": True}
    found = Envelope.from_request(BODY | {"session": session}, HEADERS).session
    assert found is not None
    assert (found.id, found.conversation, found.turn) == ("s", 1, 2)
    assert list(found.history) == history


@pytest.mark.req("R20", "R26")
def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Envelope.from_env(ENVIRON)
    assert (found.task_id, found.run_id, found.agent_id) == (42, 17, None)
    assert (found.user_instruction, found.task_input) == ("Refund it.", {"order_id": "4521"})
    assert (found.run_token, found.proxy_url) == (TOKEN, ENVIRON["PIPELINES_ODYSSEY_PROXY_URL"])
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    assert Envelope.from_env() == found
    assert current() == found  # nothing is bound: in code mode the environment says it
    with set_current(envelope("another")) as other:
        assert current() == other
    carried = bound(lambda: current().run_token)
    monkeypatch.setenv("PIPELINES_RUN_TOKEN", "of-the-next-turn")
    assert (current().run_token, carried()) == ("of-the-next-turn", TOKEN)


@pytest.mark.req("R26")
@pytest.mark.parametrize("name", [name for name in HEADERS if name != "Content-Type"])
def test_a_missing_field_is_named(name: str) -> None:
    headers = {key: value for key, value in HEADERS.items() if key != name}
    with pytest.raises(EnvelopeError, match=f"header {name}.* is missing"):
        Envelope.from_request({"input": BODY["input"]}, headers)


@pytest.mark.req("R20")
@pytest.mark.parametrize("name", list(ENVIRON))
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named(name: str, value: str | None) -> None:
    environ = {key: other for key, other in ENVIRON.items() if key != name}
    with pytest.raises(EnvelopeError, match=f"{name} is missing"):
        Envelope.from_env(environ if value is None else {**environ, name: value})


@pytest.mark.req("R26")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task_id": "forty"}, "task_id must be a decimal"),
        ({"run_id": True}, "run_id must be a decimal"),
        ({"agent_id": 1.5}, "agent_id must be a decimal"),
        ({"input": []}, "input must be an object"),
        ({"input": {"user_instruction": 1}}, "input.user_instruction must be a string"),
        ({"input": {"input": "x"}}, "input.input must be an object"),
        ({"odyssey_proxy_url": "ftp://x"}, "http or https"),
        ({"odyssey_proxy_url": "http://x/a b"}, "http or https"),
        ({"odyssey_proxy_url": "http://[::1"}, "http or https"),
        ({"odyssey_proxy_url": 5}, "odyssey_proxy_url must be a string"),
        ({"session": []}, "session must be an object"),
        ({"session": {"id": "s", "turn": 1}}, "session.conversation must be"),
        ({"session": {"id": "s", "turn": 1, "conversation": 1, "history": {}}}, "session.history"),
    ],
)
def test_a_malformed_field_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EnvelopeError, match=message):
        Envelope.from_request(BODY | change, HEADERS)


@pytest.mark.req("R26")
@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_body_that_is_no_object(body: Any) -> None:
    with pytest.raises(EnvelopeError, match="JSON object"):
        Envelope.from_request(body, HEADERS)


@pytest.mark.req("R20")
@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_malformed_task_input(text: str) -> None:
    with pytest.raises(EnvelopeError, match="_PIPELINES_TASK_INPUT_JSON"):
        Envelope.from_env(ENVIRON | {"_PIPELINES_TASK_INPUT_JSON": text})


@pytest.mark.req("R22")
@pytest.mark.parametrize("bad", [f"{TOKEN}\r\nX: y", f"{TOKEN} ", f"{TOKEN}é", f"{TOKEN}\x00"])
def test_the_token_is_never_shown(bad: str) -> None:
    good = envelope()
    with pytest.raises(EnvelopeError) as refused:
        envelope(bad)
    for shown in (repr(good), str(good), f"{good}", str(refused.value), repr(refused.value)):
        assert TOKEN not in shown
    with pytest.raises(dataclasses.FrozenInstanceError):
        good.run_token = "x"  # type: ignore[misc]


@pytest.mark.usefixtures("no_dispatch")
@pytest.mark.req("R20")
def test_bindings_nest_and_end() -> None:
    with pytest.raises(EnvelopeError, match="no dispatch is bound"):
        current()
    with set_current(envelope("a")):
        with set_current(envelope("b")):
            assert current().run_token == "b"
        assert current().run_token == "a"
        with pytest.raises(KeyError), set_current(envelope("c")):
            raise KeyError
        assert current().run_token == "a"


@pytest.mark.usefixtures("no_dispatch")
@pytest.mark.req("R20")
def test_a_binding_survives_the_thread_of_a_coroutine() -> None:
    """As in code mode: a loop is running, and the agent's code is asynchronous."""

    async def agent() -> tuple[str, str | None, str]:
        await asyncio.sleep(0)
        token = await asyncio.to_thread(lambda: current().run_token)
        return token, kit._ACTOR.get(), threading.current_thread().name

    async def fails() -> None:
        raise KeyError("from the thread")

    async def platform() -> None:
        with set_current(envelope("main")), actor("planner"):
            assert asyncio.get_running_loop().is_running()  # so asyncio.run would be refused
            assert run_async_in_thread(agent) == ("main", "planner", "agent-kit")
            with pytest.raises(KeyError, match="from the thread"):
                run_async_in_thread(fails)

    asyncio.run(platform())


@pytest.mark.usefixtures("no_dispatch")
@pytest.mark.req("R20")
def test_bound_functions_in_an_executor() -> None:
    together = threading.Barrier(4)

    def look_up(number: int) -> tuple[int, str, str | None]:
        together.wait(10)  # all four are inside at once
        return number, current().run_token, kit._ACTOR.get()

    def unbound() -> str:
        return current().run_token

    with ThreadPoolExecutor(4) as pool:
        with set_current(envelope("one")), actor("search"):
            found = list(pool.map(bound(look_up), range(4)))
            carried = bound(unbound)
            with pytest.raises(EnvelopeError):
                pool.submit(unbound).result()  # the reason why `bound` is there
        assert found == [(number, "one", "search") for number in range(4)]
        with set_current(envelope("two")):
            assert pool.submit(carried).result() == "one"
            assert current().run_token == "two"
    with pytest.raises(EnvelopeError):
        bound(unbound)
    assert carried.__name__ == "unbound"


@pytest.mark.usefixtures("no_dispatch")
def test_concurrent_dispatches_do_not_meet() -> None:
    async def one(name: str) -> list[str]:
        with set_current(envelope(name)):
            seen = []
            for _ in range(20):
                await asyncio.sleep(0)
                seen.append(current().run_token)
            return seen

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(one(f"t{number}") for number in range(20)))

    assert asyncio.run(main()) == [[f"t{number}"] * 20 for number in range(20)]


@pytest.mark.req("R09", "R20")
def test_actor_labels_join() -> None:
    with actor("supervisor") as outer, actor("refunds/eu") as inner:
        assert (outer, inner) == ("supervisor", "supervisor/refunds/eu")
        assert kit._ACTOR.get() == inner
    assert kit._ACTOR.get() is None
    for label in ("a\r\nX: y", "é", "a\x00"):
        with pytest.raises(ValueError, match="printable ASCII"), actor(label):
            pass


@pytest.mark.req("R20", "R26")
def test_the_file_works_alone_and_on_python_39(tmp_path: Path) -> None:
    """Copied into an upload, it needs neither this project nor any package."""
    source = (ROOT / "services/agent_kit/kit.py").read_text()
    tree = ast.parse(source, feature_version=(3, 9))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert imported <= sys.stdlib_module_names
    (tmp_path / "kit.py").write_text(source)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import kit\n"
        "envelope = kit.Envelope.from_env()\n"
        "assert kit.current() == envelope\n"
        "assert not {'services', 'schemas', 'starlette', 'httpx'} & set(sys.modules)\n"
        "print(repr(envelope))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code],
        env=ENVIRON, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "Refund it." in done.stdout
    assert TOKEN not in done.stdout


@pytest.mark.req("R20", "R26")
def test_the_folder_works_under_another_name(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "services/agent_kit", tmp_path / "vendored")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import vendored.routes, vendored.exporters\n"
        "assert vendored.Envelope is vendored.routes.Envelope\n"
        "assert not {'services', 'schemas', 'pipelines'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code], timeout=60, check=True)


def test_errors_survive_a_process_boundary() -> None:
    error = kit.ProxyError("rate_limited", 429, "wait", True, {"a": 1})
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code, again.retryable) == (str(error), "rate_limited", True)
