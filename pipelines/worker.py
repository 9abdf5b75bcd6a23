"""A thread for work that blocks for minutes, which must hold up neither the loop nor an exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs calls one after another on a daemon thread.

    asyncio's own threads are joined when the process ends; a job may still have minutes to go, and
    nothing is lost by abandoning it, since jobs are idempotent and run again.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result, or what it raised. Cancelling only stops the waiting."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((lambda: function(*arguments), future))
        return await future

    def _run(self) -> None:
        while True:
            call, future = self._calls.get()
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:  # the thread has to outlive whatever a job raises
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        # A future does not take these.
        future.set_exception(RuntimeError(repr(error)))
