"""Signals that mean: stop in order."""

from __future__ import annotations

import asyncio
import signal


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP cancel the current task, as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
