"""Rows into Arrow streams, the faster and the stricter way into the embedded engine (JSON takes
twice the time, and wraps integers that do not fit)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from services.runtime.store.columns import ColumnType, check, transpose
from services.runtime.store.interface import StoreRejected


def streams(
    table: str,
    columns: Sequence[str],
    types: Sequence[ColumnType],
    rows: Sequence[Sequence[object]],
    max_bytes: int,
) -> Iterator[bytes]:
    """Arrow IPC streams of about ``max_bytes`` at most, one row at least.

    Raises ``StoreRejected`` naming the column for a value that does not fit, before the first.
    """
    arrow: Any = import_module("pyarrow")  # 0.2 s that readers of the store need not pay
    arrays = []
    for name, kind, values in zip(columns, types, transpose(table, columns, rows), strict=True):
        check(table, name, kind, values)
        try:
            arrays.append(arrow.array(_plain(kind, values), type=_arrow_type(arrow, kind)))
        except (arrow.ArrowException, ValueError, OverflowError, TypeError) as error:
            raise StoreRejected(f"{table}.{name}: {error}") from None
    yield from _split(arrow, arrow.Table.from_arrays(arrays, names=list(columns)), max_bytes)


def _split(arrow: Any, data: Any, max_bytes: int) -> Iterator[bytes]:
    if data.nbytes > max_bytes and data.num_rows > 1:
        half = data.num_rows // 2
        yield from _split(arrow, data.slice(0, half), max_bytes)
        yield from _split(arrow, data.slice(half), max_bytes)
        return
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    yield sink.getvalue().to_pybytes()


def _plain(kind: ColumnType, values: Sequence[object]) -> Sequence[object]:
    """Arrow refuses True as an integer, where the native driver takes it."""
    if kind.base != "Bool" and bool in set(map(type, values)):
        return [int(value) if isinstance(value, bool) else value for value in values]
    return values


def _arrow_type(arrow: Any, kind: ColumnType) -> Any:
    if kind.item is not None:
        return arrow.list_(_arrow_type(arrow, kind.item))
    if "Int" in kind.base:
        return getattr(arrow, kind.base.lower())()
    fixed = {
        "String": arrow.string(),
        "Bool": arrow.bool_(),
        "Date": arrow.date32(),
        "DateTime": arrow.timestamp("s", tz="UTC"),
        "Float32": arrow.float32(),
        "Float64": arrow.float64(),
    }
    return fixed[kind.base]
