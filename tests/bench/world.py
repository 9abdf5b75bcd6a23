"""The benchmark's world: two tools over a small state, one of which changes it."""

from __future__ import annotations

from typing import Any

from services.tool_proxy.world import Context, World

world = World("bench", initial_state={"notes": [], "orders": {"ORD-1": {"status": "shipped"}}})


@world.tool
def get_order(ctx: Context, order_id: str) -> dict[str, Any]:
    """Look up one order."""
    order: dict[str, Any] = ctx.state["orders"][order_id]
    return order


@world.tool
def add_note(ctx: Context, text: str) -> dict[str, Any]:
    """Write something down."""
    ctx.state["notes"].append(text)
    return {"notes": len(ctx.state["notes"])}
