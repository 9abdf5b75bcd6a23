"""What must hold before a tool does anything: conditions, and the error where one does not."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from services.tool_proxy.world_context import Context
from services.tool_proxy.world_errors import ToolError, WorldError

F = TypeVar("F", bound=Callable[..., Any])

FAILED = "precondition_failed"
_TOOL = "__tool_of_a_world__"


def requires(
    condition: Callable[..., bool], *, code: str = FAILED, message: str = ""
) -> Callable[[F], F]:
    """Let a tool answer with an error, and do nothing, unless a condition holds.

        def is_open(ctx: Context, order_id: str) -> bool:
            \"\"\"The order must still be open.\"\"\"
            return ctx.state["orders"][order_id]["status"] == "open"

        @world.tool
        @requires(is_open)
        def cancel_order(ctx: Context, order_id: str) -> ...:

    Args:
        condition: takes the context and those of the tool's arguments that it names. Where it
            does not hold, the agent gets `{"error": {"code", "message", "condition"}}`. It may
            raise a ToolError of its own, such as not_found, and must not change anything.
        message: what the agent is told; the first line of the condition's docstring otherwise.

    Several conditions are checked from the top down.

    Raises:
        WorldError: it names an argument that the tool does not have, there is nothing to tell
            the agent, or it was written above `@world.tool`, where it would have no effect.
    """
    name = getattr(condition, "__name__", "condition")
    told = message or (inspect.getdoc(condition) or "").partition("\n")[0]

    def guard(function: F) -> F:
        where = f"{getattr(function, '__name__', 'tool')}: requires({name})"
        if getattr(function, _TOOL, False):
            raise WorldError(f"{where}: write it below the decorator that makes the tool")
        if not told:
            raise WorldError(f"{where}: give a message, or the condition a docstring")
        _, *names = inspect.signature(condition).parameters
        signature = inspect.signature(function)
        first, *known = signature.parameters
        if unknown := [each for each in names if each not in known]:
            raise WorldError(f"{where}: the tool has no argument {unknown[0]}")

        @functools.wraps(function)
        def guarded(*given: Any, **keywords: Any) -> Any:
            bound = signature.bind(*given, **keywords)
            bound.apply_defaults()
            context: Context = bound.arguments[first]
            before = context.fingerprint()
            holds = condition(context, **{each: bound.arguments[each] for each in names})
            if context.fingerprint() != before:
                raise WorldError(f"{where}: a condition must not change anything")
            if not holds:
                raise ToolError(code, told, condition=name)
            return function(*given, **keywords)

        return guarded  # type: ignore[return-value]

    return guard


def mark_as_tool(function: Callable[..., Any]) -> None:
    """From here on conditions come too late."""
    try:
        setattr(function, _TOOL, True)
    except AttributeError:
        return  # what takes no attributes cannot be decorated further either
