"""JSON Schema validation of arguments and responses. Nothing is ever fetched for a `$ref`."""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import jsonschema_rs
import orjson

MAX_VIOLATIONS = 20


class SchemaUnusable(Exception):
    """The schema is not a JSON Schema, or refers to something outside itself."""


class Violation(NamedTuple):
    """Where a value breaks its schema (JSON pointer), and which rule it breaks."""

    path: str
    rule: str
    message: str


@lru_cache(maxsize=1024)
def _validator(schema: bytes) -> Any:
    try:
        return jsonschema_rs.validator_for(orjson.loads(schema), offline=True)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise SchemaUnusable(str(error).partition("\n")[0]) from None


def violations(schema: bytes, value: Any) -> list[Violation]:
    """What is wrong with `value`, the first few things at most; empty when it is valid.

    Raises:
        SchemaUnusable: the schema, given as JSON text, cannot be used.
    """
    errors = _validator(schema).iter_errors(value)
    return [
        Violation(_pointer(e.instance_path), _pointer(e.schema_path), e.message[:500])
        for e in islice(errors, MAX_VIOLATIONS)
    ]


def _pointer(path: list[str | int]) -> str:
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
    return "".join(f"/{part}" for part in parts)[:500]
