"""What commands print: results on stdout, for people or as JSON; everything else on stderr."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.cli.escaping import printable

_WIDE = 10_000  # nothing is cut where no terminal sets the width


def console(*, stderr: bool = False) -> Console:
    """A console for text that is shown as it is: no markup, no highlighting, no emoji codes."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else _WIDE,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=True,
    )


def say(text: str) -> None:
    """A message to the person, on stderr."""
    print(printable(text, keep_newlines=True), file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """A line of the result, on stdout."""
    print(printable(text, keep_newlines=True), flush=True)


def tell_json(value: Any, *, indent: int | None = 2) -> None:
    """The result as one JSON document; without indent, as one line of a stream."""
    print(json.dumps(plain(value), indent=indent, ensure_ascii=True), flush=True)


def plain(value: Any) -> Any:
    """A value in JSON's types: records as objects, bytes in base64, no NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dt.date | dt.datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def tell_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; on a terminal long cells wrap, elsewhere nothing is cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(Text(printable(column)), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console().print(table, soft_wrap=False)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return printable(str(value))
