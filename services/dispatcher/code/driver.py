"""Calls one function of an agent's source, once. The standard library alone; runs in a sandbox.

Started as `python driver.py FD OPTIONS`: FD is a stream socket over which it first hands out a
listener on loopback, where the agent's tool calls arrive, then waits, with its event loop running,
for the one turn it is there for, and answers it. Frames are a length of four bytes and JSON.
"""

from __future__ import annotations

import asyncio
import concurrent.futures  # noqa: F401 - this and the next are loaded now, to be there in the turn
import contextlib
import http.client  # noqa: F401
import importlib
import importlib.util
import inspect
import json
import os
import resource
import site
import socket
import ssl  # noqa: F401
import sys
import threading  # noqa: F401
import traceback
import urllib.request  # noqa: F401
from typing import Any

MAX_ENVIRONMENT_BYTES = 100 * 1024
MAX_FRAMES_SHOWN = 12
MAX_TEXT = 4000
KITS = ("pipelines.odyssey", "agent_kit", "kit")


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    options = json.loads(sys.argv[2])
    # Not inherited by what the agent starts.
    control.set_inheritable(False)
    for name, limit in options["limits"].items():
        resource.setrlimit(getattr(resource, name), tuple(limit))
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listener.getsockname()[1]
    socket.send_fds(control, [frame({"port": port})], [listener.fileno()])
    listener.close()
    sys.argv = [options["root"]]
    sys.path.insert(0, options["root"])
    if options["packages"]:
        site.addsitedir(options["packages"])
    asyncio.run(serve(control, options, port))
    # Without waiting for the threads and exit handlers that the agent has left.
    os._exit(0)


async def serve(control: socket.socket, options: dict[str, Any], port: int) -> None:
    """Wait for the turn, run it here on the main thread, and answer."""
    loop = asyncio.get_running_loop()
    control.setblocking(False)
    request = await receive(loop, control)
    if request is None:
        return
    report, answer = await run(request, options, port)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    control.setblocking(True)
    control.sendall(frame(report) + answer)
    # Until it is ended from outside, which is the tidier end.
    control.recv(1)


async def run(
    request: dict[str, Any], options: dict[str, Any], port: int
) -> tuple[dict[str, Any], bytes]:
    """What became of the turn, and the answer's bytes where there is one."""
    proxy_url = f"http://127.0.0.1:{port}{request['proxy_path']}"
    task_input = request["task_input"]
    os.environ.update(
        PIPELINES_ODYSSEY_PROXY_URL=proxy_url,
        PIPELINES_RUN_TOKEN=request["run_token"],
        PIPELINES_RUN_TOKEN_JTI=request["jti"],
        PIPELINES_RUN_ID=request["run_id"],
        PIPELINES_TASK_ID=request["task_id"],
        _PIPELINES_TASK_INPUT_JSON=environment_json(task_input),
    )
    if request["traceparent"]:
        os.environ["TRACEPARENT"] = request["traceparent"]
    name, _, function = request["entrypoint"].partition(":")
    shown = (options["root"] + "/", options["packages"] or options["root"] + "/")
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        return failed("import", error, shown), b""
    entry = getattr(module, function, None)
    if not callable(entry):
        return {"outcome": "no_entry", "error": f"{name} has no function {function}"}, b""
    try:
        with bound_envelope(options["root"]):
            result = entry(task_input, proxy_url=proxy_url, run_token=request["run_token"])
            if inspect.isawaitable(result):
                result = await result
    except BaseException as error:
        return failed("raised", error, shown), b""
    try:
        answer = json.dumps(result, allow_nan=False).encode()
    except BaseException as error:
        return failed("not_json", error, shown), b""
    if len(answer) > options["max_result"]:
        return {"outcome": "too_large", "error": f"more than {options['max_result']} bytes"}, b""
    return {"outcome": "answered", "size": len(answer)}, answer


def environment_json(task_input: dict[str, Any]) -> str:
    """The task for the environment, without the conversation where a child could not inherit it."""
    text = json.dumps(task_input)
    if len(text) > MAX_ENVIRONMENT_BYTES:
        text = json.dumps({key: task_input[key] for key in task_input if key != "session"})
    return text


def bound_envelope(root: str) -> contextlib.ExitStack:
    """Binds the turn for a helper that is part of the source, wherever one can be imported."""
    stack = contextlib.ExitStack()
    done = set()
    for name in KITS:
        with contextlib.suppress(Exception):
            if importlib.util.find_spec(name) is not None and is_kit(name):
                importlib.import_module(name)
                importlib.import_module(name + ".context" if name.startswith("pipelines") else name)
    for module in list(sys.modules.values()):
        # `vars`, so that no module is asked for anything that it would have to make up.
        names = getattr(module, "__dict__", {})
        envelope, bind = names.get("Envelope"), names.get("set_current")
        context = names.get("context")
        if bind is None and inspect.ismodule(context):
            bind = vars(context).get("set_current")
        if inspect.isclass(envelope) and hasattr(envelope, "from_env") and callable(bind):
            if bind in done:
                continue
            done.add(bind)
            try:
                stack.enter_context(bind(envelope.from_env()))
            except Exception as error:
                print(f"{module.__name__}: cannot bind: {type(error).__name__}", file=sys.stderr)
    return stack


def is_kit(name: str) -> bool:
    """Whether a module of a common name is the helper, told without running it."""
    if name.startswith("pipelines"):
        return True
    spec = importlib.util.find_spec(name)
    with open((spec and spec.origin) or os.devnull, encoding="utf-8") as source:
        text = source.read()
    return "class Envelope" in text and "def set_current" in text


def failed(outcome: str, error: BaseException, shown: tuple[str, str]) -> dict[str, Any]:
    """An error as its author wants to see it: without the frames that are not theirs."""
    if isinstance(error, MemoryError):
        return {"outcome": "out_of_memory", "error": "MemoryError"}
    frames = [
        item
        for item in traceback.extract_tb(error.__traceback__)
        if item.filename.startswith(shown)
    ]
    lines = [
        f"{item.filename.removeprefix(shown[0])}:{item.lineno} in {item.name}: {item.line}"
        for item in frames[-MAX_FRAMES_SHOWN:]
    ]
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    return {
        "outcome": outcome,
        "error": message[:MAX_TEXT],
        "trace": "\n".join(line[:200] for line in lines)[-MAX_TEXT:],
    }


async def receive(loop: asyncio.AbstractEventLoop, control: socket.socket) -> dict[str, Any] | None:
    """One frame; None where the other side is gone."""
    header = await exactly(loop, control, 4)
    body = header and await exactly(loop, control, int.from_bytes(header, "big"))
    if not body:
        return None
    request: dict[str, Any] = json.loads(body)
    return request


async def exactly(loop: asyncio.AbstractEventLoop, control: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = await loop.sock_recv(control, size - len(received))
        if not chunk:
            return b""
        received += chunk
    return bytes(received)


def frame(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body


if __name__ == "__main__":
    main()
