"""`windtunnel topics`: create the topics on a broker."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli import options
from services.cli.connection import Where, connect
from services.cli.errors import command
from services.cli.output import tell, tell_json
from services.cli.topics import create_all

app = typer.Typer(help="The topics on the broker.", no_args_is_help=True)


@app.command()
@command
def create(
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    partitions: Annotated[int, typer.Option(min=1, help="Of each shared topic.")] = 4,
    replication: Annotated[
        int, typer.Option(min=-1, help="Replication factor; -1 for the broker's default.")
    ] = -1,
    as_json: options.AsJson = False,
) -> None:
    """Create the topics that are missing; existing ones are left as they are."""
    connection = connect(Where(directory, bootstrap))
    done = create_all(connection.settings.bus(), partitions, replication)
    if as_json:
        tell_json({"created": done.created, "existed": done.existed})
        return
    for name in done.created:
        tell(f"created {name}")
    for name in done.existed:
        tell(f"existed {name}")
