"""What every store does, whichever engine stands behind it.

Errors come in two kinds, because callers act differently on them: what may go away by itself
(``StoreUnavailable``) and what will not (``StoreRejected``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class StoreError(Exception):
    """Base of everything a store raises. Messages never hold a password."""


class StoreUnavailable(StoreError):
    """The store could not be reached, or could not take it now: trying again later may help.

    ``maybe_applied`` is true when the statement was sent and its outcome is unknown.
    """

    def __init__(self, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied


class StoreRejected(StoreError):
    """The store, or the check before it, refused the data or the SQL: trying again will not help.

    The message names the table and, where one is to blame, the column.
    """

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class MigrationRefused(StoreError):
    """A migration was not run because it could lose data or contradicts the store's history."""


@dataclass(frozen=True)
class Result:
    """Rows with their columns' names and ClickHouse types, in the order the query gave."""

    columns: tuple[tuple[str, str], ...]
    rows: list[tuple[object, ...]]


class Store(Protocol):
    """One store. Every method may block, returns or raises within about the store's deadline,
    and may be called from any thread (calls take turns). Asynchronous callers use a thread.

    All methods raise ``StoreUnavailable`` or ``StoreRejected`` and nothing else of their own.
    """

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Adds the rows; returning means that they survive a crash of the store's process.

        Retries, so a batch may arrive twice: tables must be ReplacingMergeTree over deterministic
        ids and be read through their ``v_`` views. A large batch need not be atomic. Values must
        have the column's type exactly (no 1.5 into an integer, no None where NULL is not allowed):
        neither engine checks that by itself. Columns left out get the table's defaults.
        """

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> Result:
        """Runs a statement that only reads, retrying. Placeholders are ``%(name)s``; with
        parameters given (even an empty mapping) a literal per cent sign is written ``%%``."""

    def command(self, sql: str) -> None:
        """Runs one statement that changes something. Is repeated only while it certainly has not
        been sent; afterwards raises ``StoreUnavailable`` with ``maybe_applied`` set."""

    def ping(self) -> None:
        """Asks for a sign of life, once and without retries; raises when there is none."""

    def close(self) -> None:
        """Lets the connection go. May be called twice. The store cannot be used afterwards."""
