"""`windtunnel demo`: the whole loop on this machine, with the agent and suite of `deploy/demo`."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from services.cli import options
from services.cli.demonstration import Demonstration, show
from services.cli.errors import EXIT_FAIL, command
from services.cli.output import say, tell, tell_json
from services.cli.signals import stop_on_signals
from services.cli.stack.services import DEMO_WORLD, StackOptions, parse_replicas
from services.cli.stack.stack import Stack
from services.runtime.clock import SystemClock

_DIRECTORY = options.DIRECTORY / "demo"


@command
async def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="The demo's own directory; emptied first.")
    ] = _DIRECTORY,
    trials: Annotated[int, typer.Option(min=1, help="Of each scenario.")] = 1,
    seed: Annotated[int, typer.Option(help="Same seed, same runs.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 16,
    broker: Annotated[str, typer.Option(help="embedded, kafka, or external.")] = "embedded",
    bootstrap: Annotated[str, typer.Option(help="Where the external broker is.")] = "",
    store: Annotated[
        str, typer.Option(help="embedded, or clickhouse://user:password@host:port/db.")
    ] = "embedded",
    replicas: Annotated[
        list[str] | None, typer.Option(help="N of every service, or NAME=N; may be repeated.")
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Accept a good build as baseline, run it again (PASS), then a regressed one (FAIL)."""
    clock = SystemClock()
    began = clock.monotonic()
    stop_on_signals()
    token = secrets.token_hex(16)
    chosen = StackOptions(
        directory=directory,
        broker=broker,
        bootstrap=bootstrap,
        store=store,
        replicas=parse_replicas(replicas or []),
        worlds=(DEMO_WORLD,),
        # The agents' own secret; registrations refer to it by this name.
        environ={**os.environ, "DEMO_AGENT_AUTH": f"Bearer {token}"},
        wipe=True,
    )
    say("starting broker, store, services and the two builds of the demo agent ...")
    async with Stack(chosen, say) as stack:
        say(f"ready after {clock.monotonic() - began:.0f} s")
        demonstration = Demonstration(stack, token, trials, seed, concurrency)
        outcome = await stack.while_running(demonstration.play())
    if as_json:
        tell_json(
            {
                "as_expected": outcome.as_expected,
                "seconds": round(clock.monotonic() - began, 1),
                "baseline": outcome.baseline,
                "good": outcome.good,
                "regressed": outcome.regressed,
            }
        )
    else:
        show(outcome, directory)
        tell(f"The demo took {clock.monotonic() - began:.0f} s; everything is stopped.")
    return 0 if outcome.as_expected else EXIT_FAIL
