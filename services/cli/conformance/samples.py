"""Answers for tools that nobody described: from an output schema where there is one.

Every answer carries a reference number that occurs nowhere else, by which it is recognised in what
the agent says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import orjson

_MAX_DEPTH = 8
_FORMATS = {
    "date-time": "2026-01-15T09:00:00Z",
    "date": "2026-01-15",
    "time": "09:00:00Z",
    "email": "jo@example.com",
    "uri": "https://example.com/",
    "uuid": "5f0c3a52-7f0e-4a57-9d0e-0d6d4f2f6c11",
}


def plain_object(reference: str) -> dict[str, Any]:
    """An answer that fits many tools and describes none."""
    return {"ok": True, "status": "done", "note": f"Reference {reference}"}


def text(reference: str) -> str:
    """Text that is no JSON and that careless handling would change."""
    return f'status: "done" <b>caf\u00e9 & co</b>\nReference {reference}\n'


def array(reference: str) -> list[Any]:
    """An answer with several rows."""
    return [{"status": "done", "note": f"Reference {reference}"}, {"status": "open", "note": ""}]


def tool_error(reference: str) -> dict[str, Any]:
    """What a tool says that failed."""
    message = f"The service did not answer. Reference {reference}"
    return {"error": {"code": "upstream_unavailable", "message": message}}


def from_schema(schema: str | None, reference: str) -> Any:
    """A value that fits an output schema; the plain object where none can be made."""
    fallback = plain_object(reference)
    if schema is None:
        return fallback
    try:
        document = orjson.loads(schema)
        value = _value(document, document, f"Reference {reference}", 0)
        fits = jsonschema_rs.validator_for(document, offline=True).is_valid(value)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
        return fallback
    # A schema which describes no more than that something is an object gets something to tell.
    return value if fits and value not in ({}, []) else fallback


def _value(schema: Any, root: Any, filler: str, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return filler
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _value(_resolved(reference, root), root, filler, depth + 1)
    if "const" in schema:
        return schema["const"]
    for key in ("examples", "enum", "anyOf", "oneOf", "allOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            if key in ("examples", "enum"):
                return options[0]
            return _value({**schema, key: None, **options[0]}, root, filler, depth + 1)
    return _typed(schema, root, filler, depth)


def _typed(schema: Mapping[str, Any], root: Any, filler: str, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: _value(part, root, filler, depth + 1) for name, part in properties.items()}
    if kind == "array":
        item = _value(schema.get("items", {}), root, filler, depth + 1)
        return [item] * max(1, int(schema.get("minItems", 1)))
    if kind in ("integer", "number"):
        return max(schema.get("minimum", 1), schema.get("exclusiveMinimum", 0) + 1)
    if kind == "boolean":
        return True
    if kind == "null":
        return None
    words = _FORMATS.get(schema.get("format", ""), filler)
    return words.ljust(int(schema.get("minLength", 0)), ".")[: schema.get("maxLength")]


def _resolved(reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        return {}
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if part and isinstance(found, Mapping):
            found = found.get(part.replace("~1", "/").replace("~0", "~"), {})
    return found
