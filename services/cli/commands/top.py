"""`windtunnel top`: what a stack is doing."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from services.cli import options
from services.cli.connection import Where
from services.cli.errors import CliError, command
from services.cli.output import tell, tell_json
from services.cli.signals import stop_on_signals
from services.cli.watching.display import live_console
from services.cli.watching.drawing_stack import draw_stack
from services.cli.watching.reaching import told_in_words
from services.cli.watching.stack_telling import StackLines, document, picture_lines
from services.cli.watching.stack_watch import StackWatch
from services.runtime.clock import SystemClock


@command
async def top(
    interval: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two pictures.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one picture, and end.")] = False,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """Show the runs under way: progress, rates, failures, time left; and how the services are."""
    if as_json and not once:
        raise CliError("--json goes with --once: a picture that changes is no document")
    stop_on_signals()
    clock = SystemClock()
    lines = StackLines(tell, clock, interval)
    console = None if once else live_console(sys.stdout)
    is_told = not once and console is None
    heard = lines.failed if is_told else None
    with told_in_words():
        async with StackWatch(Where(directory, bootstrap), clock, heard) as watch:
            if as_json:
                tell_json(document(watch.picture()))
            elif once:
                for line in picture_lines(watch.picture()):
                    tell(line)
            elif console is None:
                await watch.while_following(_tell(watch, lines, interval))
            else:
                await watch.while_following(_draw(watch, console, interval))


async def _draw(watch: StackWatch, console: Console, interval_s: float) -> None:
    """Draw for ever, on the terminal's other screen."""
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            size = console.size
            live.update(draw_stack(watch.picture(), size.width, size.height), refresh=True)
            await asyncio.sleep(interval_s)


async def _tell(watch: StackWatch, lines: StackLines, interval_s: float) -> None:
    while True:
        lines.show(watch.picture())
        await asyncio.sleep(interval_s)
