"""The API for world authors: tools as plain functions over a session's JSON state.

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
rebuilt from its log.
"""

from __future__ import annotations

import importlib
import inspect
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, get_type_hints, overload

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema

from schemas.model import IDENTIFIER, TOOL_NAME
from services.tool_proxy.jsons import JsonObject, private_copy

F = TypeVar("F", bound=Callable[..., Any])


class WorldError(Exception):
    """A world is not defined as it must be; raised when it is defined or loaded."""


class ToolError(Exception):
    """Raised in a tool: it answers with an error, and the state stays as it was.

    The agent gets `{"error": {"code": code, "message": message, **details}}`.
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ArgumentsRefused(Exception):
    """The arguments do not fit the function's signature; `path` and `rule` say where and how."""

    def __init__(self, path: str, rule: str, message: str) -> None:
        super().__init__(message)
        self.path, self.rule, self.message = path, rule, message


@dataclass(slots=True)
class Context:
    """What a tool may use while it answers one call."""

    state: JsonObject
    """The world's state, a private copy. Changes are kept only if the function returns."""
    now: datetime
    """The world's time, UTC: its start plus what has passed by this conversation."""
    random: random.Random
    """Seeded from the session's seed and this call's ordinal."""
    call: int
    """The call's ordinal in its session, from 1."""


@dataclass(frozen=True, slots=True)
class WorldTool:
    """One tool of a world."""

    name: str
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None
    function: Callable[..., Any]
    arguments: type[BaseModel]

    def __call__(self, context: Context, arguments: bytes) -> Any:
        """The tool's answer as a JSON value; `arguments` is the text of a JSON object.

        Raises:
            ArgumentsRefused: they do not fit the signature.
            ToolError: the tool answers with an error.
            Exception: whatever else the tool's code raises, TypeError if its answer or the
                state it leaves is not JSON.
        """
        try:
            given = self.arguments.model_validate_json(arguments)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            path = "".join(f"/{part}" for part in first["loc"])
            raise ArgumentsRefused(path, first["type"], first["msg"]) from None
        names = type(given).model_fields
        keywords = {field.alias or name: getattr(given, name) for name, field in names.items()}
        return orjson.loads(orjson.dumps(self.function(context, **keywords), default=_dumped))


class World:
    """A set of tools and the state they start from."""

    def __init__(self, name: str, initial_state: Mapping[str, Any] | None = None) -> None:
        """Raises WorldError: bad name, or a state that is not a JSON object."""
        if not re.fullmatch(IDENTIFIER, name):
            raise WorldError(f"world {name!r}: the name must match {IDENTIFIER}")
        self.name = name
        self._initial_state = _json_object(f"world {name}", initial_state or {})
        self._tools: dict[str, WorldTool] = {}

    @property
    def initial_state(self) -> JsonObject:
        """A fresh copy of the state that sessions start from."""
        state: JsonObject = private_copy(self._initial_state)
        return state

    @property
    def tools(self) -> tuple[WorldTool, ...]:
        """The tools, in the order of their definition."""
        return tuple(self._tools.values())

    def find(self, name: str) -> WorldTool | None:
        """The tool of that name, if there is one."""
        return self._tools.get(name)

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(
        self, *, name: str = ..., output_schema: Mapping[str, Any] | None = ...
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        *,
        name: str = "",
        output_schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a function a tool. Its first parameter is the `Context`.

        The output schema is taken from the return annotation unless given.

        Raises:
            WorldError: bad or repeated name, no context, `*args`, or types without a schema.
        """

        def define(function: F) -> F:
            tool = _tool(self.name, name or function.__name__, function, output_schema)
            if tool.name in self._tools:
                raise WorldError(f"world {self.name}: there are two tools named {tool.name}")
            self._tools[tool.name] = tool
            return function

        return define if function is None else define(function)


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


class _Plain(GenerateJsonSchema):
    """Without the titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _tool(
    world: str, name: str, function: Callable[..., Any], output: Mapping[str, Any] | None
) -> WorldTool:
    where = f"world {world}: tool {name}"
    if not re.fullmatch(TOOL_NAME, name):
        raise WorldError(f"{where}: the name must match {TOOL_NAME}")
    if inspect.iscoroutinefunction(function):
        raise WorldError(f"{where}: write a plain function, not a coroutine")
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise WorldError(f"{where}: its annotations cannot be resolved: {error}") from error
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or hints.get(parameters[0].name) is not Context:
        raise WorldError(f"{where}: the first parameter must be annotated as Context")
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(parameters[1:]):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise WorldError(f"{where}: {parameter} cannot come from a JSON object")
        if parameter.name not in hints:
            raise WorldError(f"{where}: parameter {parameter.name} needs an annotation")
        required = parameter.default is parameter.empty
        # Fields are numbered, so that no argument's name can collide with pydantic's own.
        fields[f"argument_{number}"] = (
            hints[parameter.name],
            Field(... if required else parameter.default, alias=parameter.name),
        )
    doc = inspect.getdoc(function) or ""
    try:
        model: type[BaseModel] = create_model(
            name, __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields
        )
        inputs = model.model_json_schema(schema_generator=_Plain)
        if output is None and hints.get("return", Any) is not Any:
            adapter: TypeAdapter[Any] = TypeAdapter(hints["return"])
            output = adapter.json_schema(mode="serialization", schema_generator=_Plain)
    except (PydanticUserError, TypeError, ValueError) as error:
        raise WorldError(f"{where}: {error}") from error
    inputs.pop("title", None)
    inputs.setdefault("properties", {})
    return WorldTool(
        name=name,
        description=doc.partition("\n")[0],
        input_schema=_json_object(where, inputs),
        output_schema=None if output is None else _json_object(where, output),
        function=function,
        arguments=model,
    )


def _json_object(where: str, value: Mapping[str, Any]) -> JsonObject:
    try:
        copy = private_copy(dict(value))
    except TypeError as error:
        raise WorldError(f"{where}: not a JSON object: {error}") from None
    result: JsonObject = copy
    return result


def _dumped(value: Any) -> Any:
    """What orjson cannot write by itself: pydantic models that a tool returns."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")
