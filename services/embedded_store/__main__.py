"""``python -m services.embedded_store --data DIR --port N``: wiring only."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import signal
import socket
import sys
from collections.abc import Generator
from pathlib import Path
from typing import IO

from services.embedded_store.engine import Engine, EngineError
from services.embedded_store.http import Limits, Server

_EXIT_CANNOT_START = 2


class _CannotStart(Exception):
    """Why, in one line, for the person at the terminal."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        with _locked(options.data.resolve()) as directory, _bound(options) as listener:
            engine = Engine(directory)
            try:
                engine.open()
            except EngineError as error:
                raise _CannotStart(f"the engine cannot open {directory}: {error}") from error
            try:
                asyncio.run(_serve(engine, listener, options))
            finally:
                engine.close()
    except _CannotStart as error:
        print(f"embedded_store: {error}", file=sys.stderr)
        return _EXIT_CANNOT_START
    return 0


async def _serve(engine: Engine, listener: socket.socket, options: argparse.Namespace) -> None:
    import uvicorn  # late, like the engine: --help and a held lock answer at once

    host, port = listener.getsockname()[:2]
    limits = Limits(
        body_bytes=int(options.max_body_mib * 1024 * 1024),
        waiting=options.max_waiting,
        query_seconds=options.query_seconds,
    )
    server = Server(engine, limits, loopback_only=host in ("127.0.0.1", "::1"))
    config = uvicorn.Config(
        server.app(),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=options.drain_seconds,
    )

    class Listening(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Generator[None]:
            yield  # uvicorn's own raises the signal again at the end, which hides the exit code

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"embedded_store: ready on http://{host}:{port}", flush=True)

    http = Listening(config)

    def stop() -> None:
        server.draining = http.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    await http.serve([listener])


@contextlib.contextmanager
def _locked(directory: Path) -> Generator[Path]:
    """Holds the directory for this process; the kernel lets go of it however the process ends."""
    if "?" in str(directory):
        raise _CannotStart(f"{directory}: a question mark in the path confuses the engine")
    lock: IO[str]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / "embedded_store.lock", "w")  # noqa: SIM115  # closed below
    except OSError as error:
        raise _CannotStart(f"{directory} cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _CannotStart(
                f"{directory} is in use by another process: stop it, or use its HTTP port"
            ) from error
        yield directory


@contextlib.contextmanager
def _bound(options: argparse.Namespace) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit it; asyncio would not set it here, and answers took 40 ms longer.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            listener.bind((options.host, options.port))
        except OSError as error:
            raise _CannotStart(
                f"cannot listen on {options.host}:{options.port}: {error.strerror}"
            ) from error
        yield listener


def _options(arguments: list[str] | None) -> argparse.Namespace:
    defaults = Limits()
    parser = argparse.ArgumentParser(prog="python -m services.embedded_store", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the directory of the data")
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one and prints it")
    parser.add_argument("--host", default="127.0.0.1", help="there is no password: keep it local")
    parser.add_argument("--max-body-mib", type=float, default=defaults.body_bytes / 1024 / 1024)
    parser.add_argument("--max-waiting", type=int, default=defaults.waiting)
    parser.add_argument("--query-seconds", type=int, default=defaults.query_seconds)
    parser.add_argument("--drain-seconds", type=int, default=30)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
