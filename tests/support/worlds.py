"""A world with state of every kind, with conditions and a tool of the user's."""

from __future__ import annotations

import sqlite3
from typing import Any

from services.tool_proxy.world import Context, ToolError, World, requires

TABLES = """
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  customer TEXT NOT NULL REFERENCES customers (id),
  total REAL NOT NULL DEFAULT 0 CHECK (total >= 0),
  open BOOLEAN NOT NULL DEFAULT 1,
  tags JSON,
  made_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
INSERT INTO customers VALUES ('c1', 'Ann'), ('c2', 'Bo');
INSERT INTO orders (customer, total, tags, made_at) VALUES ('c1', 12.5, '["new"]', '2026-01-01');
"""


def has_open_order(ctx: Context, order_id: int) -> bool:
    """The order must still be open."""
    row = ctx.db.execute("SELECT open FROM orders WHERE id = ?", (order_id,)).fetchone()
    if row is None:
        raise ToolError("not_found", f"no order {order_id}")
    return bool(row["open"])


def changes_something(ctx: Context) -> bool:
    """Never."""
    ctx.state["touched"] = True
    return True


def make_shop() -> World:
    world = World("shop", {"mails": []}, database=TABLES, files={"docs/a.txt": "alpha"})

    @world.tool
    def sql(ctx: Context, query: str) -> list[dict[str, Any]]:
        """Whatever an agent may write."""
        try:
            return ctx.db.execute(query).fetchall()
        except sqlite3.Error as error:
            raise ToolError("sql", str(error)) from None

    @world.tool
    def order(ctx: Context, customer: str, total: float) -> int | None:
        """Make an order."""
        query = "INSERT INTO orders (customer, total) VALUES (?, ?)"
        try:
            return ctx.db.execute(query, (customer, total)).lastrowid
        except sqlite3.IntegrityError as error:
            raise ToolError("conflict", str(error)) from None

    @world.tool
    @requires(has_open_order)
    @requires(lambda ctx, order_id: order_id != 99, code="forbidden", message="Not that one.")
    def close(ctx: Context, order_id: int) -> str:
        """Close an order."""
        ctx.db.execute("UPDATE orders SET open = 0 WHERE id = ?", (order_id,))
        return "closed"

    @world.tool
    @requires(changes_something)
    def broken(ctx: Context) -> str:
        """Has a condition that does something."""
        return ""

    @world.tool
    def write(ctx: Context, path: str, text: str) -> list[str]:
        """Write a file."""
        ctx.files.write(path, text)
        return ctx.files.glob("**")

    @world.tool
    def read(ctx: Context, path: str) -> str:
        """Read a file."""
        return ctx.files.read(path)

    @world.user_tool
    def look(ctx: Context) -> str:
        """What only the user can see."""
        return f"{len(ctx.state['tables']['orders'])} orders at {ctx.now:%H:%M:%S}"

    return world


SHOP = make_shop()
"""For a proxy that runs as its own process and loads its worlds by name."""
