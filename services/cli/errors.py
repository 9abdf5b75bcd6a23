"""How commands end: exit codes, and errors as one clear message instead of a traceback."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar

import typer

from schemas.errors import WindtunnelSchemaError
from schemas.gate import Verdict
from services.cli.escaping import printable
from services.runtime.bus.errors import BusError
from services.runtime.settings import ConfigurationError
from services.runtime.store.interface import StoreError

EXIT_PASS, EXIT_FAIL, EXIT_USAGE, EXIT_INCONCLUSIVE = 0, 1, 2, 3
EXIT_INTERRUPTED, EXIT_PIPE = 130, 141  # as shells say for SIGINT and SIGPIPE
VERDICT_EXIT = {
    Verdict.PASS: EXIT_PASS,
    Verdict.FAIL: EXIT_FAIL,
    Verdict.INCONCLUSIVE: EXIT_INCONCLUSIVE,
}

F = TypeVar("F", bound=Callable[..., Any])


class CliError(Exception):
    """Something the user can put right; the message says what and how. Exit code 2."""


#: What is told in its own words, without a traceback.
_TOLD = (CliError, WindtunnelSchemaError, BusError, StoreError, ConfigurationError)


def command(function: F) -> F:
    """A command whose errors become messages on stderr and exit codes. May be asynchronous, and
    may return its exit code.
    """

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            result = function(*args, **kwargs)
            code = asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
        except _TOLD as error:
            print(f"windtunnel: {printable(str(error), keep_newlines=True)}", file=sys.stderr)
            raise typer.Exit(EXIT_USAGE) from None
        except BrokenPipeError:
            # Whoever read our output has enough; what is buffered must not raise at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_PIPE) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            message = f"windtunnel: {where}{error.strerror or error}"
            print(printable(message), file=sys.stderr)
            raise typer.Exit(EXIT_USAGE) from None
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("windtunnel: interrupted", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        if code:
            raise typer.Exit(int(code))

    return run  # type: ignore[return-value]


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result
