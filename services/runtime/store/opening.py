"""From a URL to a store."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from services.runtime.store.interface import Store, StoreRejected
from services.runtime.store.retrying import Retrying

_FORMS = "clickhouse://user:password@host:port/database or embedded+http://127.0.0.1:port"


def open_store(
    url: str,
    *,
    deadline_s: float = 60.0,
    create_database: bool = False,
    retrying: Retrying | None = None,
) -> Store:
    """The store behind ``url``; the caller closes it.

    Connects only when first used, except with ``create_database``. Special characters of the
    password are percent-encoded. ``retrying`` overrides ``deadline_s`` and brings another clock.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The parser quotes what it could not read, which may be the password.
        raise StoreRejected(f"the store's URL cannot be read; write {_FORMS}") from None
    if not host:
        raise StoreRejected(f"the store's URL names no host; write {_FORMS}")
    database = unquote(parts.path.strip("/")) or "default"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", database):
        raise StoreRejected("the store's URL names a database that is not a plain identifier")
    retrying = retrying or Retrying(deadline_s)

    def build(database: str) -> Store:
        # Imported here, since a process uses one of the two and each costs start-up time.
        if parts.scheme == "clickhouse":
            from services.runtime.store.clickhouse import ClickHouseStore

            return ClickHouseStore(
                host,
                port or 9000,
                database=database,
                user=unquote(parts.username or "default"),
                password=unquote(parts.password or ""),
                retrying=retrying,
            )
        if parts.scheme in ("http", "embedded+http"):
            from services.runtime.store.embedded import EmbeddedStore

            name = f"[{host}]" if ":" in host else host
            base = f"http://{name}:{port or 8123}"
            return EmbeddedStore(base, database=database, retrying=retrying)
        raise StoreRejected(f"the store's URL has an unknown scheme; write {_FORMS}")

    if create_database and database != "default":
        first = build("default")
        try:
            first.command(f"CREATE DATABASE IF NOT EXISTS {database}")
        finally:
            first.close()
    return build(database)
