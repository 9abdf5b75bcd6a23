"""Dataset CSV files: one task a row, in the columns `user`, `state` and `behavior`.

The columns may also be spelt `user_instruction`, `initial_state` and `behavior_instructions`. The
file is UTF-8, with or without a BOM, its cells divided by comma, semicolon or tab; quoted cells may
hold newlines. It is read as a stream, a row at a time, and what is wrong with a row is told in its
place, so that a reader learns of every bad row in one pass. All cells are text: what looks like a
formula, a number or a date is what is written there. Only `state` is read further: a JSON object.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from schemas.errors import InvalidDocument, Problem
from schemas.yaml_tree import MAX_DEPTH
from services.cli.decoding import Lines, Unreadable
from services.cli.errors import CliError

USER, STATE, BEHAVIOR = "user", "state", "behavior"
SPELLINGS: Mapping[str, str] = {
    "user": USER,
    "user_instruction": USER,
    "state": STATE,
    "initial_state": STATE,
    "behavior": BEHAVIOR,
    "behavior_instructions": BEHAVIOR,
}
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}
MAX_USER_CHARACTERS = 60_000
"""A user turn may have 64,000, and the simulated user adds a greeting."""
MAX_LEVELS = MAX_DEPTH - 3
"""Of the state's nesting: it stands three levels deep in a scenario file."""
_MAX_NAME = 1000
"""YAML lets a key have 1024 characters as it is written."""
_UNPRINTABLE = re.compile("[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Row:
    """One task. `number` counts the rows from 1; `line` is where the row starts in the file."""

    number: int
    line: int
    user_instruction: str
    initial_state: Mapping[str, Any]
    behavior_instructions: str


class Dataset:
    """An open dataset. Made by `open_dataset`."""

    def __init__(self, path: Path, file: BinaryIO, delimiter: str) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.empty_rows = 0
        """Rows without any text, as spreadsheets leave at the end; they are passed over."""
        self.delimiter, header = _header(path, file, delimiter)
        self.ignored = tuple(cell for cell in header if _canonical(cell) not in SPELLINGS)
        """Columns that mean nothing here."""
        self._columns = _columns(path, header)
        self._spelt = dict(zip(self._columns, map(_canonical, header), strict=True))
        file.seek(0)
        self._lines = Lines(file)
        next(self._read())

    @property
    def bytes_read(self) -> int:
        return self._lines.offset

    def rows(self) -> Iterator[Row | Problem]:
        """The rows in the order of the file, and in place of a bad one, its problems. May be
        iterated once.
        """
        number = 0
        for line, cells in self._read():
            if isinstance(cells, str):
                yield self._problem(line, "", cells)
                continue
            if not any(cell.strip() for cell in cells):
                self.empty_rows += bool(cells)
                continue
            number += 1
            yield from self._row(number, line, cells)

    def _row(self, number: int, line: int, cells: list[str]) -> Iterator[Row | Problem]:
        width = len(self._columns)
        if len(cells) != width:
            message = f"expected {width} cells, as in the header, found {len(cells)}"
            yield self._problem(line, "", message)
            return
        given = {what: cells[at] for at, what in enumerate(self._columns) if what}
        problems, user = [], given[USER]
        if not user.strip():
            problems.append(self._problem(line, self._spelt[USER], "expected text, found none"))
        elif len(user) > MAX_USER_CHARACTERS:
            message = f"expected at most {MAX_USER_CHARACTERS} characters, found {len(user)}"
            problems.append(self._problem(line, self._spelt[USER], message))
        state: Mapping[str, Any] = {}
        try:
            state = state_of(given.get(STATE, ""))
        except ValueError as error:
            problems.append(self._problem(line, self._spelt[STATE], str(error)))
        if problems:
            yield from problems
        else:
            yield Row(number, line, user, state, given.get(BEHAVIOR, ""))

    def _read(self) -> Iterator[tuple[int, list[str] | str]]:
        """Each record with the line it starts in; a text where it cannot be read."""
        reader = csv.reader(self._lines, delimiter=self.delimiter, strict=True)
        while True:
            line = self._lines.number + 1
            try:
                yield line, next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, f"not CSV: {_csv_words(str(error))}"
            except Unreadable as error:
                yield self._lines.number + 1, str(error)
                return

    def _problem(self, line: int, column: str, message: str) -> Problem:
        return Problem(column, message, str(self.path), line)


@contextmanager
def open_dataset(path: Path, delimiter: str = "") -> Iterator[Dataset]:
    """A dataset to read from.

    Args:
        delimiter: What divides the cells; found out from the header if empty.

    Raises:
        CliError: the file cannot be read, or the delimiter is none.
        InvalidDocument: the header lacks a column, or has one twice.
    """
    chosen = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(chosen) > 1 or chosen in ("\n", "\r", '"'):
        raise CliError("--delimiter: expected one character, or tab")
    if not path.is_file():
        raise CliError(f"{path} cannot be read: there is no such file")
    try:
        file = path.open("rb")
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        yield Dataset(path, file, chosen)


def state_of(text: str) -> Mapping[str, Any]:
    """The JSON object in a cell; empty for a cell without text.

    Raises:
        ValueError: it is none, or holds what would not survive the way to the agent.
    """
    if not text.strip():
        return {}
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno} of the cell"
        raise ValueError(f"expected a JSON object: {error.msg} at {place}") from None
    except RecursionError:
        raise ValueError("expected a JSON object with fewer levels of nesting") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, found {_kind(value)}")
    _check_values(value)
    return value


def quoted(value: Any) -> str:
    """A value as JSON that YAML reads as the same value."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # What JSON lets stand in a text, and YAML folds or refuses.
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _check_values(value: Any) -> None:
    """Raises ValueError for what JSON can hold, and a scenario file or a turn cannot."""
    pending = [(value, 1)]
    while pending:
        one, level = pending.pop()
        inner: list[Any] = []
        if isinstance(one, dict):
            if any(len(quoted(name)) > _MAX_NAME for name in one):
                raise ValueError(f"expected names of at most {_MAX_NAME} characters, quoted")
            inner = [*one, *one.values()]
        elif isinstance(one, list):
            inner = one
        elif isinstance(one, float) and not math.isfinite(one):
            raise ValueError("expected finite numbers, found one that is too large")
        elif isinstance(one, int) and one not in _INT64:
            raise ValueError("expected whole numbers of at most 64 bits; write longer ones as text")
        elif isinstance(one, str) and any("\ud800" <= char <= "\udfff" for char in one):
            raise ValueError(r"expected text, found half a character (\ud800 to \udfff alone)")
        if isinstance(one, dict | list) and level > MAX_LEVELS:
            raise ValueError(f"expected at most {MAX_LEVELS} levels of nesting, found more")
        pending += [(item, level + 1) for item in inner]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"expected each name once, found {name!r} twice")
        found[name] = value
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"expected JSON, which has no {constant}")


def _kind(value: Any) -> str:
    kinds = {list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _columns(path: Path, header: list[str]) -> list[str]:
    """What each column is; an empty text for those that mean nothing here."""
    columns = [SPELLINGS.get(_canonical(cell), "") for cell in header]
    problems = [
        Problem(what, "expected the column once, found it twice", str(path), 1)
        for what in (USER, STATE, BEHAVIOR)
        if columns.count(what) > 1
    ]
    if USER not in columns:
        shown = ", ".join(repr(cell) for cell in header[:12]) or "none"
        message = f"expected a column user (or user_instruction), found {shown}"
        problems.append(Problem(USER, message[:500], str(path), 1))
    if problems:
        raise InvalidDocument(problems)
    return columns


def _canonical(cell: str) -> str:
    return re.sub(r"[\s-]+", "_", cell.strip().casefold())


def _header(path: Path, file: BinaryIO, delimiter: str) -> tuple[str, list[str]]:
    """The delimiter under which the header names most columns, and the header's cells."""
    best: tuple[int, str, list[str]] = (-1, delimiter or ",", [])
    for candidate in [delimiter] if delimiter else DELIMITERS:
        file.seek(0)
        try:
            cells = next(csv.reader(Lines(file), delimiter=candidate, strict=True), [])
        except csv.Error:
            continue
        except Unreadable as error:
            raise InvalidDocument([Problem("", str(error), str(path), 1)]) from None
        known = sum(_canonical(cell) in SPELLINGS for cell in cells)
        if known > best[0]:
            best = (known, candidate, cells)
    if best[0] < 0:
        raise InvalidDocument([Problem("", "expected a header that is CSV", str(path), 1)])
    return best[1], best[2]


def _csv_words(error: str) -> str:
    if "unexpected end" in error:
        return "a quoted cell is never closed"
    if "expected after" in error:
        return 'a quoted cell goes on after its closing quote (write "" for a quote)'
    if "field limit" in error:
        return f"a cell has more than {csv.field_size_limit()} characters; is a quote left open?"
    return error
