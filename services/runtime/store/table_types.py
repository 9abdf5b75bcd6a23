"""The column types of tables, asked for once and remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from services.runtime.store.columns import ColumnType, parse
from services.runtime.store.interface import Result, StoreRejected


class TableTypes:
    """Both stores' knowledge of what their tables' columns take."""

    def __init__(self, query: Callable[[str], Result]) -> None:
        self._query = query
        self._known: dict[str, dict[str, ColumnType]] = {}

    def of(self, table: str, columns: Sequence[str]) -> dict[str, ColumnType]:
        """The types of a table's columns; asks again when one of these is not known yet.

        Raises:
            StoreRejected: the table has no such column. StoreUnavailable as a query does.
        """
        known = self._known.get(table)
        if known is None or not known.keys() >= set(columns):
            rows = self._query(f"DESCRIBE TABLE {table}").rows
            known = {str(row[0]): parse(str(row[1])) for row in rows}
            self._known[table] = known
        for name in columns:
            if name not in known:
                raise StoreRejected(f"{table}: there is no column {name}", code=16)
        return known

    def forget(self, table: str) -> None:
        """Ask anew next time: the table may have been altered since."""
        self._known.pop(table, None)
