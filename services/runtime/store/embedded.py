"""The embedded engine, through the process that owns it (``services.embedded_store``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx
import orjson

from services.runtime.store import arrow
from services.runtime.store import columns as column_types
from services.runtime.store.escaping import substitute
from services.runtime.store.interface import Result, StoreRejected, StoreUnavailable
from services.runtime.store.retrying import RETRYABLE_CODES, Retrying
from services.runtime.store.table_types import TableTypes

_CONNECT_TIMEOUT_S = 5.0
#: Half of the server's default limit on a body.
_MAX_INSERT_BYTES = 32 * 1024 * 1024
#: So that nan and the infinities survive JSON, as they do the native protocol.
_SETTINGS = {"default_format": "JSONCompact", "output_format_json_quote_denormals": "1"}


class EmbeddedStore:
    """Speaks the HTTP interface of one embedded store process."""

    def __init__(
        self, base_url: str, *, database: str = "default", retrying: Retrying | None = None
    ) -> None:
        self._where = f"embedded store at {base_url}"
        self._database = database
        self._retrying = retrying or Retrying()
        # trust_env is off: a proxy variable must not send a local store's traffic elsewhere.
        self._http = httpx.Client(base_url=base_url, trust_env=False)
        self._types = TableTypes(self.query)

    def __repr__(self) -> str:
        return f"<EmbeddedStore {self._where}>"

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not rows:
            return
        types = self._types.of(table, columns)
        wanted = [types[name] for name in columns]
        statement = f"INSERT INTO {table} ({', '.join(columns)}) FORMAT ArrowStream"
        try:
            for body in arrow.streams(table, columns, wanted, rows, _MAX_INSERT_BYTES):
                self._post(body, {"query": statement})
        except StoreRejected as error:
            self._types.forget(table)
            message = str(error) if str(error).startswith(table) else f"{table}: {error}"
            raise StoreRejected(message, code=error.code) from None

    def query(self, sql: str, parameters: Mapping[str, object] | None = None) -> Result:
        content = self._post(_encode(substitute(sql, parameters)), _SETTINGS)
        if not content:
            return Result((), [])
        answer = orjson.loads(content)
        meta = tuple((column["name"], column["type"]) for column in answer["meta"])
        rows = answer["data"]
        for place, (_, name) in enumerate(meta):
            convert = column_types.from_json(column_types.parse(name))
            if convert is not None:
                for row in rows:
                    row[place] = convert(row[place])
        return Result(meta, [tuple(row) for row in rows])

    def command(self, sql: str) -> None:
        self._post(_encode(sql), {}, repeatable=False)

    def ping(self) -> None:
        self._attempt(b"SELECT 1", {"readonly": "1"}, _CONNECT_TIMEOUT_S, True)

    def close(self) -> None:
        self._http.close()

    def _post(self, body: bytes, params: Mapping[str, str], *, repeatable: bool = True) -> bytes:
        return self._retrying.call(lambda left: self._attempt(body, params, left, repeatable))

    def _attempt(
        self, body: bytes, params: Mapping[str, str], left: float, repeatable: bool
    ) -> bytes:
        timeout = httpx.Timeout(left, connect=min(_CONNECT_TIMEOUT_S, left))
        everything = {**params, "database": self._database}
        try:
            response = self._http.post("/", params=everything, content=body, timeout=timeout)
        except httpx.TransportError as error:
            sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            raise StoreUnavailable(
                f"{self._where} cannot be reached: {error or type(error).__name__}",
                maybe_applied=sent and not repeatable,
            ) from None
        if response.is_success:
            return response.content
        text = response.text.strip()
        code = int(response.headers.get("X-ClickHouse-Exception-Code", "0"))
        # 503 is the process's own answer for a full queue: it has not run anything.
        if response.status_code == httpx.codes.SERVICE_UNAVAILABLE or code in RETRYABLE_CODES:
            raise StoreUnavailable(text)
        raise StoreRejected(text, code=code)


def _encode(sql: str) -> bytes:
    try:
        return sql.encode()
    except UnicodeEncodeError:
        raise StoreRejected("the SQL holds a lone surrogate, which is not text") from None
