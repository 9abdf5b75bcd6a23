"""The program of the process in which an agent's application is imported and served.

It is run by its text, `python -c TEXT module:attribute report-fd lifeline-fd seconds`, so that
`sys.path` starts with the current directory and nothing of ours is on it, and needs the standard
library and uvicorn alone, so that it runs under the agent's own interpreter. What it finds it
writes to the report's descriptor, a JSON object a line: stdout and stderr are the agent's.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import signal
import socket
import sys
import threading
import traceback
from types import FrameType, TracebackType
from typing import Any

_PATIENCE_S = 0.5
_STARTUP_FAILED = 3


class Refused(Exception):
    """The application cannot be served; the kind tells why."""

    def __init__(self, kind: str, detail: str, where: str = "") -> None:
        self.report = {"stage": "failed", "kind": kind, "detail": detail[:1500], "where": where}
        super().__init__(detail)


def main() -> None:
    target, report_fd, lifeline_fd, deadline_s = sys.argv[1:]
    report = _Reports(int(report_fd))
    pid = os.getpid()
    threading.Thread(target=_live_with, args=(int(lifeline_fd),), daemon=True).start()
    watchdog = threading.Timer(float(deadline_s) - _PATIENCE_S, _tell_where, [report])
    watchdog.daemon = True
    watchdog.start()
    try:
        app = find(target)
        watchdog.cancel()
        if os.getpid() != pid:
            os._exit(0)  # a fork that the import made and forgot
        report.send({"stage": "imported", "posts": post_paths(app)})
        serve(app, report)
    except Refused as refused:
        report.send(refused.report)
    except BaseException as error:  # what an application is asked may run code of its own
        report.send(Refused("raised", f"{type(error).__name__}: {error}", _place(error)).report)
    sys.stdout.flush()
    os._exit(0)  # threads of the agent's must not keep us


class _Reports:
    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor = descriptor

    def send(self, report: dict[str, Any]) -> None:
        os.write(self._descriptor, json.dumps(report).encode() + b"\n")


def find(target: str) -> Any:
    """The ASGI application at `module:attribute`. Raises Refused."""
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise Refused("module_missing", str(error)) from None
        raise Refused("raised", f"ModuleNotFoundError: {error}", _place(error)) from None
    except SystemExit as error:
        raise Refused("exits", f"sys.exit({error.code!r})", _place(error)) from None
    except BaseException as error:
        raise Refused("raised", f"{type(error).__name__}: {error}", _place(error)) from None
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            likely = [key for key, value in vars(module).items() if _accepts(value)]
            raise Refused("attribute_missing", ", ".join(sorted(likely)[:5])) from None
    if objection := objection_to(found):
        raise Refused("not_asgi", objection)
    return found


def objection_to(app: Any) -> str:
    """Why something is no ASGI application; empty if it may be one."""
    kind = type(app).__name__
    if inspect.isclass(app):
        return "it is a class: name an instance of it"
    if not callable(app):
        return f"it is a {kind}, which cannot be called"
    if hasattr(app, "wsgi_app"):
        return f"it is a {kind}, a WSGI application: wrap it with a2wsgi or asgiref's WsgiToAsgi"
    try:
        signature = inspect.signature(app)
    except (TypeError, ValueError):
        return ""
    if _fits(signature, 3):
        return ""
    if _fits(signature, 0):
        made = f"app = {getattr(app, '__name__', 'create_app')}()"
        return f"it takes no arguments, as a factory does: write {made} there and name that"
    if _fits(signature, 2):
        return "it takes two arguments, as a WSGI application does: wrap it with a2wsgi"
    return f"it takes {signature}, and an ASGI application takes (scope, receive, send)"


def _fits(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _accepts(value: Any) -> bool:
    call = value if inspect.isfunction(value) else vars(type(value)).get("__call__")
    return (
        not inspect.isclass(value) and inspect.iscoroutinefunction(call) and not objection_to(value)
    )


def post_paths(app: Any) -> list[str]:
    """The paths that take POST, as far as the application tells; Starlette and FastAPI do."""
    found: list[str] = []
    routes = getattr(app, "routes", None)
    for route in routes if isinstance(routes, list) else []:
        path, methods = getattr(route, "path", None), getattr(route, "methods", None)
        if isinstance(path, str) and methods and "POST" in methods:
            found.append(path)
    return found[:20]


def serve(app: Any, report: _Reports) -> None:
    """Serve it on a free port of the loopback interface. Raises Refused."""
    try:
        import uvicorn
    except ImportError as error:
        raise Refused("no_uvicorn", str(error)) from None
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                report.send({"stage": "serving", "port": listener.getsockname()[1]})

    config = uvicorn.Config(app, log_level="warning", access_log=False)
    server = Server(config)
    try:
        server.run(sockets=[listener])
    except BaseException as error:
        # uvicorn exits with 3 where the lifespan's startup failed; it has printed why.
        if not (isinstance(error, SystemExit) and error.code == _STARTUP_FAILED):
            raise Refused("startup", f"{type(error).__name__}: {error}", _place(error)) from None
    if not server.started:
        raise Refused("startup", "its lifespan startup failed")


def _live_with(lifeline: int) -> None:
    """End, with all that was started here, when whoever started us has ended."""
    os.read(lifeline, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _tell_where(report: _Reports) -> None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    report.send({"stage": "failed", "kind": "hangs", "detail": "", "where": _innermost(frame)})


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    return _innermost(error.__traceback__)


def _innermost(where: TracebackType | FrameType | None) -> str:
    """The place in the agent's own code that is nearest to where it happened."""
    if isinstance(where, FrameType):
        stack = traceback.extract_stack(where)
    else:
        stack = traceback.extract_tb(where)
    library = (os.path.dirname(os.__file__), "<")
    ours = [frame for frame in stack if not frame.filename.startswith(library)]
    return f"{ours[-1].filename}, line {ours[-1].lineno}" if ours else ""


if __name__ == "__main__":
    main()
