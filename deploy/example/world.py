"""The world behind the example agent's tool."""

from __future__ import annotations

from typing import Any

from services.tool_proxy.world import Context, ToolError, World

world = World(
    "library",
    initial_state={"hours": {"central": {"opens": "9:00", "closes": "20:00"}}},
)


@world.tool
def get_opening_hours(ctx: Context, branch: str) -> dict[str, Any]:
    """When a branch is open today."""
    hours: dict[str, Any] | None = ctx.state["hours"].get(branch)
    if hours is None:
        raise ToolError("not_found", f"there is no branch {branch}")
    return hours
