"""One tool of a world: a function, its schemas from its signature, and how it is called."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

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

from schemas.model import TOOL_NAME
from services.tool_proxy.jsons import JsonObject, private_copy
from services.tool_proxy.world_context import Context
from services.tool_proxy.world_errors import ArgumentsRefused, WorldError


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


class _Plain(GenerateJsonSchema):
    """Without the titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def tool_of(
    world: str, name: str, function: Callable[..., Any], output: Mapping[str, Any] | None
) -> WorldTool:
    """A function as a tool of a world.

    Raises:
        WorldError: bad name, no context, `*args`, or types without a schema.
    """
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
        input_schema=json_object(where, inputs),
        output_schema=None if output is None else json_object(where, output),
        function=function,
        arguments=model,
    )


def json_object(where: str, value: Mapping[str, Any]) -> JsonObject:
    """A private copy. Raises WorldError: it is not JSON."""
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
