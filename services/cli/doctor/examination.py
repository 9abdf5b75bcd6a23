"""The examination: steps in their order, each bounded, each result told as soon as it is known."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from services.cli.doctor.model import (
    C,
    Finding,
    Outcome,
    Settled,
    Step,
    Tell,
    failed,
    skipped,
)

T = TypeVar("T")

_REPORT = "this is a fault of the doctor itself: report it"


async def examine(steps: Iterable[Step[C]], context: C, tell: Tell) -> list[Finding]:
    """Take the steps one after the other; every check of every step gets one finding.

    A step whose needs are not met is skipped. One that takes longer than its bound, or breaks,
    fails the first check that it has not told of, and the next one follows.

    Args:
        context: Given to every step; what one finds out the next ones may use.
        tell: Told each finding as soon as it is known.
    """
    found: dict[str, Finding] = {}

    def note(finding: Finding) -> None:
        if finding.check not in found:
            found[finding.check] = finding
            tell(finding)

    for step in steps:
        obstacle = _obstacle(step, found)
        if not obstacle:
            await _take(step, context, note, found)
        for check in step.checks:
            note(skipped(check, obstacle or "what comes before it failed"))
    return list(found.values())


def _obstacle(step: Step[C], found: Mapping[str, Finding]) -> str:
    for name in step.needs:
        need = found.get(name)
        if need is not None and need.outcome in (Outcome.FAILED, Outcome.SKIPPED):
            return f"{name} failed" if need.outcome is Outcome.FAILED else f"{name} was skipped"
    return ""


async def _take(step: Step[C], context: C, note: Tell, found: Mapping[str, Finding]) -> None:
    def fail(detail: str, mend: str) -> None:
        open_ones = (check for check in step.checks if check not in found)
        note(failed(next(open_ones, step.checks[-1]), detail, mend))

    try:
        async with asyncio.timeout(step.timeout_s):
            await step.run(context, note)
    except Settled as settled:
        note(settled.finding)
    except TimeoutError:
        fail(f"it took longer than {step.timeout_s:g} s and was given up", "see what it waits for")
    except Exception as error:  # the one place where anything may have gone wrong
        fail(f"{type(error).__name__}: {str(error)[:500]}", _REPORT)


async def in_thread(work: Callable[[], T]) -> T:
    """The result of blocking work.

    Done in a thread of its own that nothing waits for at the end: where the wait is cut short, the
    work goes on unheeded, and does not keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[], None]) -> None:
        def unless_done() -> None:
            if not future.done():
                set_it()

        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(unless_done)

    def main() -> None:
        try:
            result = work()
        except BaseException as error:
            raised = error
            settle(lambda: future.set_exception(raised))
        else:
            settle(lambda: future.set_result(result))

    threading.Thread(target=main, name="doctor", daemon=True).start()
    return await future


def exit_code(findings: Sequence[Finding]) -> int:
    """0 if nothing failed, else 1."""
    return int(any(finding.outcome is Outcome.FAILED for finding in findings))
