"""The API for world authors: tools as plain functions over a session's state.

    world = World("order_support", initial_state={"orders": {}})

    @world.tool
    def get_order(ctx: Context, order_id: str) -> dict[str, Any]:
        \"\"\"Look up one order.\"\"\"
        if order_id not in ctx.state["orders"]:
            raise ToolError("not_found", f"no order {order_id}")
        return ctx.state["orders"][order_id]

The input schema comes from the signature (defaults are optional arguments; `Annotated`, `Field`
and `Literal` count), the description from the docstring's first line. Tools may only use what the
context gives them: no clock, no randomness and no memory of their own, or a session could not be
rebuilt from its log. docs/worlds.md has the whole of it.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from schemas import merge_patch
from schemas.model import IDENTIFIER
from services.tool_proxy.jsons import JsonObject, private_copy
from services.tool_proxy.world_conditions import mark_as_tool
from services.tool_proxy.world_conditions import requires as requires
from services.tool_proxy.world_context import Context as Context
from services.tool_proxy.world_context import StateKinds
from services.tool_proxy.world_errors import ArgumentsRefused as ArgumentsRefused
from services.tool_proxy.world_errors import ToolError as ToolError
from services.tool_proxy.world_errors import WorldError as WorldError
from services.tool_proxy.world_state_database import Database
from services.tool_proxy.world_state_files import checked, spread
from services.tool_proxy.world_tool import WorldTool as WorldTool
from services.tool_proxy.world_tool import json_object, tool_of

F = TypeVar("F", bound=Callable[..., Any])


class World:
    """A set of tools and the state they start from."""

    def __init__(
        self,
        name: str,
        initial_state: Mapping[str, Any] | None = None,
        *,
        database: str | None = None,
        files: Mapping[str, Any] | None = None,
    ) -> None:
        """State is JSON; besides, it may be tables and files.

        Args:
            database: the SQL script that makes tables and what is in them; tools use `ctx.db`.
                The rows are the state's `/tables`.
            files: texts by path, or by nested folders; tools use `ctx.files`. They are the
                state's `/files`.

        Raises:
            WorldError: bad name, a state that is not a JSON object, SQL that fails, no such files.
        """
        if not re.fullmatch(IDENTIFIER, name):
            raise WorldError(f"world {name!r}: the name must match {IDENTIFIER}")
        self.name = name
        self._kinds = StateKinds(Database(name, database) if database is not None else None,
                                 files is not None)  # fmt: skip
        state = json_object(f"world {name}", initial_state or {})
        for kind, given in (("tables", database), ("files", files)):
            if given is not None and kind in state:
                raise WorldError(f"world {name}: the state's {kind} come from `{kind}` alone")
        if self._kinds.database is not None:
            state |= self._kinds.database.initial
        if files is not None:
            state["files"] = spread(json_object(f"world {name}: files", files))
            checked(state["files"])
        self._initial_state = state
        self._tools: dict[str, WorldTool] = {}
        self._of_user: list[str] = []

    @property
    def initial_state(self) -> JsonObject:
        """A fresh copy of the state that sessions start from."""
        state: JsonObject = private_copy(self._initial_state)
        return state

    def seeded(self, patch: Mapping[str, Any], now: datetime, chance: random.Random) -> JsonObject:
        """The state of a session that changes the initial one by a merge patch (RFC 7386). Rows
        may be given as lists or by key, with columns left to their defaults; files by path.

        Raises:
            WorldError: such rows or files cannot be.
            TypeError: it is not JSON.
        """
        given = private_copy(dict(patch))
        if self._kinds.files and "files" in given:
            given["files"] = spread(given["files"])
        state: JsonObject = merge_patch.patched(self.initial_state, given)
        if self._kinds.files:
            checked(state.setdefault("files", {}))
        if self._kinds.database is not None and given.keys() & {"tables", "sequences"}:
            state = self._kinds.database.normal(state, now, chance)
        return state

    @property
    def tools(self) -> tuple[WorldTool, ...]:
        """The tools, in the order of their definition."""
        return tuple(self._tools.values())

    def user_tools(self) -> tuple[str, ...]:
        """The names of the tools that are the simulated user's and never the agent's."""
        return tuple(self._of_user)

    def find(self, name: str) -> WorldTool | None:
        """The tool of that name, if there is one."""
        return self._tools.get(name)

    def call(self, tool: WorldTool, context: Context, arguments: bytes) -> Any:
        """A tool's answer; afterwards the context's state says all that it has changed.

        Raises:
            ArgumentsRefused: they do not fit the signature.
            ToolError: the tool answers with an error, and nothing it did is to be kept.
            Exception: whatever else the tool's code raises.
        """
        context.begin(self._kinds)
        try:
            answer = tool(context, arguments)
            context.settle()
            return answer
        finally:
            context.close()

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str = ...,
        output_schema: Mapping[str, Any] | None = ...,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        *,
        name: str = "",
        output_schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a function a tool of the agent's. Its first parameter is the `Context`.

        The output schema is taken from the return annotation unless given.

        Raises:
            WorldError: bad or repeated name, no context, `*args`, or types without a schema.
        """

        def define(function: F) -> F:
            self._define(function, name, output_schema)
            return function

        return define if function is None else define(function)

    @overload
    def user_tool(self, function: F) -> F: ...

    @overload
    def user_tool(
        self, *, name: str = ..., output_schema: Mapping[str, Any] | None = ...
    ) -> Callable[[F], F]: ...

    def user_tool(
        self,
        function: Any = None,
        *,
        name: str = "",
        output_schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a function a tool of the simulated user's, which scenarios name in `user.tools`.

        The agent can never call it, even if it was registered with a tool of that name. Raises
        WorldError as `tool` does.
        """

        def define(function: F) -> F:
            self._of_user.append(self._define(function, name, output_schema))
            return function

        return define if function is None else define(function)

    def _define(
        self, function: Callable[..., Any], name: str, output: Mapping[str, Any] | None
    ) -> str:
        tool = tool_of(self.name, name or function.__name__, function, output)
        if tool.name in self._tools:
            raise WorldError(f"world {self.name}: there are two tools named {tool.name}")
        self._tools[tool.name] = tool
        mark_as_tool(function)
        return tool.name


def load_worlds(specs: Sequence[str]) -> Mapping[str, World]:
    """The worlds an operator has configured, by name, each given as `package.module:attribute`.

    Raises:
        WorldError: malformed entry, import failure, not a World, or two of one name.
    """
    worlds: dict[str, World] = {}
    for spec in specs:
        module, _, attribute = spec.partition(":")
        if not module or not attribute:
            raise WorldError(f"{spec!r}: expected package.module:attribute")
        try:
            world = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise WorldError(f"{spec}: {error}") from error
        if not isinstance(world, World):
            raise WorldError(f"{spec}: expected a World, got {type(world).__name__}")
        if world.name in worlds:
            raise WorldError(f"{spec}: there is another world named {world.name}")
        worlds[world.name] = world
    return worlds
