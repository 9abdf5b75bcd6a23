"""`windtunnel sql`: ask the store."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from services.cli import options
from services.cli.connection import Where, open_the_store
from services.cli.errors import CliError, command
from services.cli.output import tell_json, tell_table

_COMMENTS = re.compile(r"\A(?:\s|--[^\n]*\n|/\*.*?\*/|\()*", re.DOTALL)
_READING = ("select", "with", "show", "describe", "desc", "explain", "exists")


@command
def sql(
    query: Annotated[str, typer.Argument(help="A statement that reads; see the v_ views.")],
    directory: options.Directory = options.DIRECTORY,
    store: options.StoreUrl = "",
    as_json: options.AsJson = False,
) -> None:
    """Ask the store in ClickHouse's SQL."""
    check_reading(query)
    opened = open_the_store(Where(directory, store=store))
    try:
        result = opened.query(query)
    finally:
        opened.close()
    names = [name for name, _ in result.columns]
    if as_json:
        tell_json(
            {
                "columns": [{"name": name, "type": kind} for name, kind in result.columns],
                "rows": [dict(zip(names, row, strict=True)) for row in result.rows],
            }
        )
        return
    tell_table(names, result.rows)


def check_reading(query: str) -> None:
    """A guard against slips, not a permission system.

    Raises:
        CliError: the statement does not begin like one that reads.
    """
    rest = query[_COMMENTS.match(query).end() :]  # type: ignore[union-attr]  # matches the empty text
    words = rest.split(None, 1)
    if not words or words[0].lower().rstrip(";") not in _READING:
        raise CliError(
            "windtunnel sql only reads (SELECT, WITH, SHOW, DESCRIBE, EXPLAIN, EXISTS); use a "
            "ClickHouse client to change data"
        )
