"""The chDB engine and the one thread that talks to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from services.embedded_store.statement import Insert, Plain

_SETTING = re.compile(r"[a-z][a-z0-9_]*")
_CODE = re.compile(r"Code: (\d+)")


class EngineError(Exception):
    """The engine refused a statement; ``code`` is ClickHouse's."""

    def __init__(self, text: str, code: int | None = None) -> None:
        found = _CODE.search(text)
        self.code = code if code is not None else int(found[1]) if found else 1002
        self.text = text if found else f"Code: {self.code}. DB::Exception: {text}"
        super().__init__(self.text)


@dataclass(frozen=True)
class Request:
    """A statement and what surrounds it. ``parameters`` fill ``{name:Type}``."""

    statement: Insert | Plain
    database: str = "default"
    settings: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    readonly: bool = False


class Engine:
    """Owns the data directory. Statements run one after the other, each on a connection of its
    own (1 ms), so that settings, the database and read-only mode cannot leak to the next."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="chdb")
        self._connect: Any = None
        self._root: Any = None

    def open(self) -> None:
        """Loads the engine and opens the directory; takes a second or more. Raises
        ``EngineError`` if the directory cannot be used."""
        self._thread.submit(self._open).result()

    async def run(self, request: Request) -> bytes:
        """The result, encoded. Raises ``EngineError``. A statement that was begun runs to its end
        even if the caller goes away."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._run, request)

    def close(self) -> None:
        """Waits for the running statement, then closes the directory cleanly."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _open(self) -> None:
        # Late, since it takes a second and 276 MB that --help and a held lock need not pay.
        self._connect = import_module("chdb.state.sqlitelike").Connection
        try:
            # While this connection is open, the engine keeps running between requests.
            self._root = self._connect(self._path)
        except RuntimeError as error:
            raise EngineError(str(error)) from error

    def _close(self) -> None:
        if self._root is not None:
            self._root.close()

    def _run(self, request: Request) -> bytes:
        connection = self._connect(self._path)
        try:
            self._prepare(connection, request)
            statement = request.statement
            if isinstance(statement, Plain):
                parameters = dict(request.parameters)
                result = connection.query(statement.sql, statement.format, params=parameters)
                return bytes(result.bytes())
            inserter = connection.send_insert(statement.head, statement.format)
            try:
                if statement.data:
                    inserter.append(statement.data)
                inserter.finish()
            finally:
                inserter.close()
            return b""
        except RuntimeError as error:
            raise EngineError(str(error)) from error
        finally:
            connection.close()

    def _prepare(self, connection: Any, request: Request) -> None:
        for name, value in request.settings.items():
            if not _SETTING.fullmatch(name):
                raise EngineError(f"Unknown setting {name!r}", 115)
            connection.query(f"SET {name} = {_quoted(value)}")
        if request.database != "default":
            connection.query(f"USE `{request.database.replace('`', '')}`")
        if request.readonly:  # last, since it forbids the rest
            connection.query("SET readonly = 1")


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
