"""A ClickHouse server, over the native protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from clickhouse_driver import Client, errors

from services.runtime.store import columns as column_types
from services.runtime.store.escaping import substitute
from services.runtime.store.interface import Result, StoreRejected, StoreUnavailable
from services.runtime.store.retrying import RETRYABLE_CODES, Retrying
from services.runtime.store.table_types import TableTypes

T = TypeVar("T")

_CONNECT_TIMEOUT_S = 5.0
#: What the driver and the socket raise when the line is gone.
_LINE_ERRORS = (errors.NetworkError, errors.SocketTimeoutError, EOFError, OSError)
#: What the driver raises for a value it cannot encode.
_VALUE_ERRORS = (errors.TypeMismatchError, UnicodeError, ValueError, TypeError, OverflowError)


class ClickHouseStore:
    """One connection, re-made when it breaks; a lock makes callers take turns."""

    def __init__(
        self,
        host: str,
        port: int = 9000,
        *,
        database: str = "default",
        user: str = "default",
        password: str = "",
        retrying: Retrying | None = None,
    ) -> None:
        self._where = f"ClickHouse at {host}:{port}"
        self._password = password
        self._retrying = retrying or Retrying()
        self._lock = threading.Lock()
        self._types = TableTypes(self.query)
        self._client = Client(
            host,
            port,
            database=database,
            user=user,
            password=password,
            client_name="windtunnel",
            connect_timeout=_CONNECT_TIMEOUT_S,
        )

    def __repr__(self) -> str:
        return f"<ClickHouseStore {self._where}>"

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        data = column_types.transpose(table, columns, rows)
        types = self._types.of(table, columns)
        for name, values in zip(columns, data, strict=True):
            column_types.check(table, name, types[name], values)
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES"
        try:
            self._run(lambda: self._client.execute(statement, data, columnar=True))
        except StoreRejected as error:
            self._types.forget(table)
            raise StoreRejected(f"{table}: {error}", code=error.code) from error
        except _VALUE_ERRORS as error:
            culprit = _unencodable(columns, data) if isinstance(error, UnicodeError) else ""
            raise StoreRejected(f"{table}{culprit}: {self._clean(error)}") from None

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> Result:
        text = substitute(sql, parameters)
        rows, names = self._run(lambda: self._client.execute(text, with_column_types=True))
        return Result(tuple((name, kind) for name, kind in names), list(rows))

    def command(self, sql: str) -> None:
        self._run(lambda: self._client.execute(sql), repeatable=False)

    def ping(self) -> None:
        with self._lock:
            self._attempt(lambda: self._client.execute("SELECT 1"), _CONNECT_TIMEOUT_S, True)

    def close(self) -> None:
        with self._lock:
            self._client.disconnect()

    def _run(self, act: Callable[[], Any], *, repeatable: bool = True) -> Any:
        with self._lock:
            return self._retrying.call(lambda left: self._attempt(act, left, repeatable))

    def _attempt(self, act: Callable[[], T], left: float, repeatable: bool) -> T:
        sent = False
        try:
            self._limit_waits(left)
            if not repeatable:
                self._connect()  # apart from sending, to know which of the two failed
            sent = True
            return act()
        except errors.ServerException as error:
            if error.code in RETRYABLE_CODES:
                raise StoreUnavailable(self._clean(error)) from None
            raise StoreRejected(self._clean(error), code=error.code) from None
        except _LINE_ERRORS as error:
            self._client.disconnect()
            raise StoreUnavailable(
                f"{self._where} cannot be reached: {self._clean(error)}",
                maybe_applied=sent and not repeatable,
            ) from None
        except errors.PartiallyConsumedQueryError as error:
            self._client.disconnect()
            raise StoreUnavailable(self._clean(error), maybe_applied=not repeatable) from None

    def _limit_waits(self, left: float) -> None:
        """No wait on the socket is longer than what is left of the deadline."""
        connection = self._client.connection
        connection.connect_timeout = min(_CONNECT_TIMEOUT_S, left)
        connection.sync_request_timeout = min(_CONNECT_TIMEOUT_S, left)
        connection.send_receive_timeout = left
        if connection.connected:
            connection.socket.settimeout(left)

    def _connect(self) -> None:
        connection = self._client.connection
        if not (connection.connected and connection.ping()):
            connection.connect()

    def _clean(self, error: BaseException) -> str:
        text = getattr(error, "message", None) or str(error) or type(error).__name__
        text = str(text).partition("Stack trace:")[0].strip()
        return text.replace(self._password, "***") if self._password else text


def _unencodable(columns: Sequence[str], data: Sequence[Sequence[object]]) -> str:
    for name, values in zip(columns, data, strict=True):
        try:
            "".join(str(value) for value in values).encode()
        except UnicodeError:
            return f".{name}"
    return ""
