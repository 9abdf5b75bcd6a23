"""SQLite connections that see nothing but their own tables: no files, no clock, no chance.

What a tool may do with one is decided here, for SQL of the world's author and for SQL that an
agent wrote alike. The bounds that an answer can come to depend on are in steps and bytes, not in
time, so that they strike the same way on every machine.
"""

from __future__ import annotations

import random
import re
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

MAX_VALUE_BYTES = 1024 * 1024
MAX_DATABASE_BYTES = 32 * 1024 * 1024
MAX_STEPS = 20_000_000
"""Of SQLite's machine, in one call: a second or two."""
MAX_HEAP_BYTES = 512 * 1024 * 1024
"""Of all databases of this process together: what a query sorts in memory counts as well."""
MAX_SECONDS = 30.0
"""After which a call is stopped that makes each of its steps a long one. Nobody waits for it any
more by then: its session was told that the world failed. So no answer depends on it."""
_STEP = 1000
_PAGE_BYTES = 4096

_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE,
     sqlite3.SQLITE_DELETE, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT,
     sqlite3.SQLITE_RECURSIVE}
)  # fmt: skip
_READ_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "foreign_key_list", "foreign_key_check",
     "index_list", "index_info", "index_xinfo"}
)  # fmt: skip
_FUNCTIONS_REFUSED = frozenset({"load_extension", "fts3_tokenizer", "sqlite_log"})
_DATE_FUNCTIONS = ("date", "time", "datetime", "julianday", "unixepoch")
_OF_THE_MACHINE = frozenset({"localtime", "utc"})


def connect() -> sqlite3.Connection:
    """An empty database in memory, its size bounded and its foreign keys enforced."""
    connection = sqlite3.connect(":memory:")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return connection


def bounded(connection: sqlite3.Connection) -> None:
    """What a database keeps to once it has its content; nothing may be open in a transaction."""
    connection.execute(f"PRAGMA max_page_count = {MAX_DATABASE_BYTES // _PAGE_BYTES}")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute(f"PRAGMA hard_heap_limit = {MAX_HEAP_BYTES}")
    connection.execute("PRAGMA foreign_keys = ON")


def closed_off(connection: sqlite3.Connection) -> None:
    """From here on rows only: no other files, no change of the schema, no settings; and not
    forever."""
    steps, until = 0, time.monotonic() + MAX_SECONDS

    def go_on() -> int:
        nonlocal steps
        steps += _STEP
        return 1 if steps > MAX_STEPS or time.monotonic() > until else 0

    connection.set_progress_handler(go_on, _STEP)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = (second or "").lower() not in _FUNCTIONS_REFUSED
    elif action == sqlite3.SQLITE_PRAGMA:
        allowed = (first or "").lower() in _READ_PRAGMAS
    else:
        allowed = action in _ALLOWED
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def given_time_and_chance(
    connection: sqlite3.Connection, now: datetime, chance: random.Random
) -> None:
    """Let SQL's own clock and randomness be the ones given."""
    moment = now.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    # Their own functions, untouched, work out what is asked about a moment.
    plain = sqlite3.connect(":memory:", check_same_thread=False)

    def asked(name: str, *arguments: Any) -> Any:
        places = ", ".join("?" * len(arguments))
        return plain.execute(f"SELECT {name}({places})", arguments).fetchone()[0]

    def date(name: str) -> Callable[..., Any]:
        return lambda *arguments: asked(name, *_at(moment, arguments))

    for name in _DATE_FUNCTIONS:
        connection.create_function(name, -1, date(name), deterministic=True)
    connection.create_function(
        "strftime", -1, lambda form, *rest: asked("strftime", form, *_at(moment, rest)),
        deterministic=True,
    )  # fmt: skip
    for name in ("date", "time"):
        value = asked(name, moment)
        connection.create_function(f"current_{name}", 0, _always(value), deterministic=True)
    stamp = asked("datetime", moment)
    connection.create_function("current_timestamp", 0, _always(stamp), deterministic=True)
    connection.create_function("random", 0, lambda: chance.getrandbits(64) - 2**63)
    connection.create_function("randomblob", 1, lambda size: chance.randbytes(_bounded_size(size)))


def without_time_and_chance(connection: sqlite3.Connection) -> None:
    """For what has to be the same whenever it is run."""

    def refused(*_: Any) -> Any:
        raise ValueError("what a world starts with may not depend on when it is loaded")

    for name in (*_DATE_FUNCTIONS, "strftime", "random", "randomblob", "current_date",
                 "current_time", "current_timestamp"):  # fmt: skip
        fixed = -1 if name in (*_DATE_FUNCTIONS, "strftime") else int(name == "randomblob")
        connection.create_function(name, fixed, refused)


def _always(value: Any) -> Callable[[], Any]:
    return lambda: value


def _at(moment: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """A date function's arguments with the moment for `now`, and without the machine's zone."""
    first, *modifiers = arguments or ("now",)
    if isinstance(first, str) and re.fullmatch(r"\s*now\s*", first, re.IGNORECASE):
        first = moment
    kept = (m for m in modifiers if not (isinstance(m, str) and m.lower() in _OF_THE_MACHINE))
    return (first, *kept)


def _bounded_size(size: Any) -> int:
    number = size if isinstance(size, int) else 1
    if number > MAX_VALUE_BYTES:
        raise ValueError("string or blob too big")
    return max(1, number)
