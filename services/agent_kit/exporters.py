"""The tools list of a registration, from the tool objects of an agent SDK.

`python -m services.agent_kit.exporters package.module:attribute` prints it as JSON. The attribute
is a list of tools, an agent that has them, or a function without parameters that returns either.
Objects are told apart by what they offer; no SDK is imported here, and this file works alone.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import inspect
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")


class ExportError(ValueError):
    """An entry that cannot be exported; the message names it and says what to do."""


def export_tools(
    source: Any, *, note: Callable[[str], object] = warnings.warn
) -> list[dict[str, Any]]:
    """The registration's tools list: name, description, input_schema and, if any, output_schema.

    Args:
        source: a tool, a list of tools, an agent, or a list of agents. What two agents share is
            exported once.
        note: told what is left out on purpose, such as the tools of agents that are handed over to.

    Raises:
        ExportError: an entry is no tool, has no fit name, no usable schema, or another's name.
    """
    found: dict[str, dict[str, Any]] = {}
    for place, entry in _entries(source, "tools", note):
        tool = _exported(place, entry)
        if found.setdefault(tool["name"], tool) != tool:
            raise ExportError(f"{place}: another tool is named {tool['name']!r} already")
    return list(found.values())


def load(reference: str) -> Any:
    """What `package.module:attribute` stands for; a function is called for it.

    Raises:
        ExportError: there is no such thing.
    """
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise ExportError(f"expected package.module:attribute, found {reference!r}")
    try:
        value: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ExportError(f"{module_name} cannot be imported: {error}") from error
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise ExportError(f"{reference}: there is no {name!r}") from None
    if inspect.isroutine(value):
        if inspect.iscoroutinefunction(value):
            raise ExportError(f"{reference} is asynchronous; give a plain function")
        try:
            inspect.signature(value).bind()
        except TypeError:
            problem = "is a function with parameters: decorate it as a tool, or give one without"
            raise ExportError(f"{reference} {problem}") from None
        value = value()
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m services.agent_kit.exporters")
    parser.add_argument("reference", help="package.module:attribute; tools, an agent, or a factory")
    reference = parser.parse_args(arguments).reference
    try:
        tools = export_tools(load(reference), note=lambda text: print(text, file=sys.stderr))
    except ExportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(tools, indent=2, ensure_ascii=False))
    return 0


def _entries(source: Any, place: str, note: Callable[[str], object]) -> Iterator[tuple[str, Any]]:
    """The single tools within lists and agents, and where each stands."""
    registry = getattr(source, "tool_registry", None)
    if isinstance(source, (list, tuple)):
        for index, entry in enumerate(source):
            yield from _entries(entry, f"{place}[{index}]", note)
    elif registry is not None:  # a Strands agent
        for name, entry in {**registry.registry, **registry.dynamic_tools}.items():
            yield f"{place}.{name}", entry
    elif isinstance(getattr(source, "tools", None), (list, tuple)):  # an OpenAI agent
        for kept, what in (("handoffs", "the agents it hands over to"), ("mcp_servers", "MCP")):
            if getattr(source, kept, None):
                name = getattr(source, "name", place)
                note(f"{name}: tools of {what} are only exported where they are listed as well")
        yield from _entries(source.tools, f"{place}.tools", note)
    else:
        yield place, source


def _exported(place: str, entry: Any) -> dict[str, Any]:
    """One tool in the form of the registration, a copy throughout."""
    definition = None
    for reader in _READERS:
        if (definition := reader(entry)) is not None:
            break
    if definition is None:
        raise ExportError(f"{place}: {_unrecognised(entry)}")
    name = definition["name"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ExportError(
            f"{place}: the name {name!r} cannot be registered; expected a letter or _, then up to "
            "127 letters, digits, _ or -"
        )
    place = f"{place} ({name})"
    schema = definition["input_schema"]
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise ExportError(f"{place}: expected a JSON Schema of an arguments object")
    definition["description"] = definition["description"] or ""
    if definition["output_schema"] is None:
        del definition["output_schema"]
    try:
        plain: dict[str, Any] = json.loads(json.dumps(definition, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ExportError(f"{place}: its definition has no JSON form: {error}") from None
    return plain


def _definition(name: Any, description: Any, arguments: Any, output: Any = None) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "input_schema": arguments,
        "output_schema": output,
    }


def _mapping(entry: Any) -> dict[str, Any] | None:
    """Tools as data: Anthropic's and the registration's own form, OpenAI's two, and Strands'."""
    if not isinstance(entry, Mapping):
        return None
    inner = entry.get("function", entry.get("toolSpec", entry))
    if not isinstance(inner, Mapping) or "name" not in inner:
        return None
    given = (inner["name"], inner.get("description"))
    if "input_schema" in inner:
        return _definition(*given, inner["input_schema"], inner.get("output_schema"))
    if entry.get("type") == "function":
        return _definition(*given, inner.get("parameters") or _NOTHING)
    if "inputSchema" in inner:
        return _strands_spec(inner)
    return None


_NOTHING = {"type": "object", "properties": {}}


def _openai(entry: Any) -> dict[str, Any] | None:
    """OpenAI Agents SDK: FunctionTool. Its schema is the one that the model is given."""
    if not hasattr(entry, "params_json_schema"):
        return None
    output = getattr(entry, "output_json_schema", None)
    return _definition(entry.name, entry.description, entry.params_json_schema, output)


def _anthropic(entry: Any) -> dict[str, Any] | None:
    """Anthropic SDK: what beta_tool and beta_async_tool make of a function."""
    if inspect.isclass(entry) or not hasattr(entry, "input_schema"):
        return None
    to_dict = getattr(entry, "to_dict", None)
    return _mapping(to_dict()) if callable(to_dict) else None


def _langchain(entry: Any) -> dict[str, Any] | None:
    """LangChain: BaseTool. Arguments that are injected are not the caller's to give."""
    if inspect.isclass(entry) or not hasattr(entry, "args_schema"):
        return None
    schema = getattr(entry, "tool_call_schema", entry.args_schema)
    if entry.args_schema is None and list(getattr(entry, "args", ())) == ["tool_input"]:
        # A Tool of one unnamed string: models are given it under this name.
        argument = {"title": "__arg1", "type": "string"}
        schema = {"type": "object", "properties": {"__arg1": argument}, "required": ["__arg1"]}
    elif hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    elif hasattr(schema, "schema"):  # a model of pydantic 1
        schema = schema.schema()
    return _definition(entry.name, entry.description, schema)


def _strands(entry: Any) -> dict[str, Any] | None:
    """Strands: decorated functions, MCP tools, and modules with a TOOL_SPEC."""
    spec = getattr(entry, "tool_spec", None) or getattr(entry, "TOOL_SPEC", None)
    if not isinstance(spec, Mapping) or "inputSchema" not in spec:
        return None
    definition = _strands_spec(spec)
    model: Any = getattr(getattr(entry, "_metadata", None), "input_model", None)
    if hasattr(model, "model_json_schema"):
        _restore_null(definition["input_schema"], model.model_json_schema())
    return definition


def _strands_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    schemas: list[Any] = []
    for key in ("inputSchema", "outputSchema"):
        schema = spec.get(key)
        if isinstance(schema, Mapping) and isinstance(schema.get("json"), Mapping):
            schema = schema["json"]
        schemas.append(copy.deepcopy(schema))
    return _definition(spec.get("name"), spec.get("description"), *schemas)


def _restore_null(schema: dict[str, Any], full: Mapping[str, Any]) -> None:
    """Allow null again where Strands' specification drops it from optional parameters.

    It writes `int | None = 3` as an integer with a default, though the tool takes null.
    """
    for name, shown in schema.get("properties", {}).items():
        complete = full.get("properties", {}).get(name, {})
        branches = complete.get("anyOf", ())
        others = [branch for branch in branches if branch.get("type") != "null"]
        if len(branches) != 2 or len(others) != 1:
            continue
        rest = {key: value for key, value in complete.items() if key not in ("anyOf", "title")}
        dropped = {"title", "additionalProperties"}  # by Strands, from every property
        reduced = {k: v for k, v in {**rest, **others[0]}.items() if k not in dropped}
        if shown == reduced:
            schema["properties"][name] = {**rest, "anyOf": list(branches)}


def _unrecognised(entry: Any) -> str:
    if isinstance(entry, Mapping):
        name, kind = entry.get("name"), entry.get("type")
        if name is not None and kind is not None:
            return f"{name!r} of type {kind!r} is run by the model's provider; leave it out"
        return f"a mapping with {sorted(map(str, entry))} is no tool of a known form"
    if inspect.isclass(entry):
        return f"{entry.__name__} is a class; give an instance"
    if inspect.isroutine(entry):
        return f"{entry.__name__} is a plain function; give what the SDK's decorator makes of it"
    kind = type(entry)
    named = getattr(entry, "name", None)
    of = f"{named!r} of type " if isinstance(named, str) else ""
    return (
        f"{of}{kind.__module__}.{kind.__qualname__} is no tool of a known form that says what "
        "arguments it takes; leave out what the model's provider runs"
    )


_READERS: tuple[Callable[[Any], dict[str, Any] | None], ...] = (
    _mapping,
    _openai,
    _anthropic,
    _strands,
    _langchain,
)

if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())  # where the agent's module is, if this is run as a file
    sys.exit(main())
