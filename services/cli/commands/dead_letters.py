"""`windtunnel dead-letters`: what no service could read."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from schemas.errors import WindtunnelSchemaError
from schemas.registry import DeadLetter
from schemas.topics import DEAD_LETTERS
from services.cli import options
from services.cli.connection import Connection, Where, connect
from services.cli.errors import command
from services.cli.escaping import printable_bytes
from services.cli.output import say, tell, tell_json
from services.runtime.bus.admin import beginning_offsets, end_offsets, read_range
from services.runtime.clock import iso

app = typer.Typer(help="Records that no service could read.", no_args_is_help=True)


@app.command("list")
@command
def list_(
    limit: Annotated[int, typer.Option(min=1, help="Only the last so many.")] = 20,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """The last dead letters, oldest first. With --json one a line, bytes in base64."""
    letters = last_letters(connect(Where(directory, bootstrap)), limit)
    for letter in letters:
        if as_json:
            tell_json(letter, indent=None)
            continue
        tell(
            f"{iso(letter.at_ms)}  {letter.topic}/{letter.partition} offset {letter.offset}, "
            f"not read by {letter.service}"
        )
        tell(f"  why    {_one_line(letter.error)}")
        tell(f"  key    {_one_line(printable_bytes(letter.key))}")
        if letter.headers:
            headers = ", ".join(f"{name}={value}" for name, value in letter.headers.items())
            tell(f"  header {_one_line(headers)}")
        tell(f"  value  {len(letter.value)} bytes: {_one_line(printable_bytes(letter.value))}")
    if not letters:
        say("no dead letters")


def last_letters(connection: Connection, limit: int) -> list[DeadLetter]:
    """The last dead letters by time. Raises BusError."""
    found = heapq.nlargest(limit, _read(connection, limit), key=lambda letter: letter.at_ms)
    return sorted(found, key=lambda letter: (letter.at_ms, letter.partition, letter.offset))


def _read(connection: Connection, limit: int) -> Iterator[DeadLetter]:
    bus, topic = connection.settings.bus(), DEAD_LETTERS.full_name
    first = beginning_offsets(bus, topic)
    for partition, end in end_offsets(bus, topic).items():
        start = max(first.get(partition, 0), end - limit)
        for incoming in islice(read_range(bus, topic, partition, start, end), limit):
            try:
                yield connection.codec.decode(DeadLetter, incoming.value)
            except WindtunnelSchemaError as error:
                # Somebody else's record in the dead letters is one itself.
                yield DeadLetter(
                    topic=topic,
                    partition=partition,
                    offset=incoming.offset,
                    key=incoming.key.encode(),
                    value=incoming.value,
                    headers=incoming.headers,
                    service="cli",
                    error=str(error),
                    at_ms=incoming.timestamp_ms,
                )


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n")
