"""Tools lists: what is wrong with one, what is merely unwise, and what another library's would be.

Pure. Whether a list can be registered is decided by the loader of registrations; here its verdict
is put in words that help, for the shapes that other libraries give their tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.agent_loader import parse_agent
from schemas.errors import InvalidDocument
from schemas.registry import ToolRegistration

_SHELL = {"agent_id": "a", "name": "a", "endpoint": "http://127.0.0.1/"}
_INPUT = {
    "parameters": "OpenAI's",
    "params_json_schema": "the OpenAI Agents SDK's",
    "inputSchema": "MCP's",
    "args_schema": "LangChain's",
    "json_schema": "a model's",
}
_OUTPUT = ("outputSchema", "returns")
_DROPPED = ("type", "strict", "strict_json_schema", "cache_control", "annotations", "title")
_FIELDS = frozenset(
    ("name", "description", "input_schema", "output_schema", "mode", "target", "target_kind",
     "target_tool", "target_auth_header", "target_auth_ref", "target_timeout_s")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolsReport:
    """What there is to say about a tools list.

    Attributes:
        problems: Why it cannot be registered, a line each; the offending entries are named.
        smells: What is unwise about it, a line each; empty while there are problems.
        fixed: The list in Windtunnel's shape; None where nothing had to be rewritten.
        left: The problems that `fixed` still has.
        tools: The tools; empty while there are problems.
    """

    problems: tuple[str, ...]
    smells: tuple[str, ...] = ()
    fixed: list[Any] | None = None
    left: tuple[str, ...] = ()
    tools: tuple[ToolRegistration, ...] = ()


def examine_tools(value: Any) -> ToolsReport:
    """A tools list, or a document that has one under `tools`."""
    entries, problems = entries_of(value)
    if entries is None:
        return ToolsReport(problems)
    hints = [f"{_called(i, e)}: {hint}" for i, e in enumerate(entries) for hint in mistakes(e)]
    hints += problems
    if not hints:
        tools, found = _registered(entries)
        if found:
            return ToolsReport(found)
        return ToolsReport((), tuple(_smells(entries)), tools=tools)
    fixed = [converted(entry) for entry in entries]
    _, left = _registered(fixed)
    return ToolsReport((*hints, *left), fixed=fixed, left=left)


def entries_of(value: Any) -> tuple[list[Any] | None, tuple[str, ...]]:
    """The entries of a list in whatever wrapping, and what is wrong with the wrapping."""
    if isinstance(value, dict) and "tools" in value:
        value = value["tools"]
    if isinstance(value, dict) and isinstance(inner := value.get("function_declarations"), list):
        return inner, ("the list is below function_declarations, as Gemini has it: unwrap it",)
    if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
        named = [{"name": name, **tool} for name, tool in value.items()]
        return named, ("it is a mapping by name: write a list whose entries have a name",)
    if not isinstance(value, list):
        return None, (f"expected a list of tools, found {_kind(value)}",)
    return value, ()


def mistakes(entry: Any) -> list[str]:
    """What an entry has that is another library's way of writing it, a hint each."""
    if not isinstance(entry, dict):
        return []
    hints = []
    function = entry.get("function")
    if isinstance(function, dict):
        hints.append(
            "it is nested under `function`, as OpenAI's chat API has it: lift name, description "
            "and parameters to the top, the last as input_schema"
        )
        return hints
    if "input_schema" not in entry:
        for name, whose in _INPUT.items():
            if name in entry:
                hints.append(f"`{name}` is {whose} word: call it input_schema")
                break
    if isinstance(entry.get("input_schema"), str):
        hints.append("its input_schema is JSON in a text: write the object itself")
    hints += [f"`{name}`: call it output_schema" for name in _OUTPUT if name in entry]
    if extra := [name for name in _DROPPED if name in entry]:
        hints.append(f"`{', '.join(extra)}` means nothing here: leave it out")
    return hints


def converted(entry: Any) -> Any:
    """An entry in Windtunnel's shape, as far as it can be told."""
    if not isinstance(entry, dict):
        return entry
    function = entry.get("function")
    flat = dict(function) if isinstance(function, dict) else dict(entry)
    for name in _INPUT:
        if name in flat and "input_schema" not in flat:
            flat["input_schema"] = flat.pop(name)
    for name in _OUTPUT:
        if name in flat and "output_schema" not in flat:
            flat["output_schema"] = flat.pop(name)
    for name in ("input_schema", "output_schema"):
        flat[name] = _decoded(flat.get(name))
    kept = {n: v for n, v in flat.items() if n not in _DROPPED and v is not None}
    ordered = {name: kept[name] for name in ("name", "description") if name in kept}
    return ordered | kept


def _decoded(schema: Any) -> Any:
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except ValueError:
        return schema


def _registered(entries: list[Any]) -> tuple[tuple[ToolRegistration, ...], tuple[str, ...]]:
    """The tools as they would be registered, or why they would not."""
    text = json.dumps({**_SHELL, "tools": entries})
    try:
        document = parse_agent(text, "tools.json")
    except InvalidDocument as error:
        lines = []
        for problem in error.problems:
            at, dot, rest = problem.path.partition(".")
            number = at.removeprefix("tools[").removesuffix("]")
            where = problem.path
            if number.isdigit():
                where = _called(int(number), entries[int(number)]) + dot + rest
            lines.append(f"{where}: {problem.message}")
        return (), tuple(lines)
    return tuple(tool.registration() for tool in document.tools), ()


def _smells(entries: list[Mapping[str, Any]]) -> list[str]:
    lines = []
    for index, entry in enumerate(entries):
        schema = entry["input_schema"]
        found = []
        if not str(entry.get("description", "")).strip():
            found.append("has no description")
        if "object" not in _types(schema):
            found.append("has a schema that no arguments object fits")
        else:
            found += _open_ends(schema)
        if found:
            lines.append(f"{_called(index, entry)} {', '.join(found)}")
    return lines


def _types(schema: Mapping[str, Any]) -> list[Any]:
    kind = schema.get("type", "object")
    return kind if isinstance(kind, list) else [kind]


def _open_ends(schema: Mapping[str, Any]) -> list[str]:
    # What is combined of other schemas is closed and required in those.
    if any(name in schema for name in ("$ref", "allOf", "anyOf", "oneOf", "if")):
        return []
    found = []
    if schema.get("additionalProperties", True) not in (False,) and (
        schema.get("unevaluatedProperties", True) is not False
    ):
        found.append("takes arguments of any other name (additionalProperties is not false)")
    if schema.get("properties") and not schema.get("required"):
        found.append("requires none of its arguments")
    return found


def _called(index: int, entry: Any) -> str:
    name = None
    if isinstance(entry, dict):
        function = entry.get("function")
        name = entry.get("name") or (function.get("name") if isinstance(function, dict) else None)
    return f"tools[{index}] ({name})" if isinstance(name, str) else f"tools[{index}]"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", str: "a text", bool: "a boolean", type(None): "nothing"}
    return kinds.get(type(value), "a number")
