"""ClickHouse column types: what Python values they take, checked before anything is sent.

Both engines have silent conversions (a JSON 300 becomes 44 in a UInt8, Arrow's 1.5 becomes 1, a
null becomes the default), and the native driver fails without naming the column. Hence this.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from services.runtime.store.interface import StoreRejected

_INTEGERS = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))
_FLOATS = frozenset({"Float32", "Float64"})


@dataclass(frozen=True)
class ColumnType:
    """A parsed type: ``base`` is the plain name, or ``Array`` with ``item`` set."""

    base: str
    nullable: bool = False
    item: ColumnType | None = None

    @property
    def python_types(self) -> tuple[type, ...]:
        """Whose instances the column takes; empty for a type this store does not insert."""
        if self.base == "Array":
            return (list, tuple)
        if self.base in _INTEGERS:
            return (int,)
        if self.base in _FLOATS:
            return (float, int)
        known: dict[str, tuple[type, ...]] = {
            "String": (str,),
            "Bool": (bool,),
            "Date": (dt.date,),
            "DateTime": (dt.datetime,),
        }
        return known.get(self.base, ())


def parse(name: str) -> ColumnType:
    """Reads a type as the server spells it.

    >>> parse("Array(Nullable(Int8))").item
    ColumnType(base='Int8', nullable=True, item=None)
    """
    head, _, rest = name.partition("(")
    inside = rest[:-1]
    if head == "Nullable":
        return ColumnType(parse(inside).base, nullable=True)
    if head == "LowCardinality":
        return parse(inside)
    if head == "Array":
        return ColumnType("Array", item=parse(inside))
    return ColumnType(head)


def check(table: str, column: str, column_type: ColumnType, values: Sequence[object]) -> None:
    """Raises ``StoreRejected`` naming table and column if a value is not of the column's type.

    Ranges are left to the encoders, which check them.
    """
    allowed = column_type.python_types
    if not allowed:
        raise StoreRejected(f"{table}.{column}: type {column_type.base} is not supported here")
    for kind in set(map(type, values)):
        if kind is type(None):
            if not column_type.nullable:
                raise StoreRejected(f"{table}.{column}: NULL in a column that takes none")
        elif not issubclass(kind, allowed):
            raise StoreRejected(
                f"{table}.{column}: {kind.__name__} where {column_type.base} is expected"
            )
    if column_type.item is not None:
        arrays = [value for value in values if isinstance(value, list | tuple)]
        items: list[object] = list(chain.from_iterable(arrays))
        check(table, column, column_type.item, items)


def transpose(
    table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> list[tuple[object, ...]]:
    """Rows to columns; raises ``StoreRejected`` when a row has another number of values."""
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise StoreRejected(
                f"{table}: row {number} has {len(row)} values for {len(columns)} columns"
            )
    return list(zip(*rows, strict=True))


def from_json(column_type: ColumnType) -> Callable[[object], object] | None:
    """What turns a JSON value into what the native driver gives; None when they are the same."""
    convert: Callable[[object], object]
    if column_type.base in _FLOATS:
        convert = _float
    elif column_type.base == "Date":
        convert = _date
    elif column_type.base == "DateTime":
        convert = _datetime
    elif column_type.item is not None and (inner := from_json(column_type.item)) is not None:
        return lambda value: [inner(item) for item in value]  # type: ignore[attr-defined]
    else:
        return None
    return lambda value: None if value is None else convert(value)


def _float(value: object) -> float:
    return float(value)  # type: ignore[arg-type]  # a number, or "nan", "inf", "-inf"


def _date(value: object) -> dt.date:
    return dt.date.fromisoformat(str(value))


def _datetime(value: object) -> dt.datetime:
    return dt.datetime.fromisoformat(str(value))
