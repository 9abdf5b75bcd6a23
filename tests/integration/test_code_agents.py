"""Turns of agents whose source was uploaded, in real sandboxes: what they get, what they give."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration
from services.dispatcher.code.limits import MAX_RESULT_BYTES
from services.runtime.agents.client import AgentFailed
from tests.support.code_agents import (
    TOKEN,
    desk,
    make_request,
    require_bubblewrap,
    sandbox_processes,
    until,
)

KIT = Path(__file__).parents[2] / "services/agent_kit/kit.py"


@pytest.fixture(autouse=True)
def _lane() -> None:
    require_bubblewrap()


def answered(folder: Path, source: Any, text: str = "hello", **request: Any) -> ParsedResponse:
    """What one turn gives."""

    async def go() -> ParsedResponse:
        async with desk(folder, **request.pop("limits", {})) as one:
            return await one.ask(source, text, **request)

    return asyncio.run(go())


def failure(folder: Path, source: Any, **request: Any) -> AgentFailed:
    """How one turn fails."""
    with pytest.raises(AgentFailed) as caught:
        answered(folder, source, **request)
    assert TOKEN not in str(caught.value)
    return caught.value


def told(answer: ParsedResponse) -> Any:
    return json.loads(answer.final_response)


@pytest.mark.req("R20")
def test_the_function_is_called_as_documented(tmp_path: Path) -> None:
    session = {"id": "s1", "conversation": 1, "turn": 2, "history": [{"role": "user"}]}
    source = """
import json, os, sys, threading

def run(task_input, *, proxy_url: str, run_token: str) -> dict:
    names = [name for name in os.environ if "PIPELINES" in name]
    return {"final_response": json.dumps({
        "task_input": task_input, "proxy_url": proxy_url, "token": run_token,
        "env": {name: os.environ[name] for name in names},
        "main": threading.current_thread() is threading.main_thread(),
        "file": __file__, "cwd": os.getcwd(), "path": sys.path[0],
    }), "metadata": {"model": "none"}, "messages": [{"role": "assistant", "content": "hi"}]}
"""
    answer = answered(
        tmp_path, source, "ship it", state={"order": "4521"}, run_token=TOKEN, session=session
    )
    found = told(answer)
    task = {"task_id": 42, "user_instruction": "ship it", "input": {"order": "4521"}}
    assert found["task_input"] == {**task, "session": session}
    assert found["proxy_url"].startswith("http://127.0.0.1:")
    assert found["proxy_url"].endswith("/api/odyssey-proxy/runs/jti-s1")
    assert found["token"] == TOKEN
    given = json.loads(found["env"].pop("_PIPELINES_TASK_INPUT_JSON"))
    assert given == {**task, "session": session}
    assert found["env"] == {
        "PIPELINES_ODYSSEY_PROXY_URL": found["proxy_url"],
        "PIPELINES_RUN_TOKEN": TOKEN,
        "PIPELINES_RUN_TOKEN_JTI": "jti-s1",
        "PIPELINES_RUN_ID": "17",
        "PIPELINES_TASK_ID": "42",
    }
    assert found["main"] is True
    assert (found["file"], found["cwd"], found["path"]) == ("/app/main.py", "/app", "/app")
    assert answer.metadata == {"model": "none"}
    assert answer.messages == [{"role": "assistant", "content": "hi"}]


@pytest.mark.req("R20")
def test_a_loop_is_running_already_and_a_thread_is_the_escape(tmp_path: Path) -> None:
    source = """
import asyncio, json, threading

try:
    asyncio.get_running_loop()
    at_import = True
except RuntimeError:
    at_import = False

async def work():
    await asyncio.sleep(0)
    return "worked"

def in_thread(factory):
    out = {}
    def target():
        out["result"] = asyncio.run(factory())
    thread = threading.Thread(target=target)
    thread.start(); thread.join()
    return out["result"]

def run(task_input, *, proxy_url, run_token):
    coroutine = work()
    try:
        asyncio.run(coroutine)
    except RuntimeError as error:
        coroutine.close()
        said = str(error)
    return {"final_response": json.dumps([at_import, said, in_thread(work)])}
"""
    assert told(answered(tmp_path, source)) == [
        True, "asyncio.run() cannot be called from a running event loop", "worked",
    ]  # fmt: skip


@pytest.mark.req("R20")
def test_a_coroutine_is_awaited_on_that_loop(tmp_path: Path) -> None:
    source = """
import asyncio

async def run(task_input, *, proxy_url, run_token):
    await asyncio.sleep(0.01)
    return {"final_response": "later"}
"""
    assert answered(tmp_path, source).final_response == "later"


@pytest.mark.req("R20")
def test_modules_packages_and_data_of_the_source_are_found(tmp_path: Path) -> None:
    files = {
        "shop/agent.py": "from shop import words\nfrom helper import shout\n"
        "from pathlib import Path\n"
        "def handle(task_input, *, proxy_url, run_token):\n"
        "    greeting = Path('data/greeting.txt').read_text()\n"
        "    return {'final_response': shout(greeting + words.NAME)}\n",
        "shop/words.py": "NAME = 'you'\n",
        "helper.py": "def shout(text):\n    return text.upper()\n",
        "data/greeting.txt": "hey ",
    }
    assert answered(tmp_path, files, entrypoint="shop.agent:handle").final_response == "HEY YOU"


@pytest.mark.req("R20")
@pytest.mark.parametrize("name", ["agent_kit.py", "kit.py", "my_own_copy.py"])
def test_the_kit_is_bound_around_the_entrypoint(tmp_path: Path, name: str) -> None:
    module = name.removesuffix(".py")
    source = f"""
import {module}

def run(task_input, *, proxy_url, run_token):
    bound = {module}._ENVELOPE.get()
    return {{"final_response": bound.user_instruction + bound.proxy_url.partition("/api")[2]}}
"""
    answer = answered(tmp_path, {"main.py": source, name: KIT.read_text()}, "refund it")
    assert answer.final_response == "refund it/odyssey-proxy/runs/jti-s1"


@pytest.mark.req("R20")
def test_a_vendored_sdk_is_bound_too_and_the_bind_does_not_cross_threads(tmp_path: Path) -> None:
    files = {
        "pipelines/__init__.py": "",
        "pipelines/odyssey/__init__.py": """
import os

class Envelope:
    @classmethod
    def from_env(cls):
        made = cls()
        made.token = os.environ["PIPELINES_RUN_TOKEN"]
        return made
""",
        "pipelines/odyssey/context.py": """
import contextlib, contextvars

current = contextvars.ContextVar("current", default=None)

@contextlib.contextmanager
def set_current(envelope):
    token = current.set(envelope)
    yield
    current.reset(token)
""",
        "main.py": """
import threading
from pipelines.odyssey.context import current

def run(task_input, *, proxy_url, run_token):
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(current.get()))
    thread.start(); thread.join()
    return {"final_response": str([current.get().token == run_token, elsewhere])}
""",
    }
    assert answered(tmp_path, files).final_response == "[True, [None]]"


@pytest.mark.req("R20")
def test_a_file_that_only_has_the_kits_name_is_not_touched(tmp_path: Path) -> None:
    files = {
        "kit.py": "raise SystemExit('must not be imported')\n",
        "main.py": "def run(t, *, proxy_url, run_token):\n    return {'final_response': 'ok'}\n",
    }
    assert answered(tmp_path, files).final_response == "ok"


@pytest.mark.req("R20")
def test_packages_of_the_operator_can_be_imported_and_not_changed(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "toolbox.py").write_text("WORD = 'shared'\n")
    source = """
import toolbox

def run(t, *, proxy_url, run_token):
    try:
        open(toolbox.__file__, "a")
    except OSError as error:
        return {"final_response": toolbox.WORD + " " + type(error).__name__}
"""
    answer = answered(tmp_path / "cache", source, limits={"packages": packages})
    assert answer.final_response in ("shared OSError", "shared PermissionError")


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ("raise ValueError('no such order')", "code_raised", "ValueError: no such order"),
        ("raise SystemExit(3)", "code_raised", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "code_raised", "KeyboardInterrupt"),
        ("import asyncio; raise asyncio.CancelledError", "code_raised", "CancelledError"),
        ("os._exit(0)", "code_exited", "status 0"),
        ("os._exit(7)", "code_exited", "status 7"),
        ("os.kill(os.getpid(), 11)", "code_exited", "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "code_exited", "SIGKILL"),
        ("return {'final_response': object()}", "response_not_json", "not JSON serializable"),
        ("return {'final_response': 'x', 'metadata': float('nan')}", "response_not_json", ""),
        ("a = []; a.append(a); return a", "response_not_json", "ircular"),
        ("return None", "response_not_object", ""),
        ("return {'final_response': ' '}", "final_response_missing", ""),
        (f"return {{'final_response': 'x' * {MAX_RESULT_BYTES}}}", "response_too_large", "bytes"),
    ],
)
def test_each_way_to_fail_has_its_outcome(tmp_path: Path, body: str, code: str, says: str) -> None:
    source = f"import os\n\ndef run(t, *, proxy_url, run_token):\n    {body}\n"
    failed = failure(tmp_path, source)
    assert (failed.outcome, failed.code) == ("error", code)
    assert says in failed.detail


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("files", "code", "says"),
    [
        ({"main.py": "import nothing_of_this_name"}, "code_import_failed", "nothing_of_this_name"),
        ({"main.py": "def run(:"}, "code_import_failed", "SyntaxError"),
        ({"main.py": "import sys; sys.exit('early')"}, "code_import_failed", "early"),
        ({"main.py": "walk = 1"}, "code_entrypoint_missing", "has no function run"),
        ({"main.py": "run = 1"}, "code_entrypoint_missing", "has no function run"),
    ],
)
def test_source_that_cannot_be_loaded(tmp_path: Path, files: Any, code: str, says: str) -> None:
    failed = failure(tmp_path, files)
    assert (failed.outcome, failed.code) == ("error", code)
    assert says in failed.detail


@pytest.mark.req("R20", "R22")
def test_an_error_shows_the_agents_frames_and_what_it_printed_but_no_token(tmp_path: Path) -> None:
    source = """
import sys

def inner(token):
    raise RuntimeError("refused with " + token)

def run(t, *, proxy_url, run_token):
    print("calling with", run_token)
    print("and", run_token * 2000, file=sys.stderr)
    inner(run_token)
"""
    failed = failure(tmp_path, source)
    assert "RuntimeError: refused with [redacted]" in failed.detail
    assert "main.py:5 in inner: raise RuntimeError" in failed.detail
    assert "main.py:10 in run: inner(run_token)" in failed.detail
    assert "driver" not in failed.detail
    assert "printed:" in failed.detail
    assert TOKEN[:20] not in failed.detail
    assert len(failed.detail) < 1000


@pytest.mark.req("R20")
def test_what_is_printed_is_no_part_of_the_answer(tmp_path: Path) -> None:
    source = """
import os, sys

def run(t, *, proxy_url, run_token):
    print("noise" * 100_000)
    os.write(2, b"\\xff" * 100_000)
    return {"final_response": "quiet"}
"""
    assert answered(tmp_path, source).final_response == "quiet"


@pytest.mark.req("R20")
def test_a_line_of_the_drivers_that_the_agent_forges_fails_its_own_turn(tmp_path: Path) -> None:
    source = """
import os

def run(t, *, proxy_url, run_token):
    for fd in range(3, 50):
        try:
            os.write(fd, b"\\xff\\xff\\xff\\xff nonsense")
        except OSError:
            pass
    os._exit(0)
"""
    failed = failure(tmp_path, source)
    assert (failed.outcome, failed.code) == ("error", "code_exited")


@pytest.mark.req("R16", "R20")
@pytest.mark.parametrize(
    "body", ["while True: pass", "import time; time.sleep(60)", "import signal; signal.pause()"]
)
def test_an_agent_that_never_answers_times_out_and_is_gone(tmp_path: Path, body: str) -> None:
    source = f"def run(t, *, proxy_url, run_token):\n    {body}\n"
    failed = failure(tmp_path, source, timeout_s=1)
    assert (failed.outcome, failed.code) == ("timeout", "timeout")


@pytest.mark.req("R20")
def test_a_turn_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    source = "import time\ndef run(t, *, proxy_url, run_token):\n    time.sleep(60)\n"

    async def go() -> None:
        async with desk(tmp_path) as one:
            turn = asyncio.create_task(one.ask(source))
            await until(lambda: one.agents.turns_under_way == 1)
            turn.cancel()
            with pytest.raises(asyncio.CancelledError):
                await turn
            assert not sandbox_processes()

    asyncio.run(go())


@pytest.mark.req("R20")
def test_closing_ends_turns_under_way(tmp_path: Path) -> None:
    source = "import time\ndef run(t, *, proxy_url, run_token):\n    time.sleep(60)\n"

    async def go() -> None:
        async with desk(tmp_path, pool=2) as one:
            turn = asyncio.create_task(one.ask(source))
            await until(lambda: one.agents.turns_under_way == 1)
            await one.agents.close()
            assert not sandbox_processes()
            with pytest.raises(LookupError, match="stopping"):
                await turn

    asyncio.run(go())


@pytest.mark.req("R20")
def test_check_finds_the_source_its_entrypoint_and_a_sandbox(tmp_path: Path) -> None:
    good = "def run(t, *, proxy_url, run_token):\n    return {}\n"

    async def go() -> None:
        async with desk(tmp_path, pool=1) as one:
            await one.agents.check(await one.register(good), 20)
            with pytest.raises(AgentFailed, match="defines no walk") as caught:
                await one.agents.check(await one.register(good, entrypoint="main:walk"), 20)
            assert caught.value.code == "code_entrypoint_missing"
            unknown = await one.register("def run(): ...\n")
            one.topic.records.clear()
            one.store._known.clear()
            with pytest.raises(LookupError, match="part 1 of 1 was not published"):
                await one.agents.check(unknown, 20)
            bare = AgentRegistration(agent_id="a", name="a", kind="code", endpoint="")
            with pytest.raises(LookupError, match="registered without any"):
                await one.agents.check(bare, 20)

    asyncio.run(go())


@pytest.mark.req("R20")
def test_without_a_sandbox_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, or there and unable: each is refused by check and by turn, and says why."""
    marker = tmp_path / "ran"
    source = f"open({str(marker)!r}, 'w')\ndef run(t, **k):\n    return {{}}\n"
    broken = tmp_path / "bin"
    broken.mkdir()

    async def refused(says: str) -> None:
        async with desk(tmp_path / "cache") as one:
            agent = await one.register(source)
            with pytest.raises(LookupError, match=says):
                await one.agents.check(agent, 20)
            with pytest.raises(LookupError, match=says):
                await one.agents.turn(agent, make_request())

    monkeypatch.setenv("PATH", str(broken))
    asyncio.run(refused("needs bubblewrap: install the package"))
    (broken / "bwrap").write_text("#!/bin/sh\necho 'No permissions' >&2\nexit 1")
    (broken / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken}:{os.defpath}")
    asyncio.run(refused("cannot be set up here: .*ermission"))
    assert not marker.exists()


@pytest.mark.req("R20")
def test_no_more_turns_at_once_than_the_operator_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "import time\ndef run(t, **k):\n    time.sleep(2)\n    return {'final_response': 'x'}\n"
    )

    async def go() -> None:
        async with desk(tmp_path, concurrency=1) as one:
            slow = await one.register(source, timeout_s=20)
            quick = await one.register(source, timeout_s=1)
            first = asyncio.create_task(one.agents.turn(slow, make_request()))
            await until(lambda: one.agents.turns_under_way == 1)
            with pytest.raises(LookupError, match="WINDTUNNEL_CODE_CONCURRENCY"):
                await one.agents.turn(quick, make_request())
            assert (await first).final_response == "x"

    asyncio.run(go())
