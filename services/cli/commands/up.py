"""`windtunnel up`: run the whole stack on this machine until Ctrl-C."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from services.cli import options
from services.cli.errors import command
from services.cli.output import say, tell, tell_json
from services.cli.signals import stop_on_signals
from services.cli.stack.services import (
    DEMO_WORLD,
    ROOT,
    StackOptions,
    parse_replicas,
)
from services.cli.stack.stack import Stack


@command
async def up(
    directory: options.Directory = options.DIRECTORY,
    broker: Annotated[str, typer.Option(help="embedded, kafka, or external.")] = "embedded",
    bootstrap: Annotated[str, typer.Option(help="Where the external broker is.")] = "",
    store: Annotated[
        str, typer.Option(help="embedded, or clickhouse://user:password@host:port/db.")
    ] = "embedded",
    replicas: Annotated[
        list[str] | None, typer.Option(help="N of every service, or NAME=N; may be repeated.")
    ] = None,
    partitions: Annotated[int, typer.Option(help="Of each shared topic, when created.")] = 4,
    port_base: Annotated[
        int | None, typer.Option(min=1, max=65_000, help="First of consecutive ports.")
    ] = None,
    worlds: Annotated[
        list[str] | None,
        typer.Option("--world", help="A world as package.module:attribute; may be repeated."),
    ] = None,
    kafka_jars: Annotated[Path, typer.Option(help="Apache Kafka's jars.")] = ROOT
    / ".cache"
    / "kafka-jars",
    ready_deadline: Annotated[float, typer.Option(min=1, help="Seconds to start within.")] = 60.0,
    as_json: options.AsJson = False,
) -> None:
    """Start broker, store and services here, and keep them running until Ctrl-C."""
    chosen = StackOptions(
        directory=directory,
        broker=broker,
        bootstrap=bootstrap,
        store=store,
        replicas=parse_replicas(replicas or []),
        partitions=partitions,
        port_base=port_base,
        worlds=worlds or _worlds(os.environ.get("WINDTUNNEL_WORLDS", "")),
        environ=dict(os.environ),
        kafka_jars=kafka_jars,
        ready_deadline_s=ready_deadline,
    )
    stop_on_signals()
    async with Stack(chosen, say) as stack:
        if as_json:
            tell_json(
                {
                    "directory": str(stack.directory.path),
                    "bootstrap": stack.environ["WINDTUNNEL_BOOTSTRAP"],
                    "endpoints": stack.endpoints,
                },
                indent=None,
            )
        else:
            tell(f"ready in {directory}; broker at {stack.environ['WINDTUNNEL_BOOTSTRAP']}")
            for name, url in stack.endpoints.items():
                tell(f"  {name:<18} {url}")
            tell("Logs are in " + str(stack.directory.logs) + ". Ctrl-C stops everything.")
        await stack.failed()


def _worlds(configured: str) -> list[str]:
    return [part.strip() for part in configured.split(",") if part.strip()] or [DEMO_WORLD]
