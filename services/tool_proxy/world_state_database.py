"""A world's state in tables: JSON in the log, SQLite while a tool works on it.

The state is `{"tables": {table: {key: row}}}`, where a row's key is its primary key as text (the
parts of a composite one joined by commas, the row id where there is none). Before a call the rows
go into a database in memory, in the order of their keys; if the call changed anything they are
read back. So nothing of the database outlives a call but what the state says.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import orjson

from services.tool_proxy.jsons import JsonObject, canonical
from services.tool_proxy.world_errors import ToolError, WorldError
from services.tool_proxy.world_state_sql import (
    bounded,
    closed_off,
    connect,
    given_time_and_chance,
    without_time_and_chance,
)

_BLOB = "$base64"
_COUNTERS = "sequences"
"""Where AUTOINCREMENT keeps what it has given out."""
_CACHED = 32


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as rows need it."""

    name: str
    columns: Mapping[str, str]
    """Those that can be written, with their declared types in capitals."""
    keys: tuple[str, ...]
    """The primary key's columns in its order; empty where the row id stands for one."""

    @property
    def quoted(self) -> str:
        return _quoted(self.name)


class Database:
    """The tables of a world and what they start with."""

    def __init__(self, world: str, script: str) -> None:
        """`script`: the SQL that makes the tables and, if they start with any, inserts rows.

        Raises:
            WorldError: it fails, or makes what cannot be kept as rows (virtual tables).
        """
        self._where = f"world {world}: database"
        with closing(connect()) as connection:
            without_time_and_chance(connection)
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                connection.executescript(script)
                connection.commit()
                self._tables = {table.name: table for table in _tables(connection)}
                made = connection.execute(
                    "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL "
                    "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid"
                ).fetchall()
                self._counts = any("AUTOINCREMENT" in sql.upper() for _, _, sql in made)
                self._make_tables = [sql for kind, _, sql in made if kind == "table"]
                # Indexes and triggers are for what happens, not for what is.
                self._make_rest = [sql for kind, _, sql in made if kind != "table"]
                self.initial = self._read(connection)
            except (sqlite3.Error, ToolError) as error:
                raise WorldError(f"{self._where}: {error}") from None
        self._image = lru_cache(maxsize=_CACHED)(self._image_of)

    def normal(self, state: JsonObject, now: datetime, chance: random.Random) -> JsonObject:
        """A state with its rows as the database keeps them: each under its key, whole, and of its
        columns' types. Rows may be given as lists, and with columns left to their defaults.

        Raises:
            WorldError: no such table or column, or rows that break a constraint.
        """
        with closing(connect()) as connection:
            given_time_and_chance(connection, now, chance)
            try:
                self._write(connection, state)
                return {**state, **self._read(connection)}
            except (sqlite3.Error, ToolError, OverflowError) as error:
                raise WorldError(f"{self._where}: {error}") from None

    def opened(self, state: JsonObject, now: datetime, chance: random.Random) -> sqlite3.Connection:
        """A connection for one call to the tables of a state that is normal."""
        kept = {name: state[name] for name in ("tables", _COUNTERS) if name in state}
        connection = connect()
        try:
            connection.deserialize(self._image(canonical(kept)))
            bounded(connection)
            given_time_and_chance(connection, now, chance)
            closed_off(connection)
        except BaseException:
            connection.close()
            raise
        connection.row_factory = _named
        return connection

    def kept(self, connection: sqlite3.Connection) -> JsonObject:
        """What a call has left in its connection, as parts of the state. Empty if it changed
        nothing.

        Raises:
            ToolError: a value that no JSON can carry, or a constraint that was put off and broken.
        """
        connection.set_progress_handler(None, 0)
        try:
            connection.commit()
            return self._read(connection) if connection.total_changes else {}
        except sqlite3.IntegrityError as error:
            raise ToolError("conflict", str(error)) from None

    def _image_of(self, kept: bytes) -> bytes:
        with closing(connect()) as connection:
            without_time_and_chance(connection)
            try:
                self._write(connection, orjson.loads(kept))
            except (sqlite3.Error, OverflowError) as error:
                raise WorldError(f"{self._where}: {error}") from None
            return connection.serialize()

    def _write(self, connection: sqlite3.Connection, state: JsonObject) -> None:
        for sql in self._make_tables:
            connection.execute(sql)
        tables = state.get("tables", {})
        if not isinstance(tables, dict):
            raise WorldError(f"{self._where}: /tables must be a mapping of tables")
        for name, rows in tables.items():
            table = self._tables.get(name)
            if table is None:
                raise WorldError(f"{self._where}: there is no table {name!r}")
            for row in _rows(self._where, table, rows):
                places = ", ".join("?" * len(row))
                names = ", ".join(_quoted(column) for column in row)
                values = f"({names}) VALUES ({places})" if row else "DEFAULT VALUES"
                connection.execute(f"INSERT INTO {table.quoted} {values}", tuple(row.values()))
        if self._counts:
            counters = state.get(_COUNTERS, {})
            for name, last in counters.items() if isinstance(counters, dict) else ():
                connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, last))
        connection.commit()
        for sql in self._make_rest:
            connection.execute(sql)
        connection.commit()
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            message = f"a row of {broken[0]} refers to one of {broken[2]} that is not there"
            raise WorldError(f"{self._where}: {message}")

    def _read(self, connection: sqlite3.Connection) -> JsonObject:
        connection.row_factory = None
        try:
            state: JsonObject = {
                "tables": {name: _keyed(connection, t) for name, t in self._tables.items()}
            }
            if self._counts:
                counters = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall()
                state[_COUNTERS] = dict(counters)
        except sqlite3.OperationalError as error:
            raise ToolError("not_text", str(error)) from None  # bytes that are no UTF-8
        return state


def _tables(connection: sqlite3.Connection) -> Iterator[_Table]:
    listed = connection.execute("PRAGMA table_list").fetchall()
    for schema, name, kind, *_ in listed:
        if schema != "main" or name.startswith("sqlite_") or kind == "view":
            continue
        if kind != "table":
            raise WorldError(f"table {name}: virtual tables cannot be kept as rows")
        columns: dict[str, str] = {}
        keys: list[tuple[int, str]] = []
        for _, column, declared, _, _, position, hidden in connection.execute(
            f"PRAGMA table_xinfo({_quoted(name)})"
        ):
            if not hidden:  # what is not written is computed
                columns[column] = declared.upper()
            if position:
                keys.append((position, column))
        if not keys and columns.keys() & {"rowid", "ROWID"}:
            raise WorldError(f"table {name} needs a primary key: its column hides the row id")
        yield _Table(name, columns, tuple(column for _, column in sorted(keys)))


def _rows(where: str, table: _Table, rows: Any) -> Iterator[dict[str, Any]]:
    """What to insert for a table of the state, in the order of the keys; by a list as listed."""
    if isinstance(rows, list):
        items: Sequence[tuple[str | None, Any]] = [(None, row) for row in rows]
    elif isinstance(rows, Mapping):
        items = sorted(rows.items())
    else:
        raise WorldError(f"{where}: table {table.name} must be a mapping of rows by key, or a list")
    for key, row in items:
        place = f"{where}: table {table.name}: row {key}" if key else f"{where}: {table.name}"
        if not isinstance(row, Mapping):
            raise WorldError(f"{place} must be a mapping of columns")
        if unknown := [name for name in row if name not in table.columns]:
            raise WorldError(f"{place}: there is no column {unknown[0]!r}")
        values = {name: _to_sql(value, place) for name, value in row.items()}
        if key is not None and not table.keys:
            if not key.lstrip("-").isdigit():
                raise WorldError(f"{place}: a table without a primary key has numbers as keys")
            values = {"rowid": int(key), **values}
        elif key is not None and len(table.keys) == 1:
            values.setdefault(table.keys[0], key)
            if _part(values[table.keys[0]]) != _part(key) and not _alike(values, table, key):
                raise WorldError(f"{place} has {values[table.keys[0]]!r} as its key")
        yield values


def _alike(values: Mapping[str, Any], table: _Table, key: str) -> bool:
    """Numbers as text and as such are the same key of a column of numbers."""
    try:
        return float(values[table.keys[0]]) == float(key)
    except (TypeError, ValueError):
        return False


def _keyed(connection: sqlite3.Connection, table: _Table) -> dict[str, JsonObject]:
    names = [_quoted(name) for name in table.columns]
    keys = [_quoted(name) for name in table.keys] or ["rowid"]
    query = f"SELECT {', '.join(keys + names)} FROM {table.quoted} ORDER BY {', '.join(keys)}"
    found: dict[str, JsonObject] = {}
    for row in connection.execute(query):
        parts, values = row[: len(keys)], row[len(keys) :]
        if None in parts:
            raise ToolError("conflict", f"NOT NULL constraint failed: the key of {table.name}")
        key = _part(parts[0]) if len(parts) == 1 else ",".join(_escaped(_part(p)) for p in parts)
        if key in found:
            raise ToolError("conflict", f"{table.name}: two rows have the key {key} as text")
        columns = zip(table.columns.items(), values, strict=True)
        found[key] = {name: _to_json(value, declared) for (name, declared), value in columns}
    return found


def _part(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _escaped(part: str) -> str:
    return part.replace("\\", "\\\\").replace(",", "\\,")


def _to_sql(value: Any, place: str) -> Any:
    if isinstance(value, Mapping) and value.keys() == {_BLOB}:
        try:
            return base64.b64decode(value[_BLOB], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise WorldError(f"{place}: {_BLOB} is not base64") from None
    if isinstance(value, Mapping | list):
        return canonical(value).decode()
    return int(value) if isinstance(value, bool) else value


def _to_json(value: Any, declared: str) -> Any:
    if isinstance(value, bytes):
        return {_BLOB: base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("out_of_range", f"{value} is no number that can be kept")
    if declared.startswith("BOOL") and value in (0, 1):
        return bool(value)
    if declared.startswith("JSON") and isinstance(value, str) and value[:1] in ("{", "["):
        try:
            parsed = orjson.loads(value)
        except json.JSONDecodeError:
            return value
        is_blob = isinstance(parsed, dict) and parsed.keys() == {_BLOB}
        return value if is_blob else parsed
    return value


def _named(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
