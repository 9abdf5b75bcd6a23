"""The schema's history: numbered, reversible, dry-runnable, and not lightly destructive.

``deploy/clickhouse/NNNN_name.up.sql`` and ``.down.sql`` hold statements between semicolons. DDL
has no transactions, so every statement is written to be harmless when repeated (``IF NOT
EXISTS``), and a migration is recorded after its last statement. Run one migrator at a time.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from services.runtime.store.interface import MigrationRefused, Store

#: Where a checkout keeps them.
DIRECTORY = Path(__file__).parents[3] / "deploy" / "clickhouse"

_FILE = re.compile(r"(\d{4})_(\w+)\.(up|down)\.sql")
_PIECE = re.compile(
    r"(?P<text>'(?:[^'\\]|\\.)*'|`[^`]*`|\"[^\"]*\")|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<end>;)|.",
    re.DOTALL,
)
_DANGEROUS = re.compile(
    # Views hold nothing, and on 18.16 only DROP TABLE removes them.
    r"\b(DROP\s+(TABLE(?!\s+(IF\s+EXISTS\s+)?v_)|DATABASE|COLUMN|PARTITION|TEMPORARY)"
    r"|TRUNCATE|DETACH|(ALTER\b.*\b(DELETE|UPDATE|CLEAR|REPLACE|RENAME|MODIFY\s+COLUMN))|(RENAME|EXCHANGE)\s+TABLE)\b",
    re.IGNORECASE | re.DOTALL,
)
_TABLE = "schema_migrations"
_CREATE = f"""CREATE TABLE IF NOT EXISTS {_TABLE} (
    number UInt32, name String, checksum String, applied UInt8, at_ms Int64, revision UInt64
) ENGINE = ReplacingMergeTree(revision) ORDER BY number"""


@dataclass(frozen=True)
class Migration:
    """One numbered change and its reverse, as statements; the checksum is over the up file."""

    number: int
    name: str
    up: tuple[str, ...]
    down: tuple[str, ...]
    checksum: str


@dataclass(frozen=True)
class Step:
    """What was run, or in a dry run would be."""

    number: int
    name: str
    direction: Literal["up", "down"]
    statements: tuple[str, ...]


@dataclass(frozen=True)
class _Applied:
    name: str
    checksum: str
    revision: int


def statements(text: str) -> tuple[str, ...]:
    """Splits at semicolons outside quotes and comments; comments are left out.

    >>> statements("SELECT ';' -- not; here\\n; SELECT 2;")
    ("SELECT ';'", 'SELECT 2')
    """
    found = [""]
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            found.append("")
        elif not piece["comment"]:
            found[-1] += piece[0]
    return tuple(statement.strip() for statement in found if statement.strip())


def load(directory: Path = DIRECTORY) -> list[Migration]:
    """All migrations in order; raises ``MigrationRefused`` for a gap or a missing half."""
    files: dict[tuple[int, str], dict[str, str]] = {}
    for path in sorted(directory.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise MigrationRefused(f"{path} is not named NNNN_name.up.sql or NNNN_name.down.sql")
        files.setdefault((int(match[1]), match[2]), {})[match[3]] = path.read_text("utf-8")
    if not files:
        raise MigrationRefused(f"there are no migrations in {directory}")
    migrations = []
    for expected, ((number, name), halves) in enumerate(sorted(files.items()), start=1):
        if number != expected:
            raise MigrationRefused(
                f"migration {number:04}_{name} stands where {expected:04} should"
            )
        if len(halves) != 2:
            raise MigrationRefused(f"migration {number:04}_{name} lacks its up or its down file")
        checksum = hashlib.sha256("\n".join(halves["up"].split("\r\n")).encode()).hexdigest()
        up, down = statements(halves["up"]), statements(halves["down"])
        migrations.append(Migration(number, name, up, down, checksum))
    return migrations


def migrate(
    store: Store,
    target: int | None = None,
    *,
    dry_run: bool = False,
    allow_dangerous: bool = False,
    directory: Path = DIRECTORY,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> list[Step]:
    """Applies what is missing up to ``target`` (the newest by default) and returns the steps.

    A dry run changes nothing, not even the record table. Raises ``MigrationRefused``, before
    anything is run, if a statement could lose data or an applied migration's file has changed;
    ``allow_dangerous`` overrides both. Never rolls back.
    """
    known = load(directory)
    applied = _applied(store)
    _check_history(known, applied, allow_dangerous)
    last = _checked_target(known, len(known) if target is None else target)
    missing = [m for m in known if m.number not in applied and m.number <= last]
    if not allow_dangerous:
        for migration in missing:
            _refuse_dangerous(migration)
    steps = [Step(m.number, m.name, "up", m.up) for m in missing]
    if not dry_run:
        store.command(_CREATE)
        _run(store, steps, {m.number: m.checksum for m in missing}, now_ms)
    return steps


def rollback(
    store: Store,
    target: int,
    *,
    dry_run: bool = False,
    directory: Path = DIRECTORY,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> list[Step]:
    """Takes back every applied migration above ``target`` (0: all), newest first.

    Down files may drop tables: look at a dry run first. Raises ``MigrationRefused`` when the store
    holds a migration that this checkout does not know.
    """
    known = load(directory)
    applied = _applied(store)
    _check_history(known, applied, allow_changed=True)
    floor = _checked_target(known, target)
    undone = [m for m in reversed(known) if m.number in applied and m.number > floor]
    steps = [Step(m.number, m.name, "down", m.down) for m in undone]
    if not dry_run:
        _run(store, steps, {m.number: m.checksum for m in undone}, now_ms)
    return steps


def _run(
    store: Store, steps: Sequence[Step], checksums: dict[int, str], now_ms: Callable[[], int]
) -> None:
    for step in steps:
        for statement in step.statements:
            store.command(statement)
        newest = store.query(f"SELECT max(revision) FROM {_TABLE}").rows[0][0]
        row = (
            step.number,
            step.name,
            checksums[step.number],
            int(step.direction == "up"),
            now_ms(),
            int(str(newest)) + 1,
        )
        columns = ("number", "name", "checksum", "applied", "at_ms", "revision")
        store.insert(_TABLE, columns, [row])


def _applied(store: Store) -> dict[int, _Applied]:
    if not store.query(f"EXISTS TABLE {_TABLE}").rows[0][0]:
        return {}
    rows = store.query(
        f"SELECT number, name, checksum, revision FROM {_TABLE} FINAL WHERE applied = 1"
    ).rows
    return {int(str(n)): _Applied(str(name), str(sha), int(str(r))) for n, name, sha, r in rows}


def _check_history(
    known: Sequence[Migration], applied: dict[int, _Applied], allow_changed: bool
) -> None:
    by_number = {migration.number: migration for migration in known}
    for number, record in sorted(applied.items()):
        migration = by_number.get(number)
        if migration is None:
            raise MigrationRefused(
                f"the store has migration {number:04}_{record.name}, which is not in this checkout:"
                " use the version of Windtunnel that applied it"
            )
        if migration.checksum != record.checksum and not allow_changed:
            raise MigrationRefused(
                f"{number:04}_{migration.name}.up.sql was changed after it was applied: restore it "
                "and put the change into a new migration, or allow dangerous migrations"
            )


def _refuse_dangerous(migration: Migration) -> None:
    for statement in migration.up:
        bare = re.sub(r"'(?:[^'\\]|\\.)*'", "''", statement)
        if match := _DANGEROUS.search(bare):
            words = " ".join(match[0].split())[:60]
            raise MigrationRefused(
                f"{migration.number:04}_{migration.name}.up.sql could lose data ({words}): "
                "keep a backup and allow dangerous migrations"
            )


def _checked_target(known: Sequence[Migration], target: int) -> int:
    if not 0 <= target <= len(known):
        raise MigrationRefused(f"there is no migration {target:04}: the newest is {len(known):04}")
    return target
