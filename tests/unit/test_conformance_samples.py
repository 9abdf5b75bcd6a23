"""What the conformance kit makes up, and how it tells arguments from a wrapper around them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from services.cli.conformance import calls, samples
from services.cli.conformance.documentation import documentation
from services.cli.conformance.recording import Seen

NUMBER = "RF-0000000001"


@pytest.mark.req("R03")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}},
        {"properties": {"when": {"type": "string", "format": "date-time"}, "id": {}}},
        {"type": "array", "items": {"type": "string"}, "minItems": 3},
        {"type": "string", "maxLength": 30},
        {"type": "string", "minLength": 60},
        {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "id": {"type": "string"}}},
        {"type": "object", "properties": {"v": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"v": {"type": ["null", "string"]}}},
        {"type": "object", "properties": {"n": {"type": "number", "exclusiveMinimum": 5},
                                          "s": {"type": "string"}}},
        {"$defs": {"o": {"type": "object", "properties": {"s": {"type": "string"}}}},
         "type": "array", "items": {"$ref": "#/$defs/o"}},
    ],
)  # fmt: skip
def test_an_answer_fits_its_schema_and_can_be_recognised(schema: dict[str, Any]) -> None:
    value = samples.from_schema(json.dumps(schema), NUMBER)
    assert jsonschema_rs.is_valid(schema, value)
    assert NUMBER in json.dumps(value)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        "{",
        "{}",
        '{"type": "object"}',
        '{"type": "string", "pattern": "^[0-9]{4}$"}',
        '{"$ref": "http://127.0.0.1:1/schema"}',
        '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["b"]}',
        '{"type": "unheard-of"}',
        '{"type": "integer", "minimum": 5, "maximum": 4}',
    ],
)
def test_where_none_can_be_made_there_is_a_plain_one(schema: str | None) -> None:
    value = samples.from_schema(schema, NUMBER)
    if schema == "{}":
        assert value == f"Reference {NUMBER}"
    else:
        assert value == samples.plain_object(NUMBER)


def test_every_answer_carries_its_reference() -> None:
    for make in (samples.plain_object, samples.text, samples.array, samples.tool_error):
        assert NUMBER in json.dumps(make(NUMBER))  # type: ignore[operator]
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(samples.text(NUMBER))


@pytest.mark.req("R02")
@pytest.mark.parametrize(
    ("arguments", "wrapper"),
    [
        ({"order_id": "1"}, ""),
        ({}, ""),
        ({"arguments": {"order_id": "1"}}, "arguments"),
        ({"name": "get_order", "arguments": {"order_id": "1"}}, "arguments"),
        ({"id": "c1", "type": "function", "arguments": '{"order_id": "1"}'}, "arguments"),
        ({"input": {"order_id": "1"}}, "input"),
        ({"kwargs": {}}, "kwargs"),
        ({"input": "a text to summarise"}, ""),
        ({"input": {"a": 1}, "order_id": "1"}, ""),
        ({"args": {}, "kwargs": {}}, ""),
    ],
)
def test_a_wrapper_is_told_from_arguments(arguments: dict[str, Any], wrapper: str) -> None:
    assert calls.wrapped_in(seen(arguments), {}) == wrapper
    # What the tool's own schema declares is an argument, whatever it is called.
    declared = {"get_order": {"properties": {name: {} for name in arguments}}}
    assert calls.wrapped_in(seen(arguments), declared) == ""


def seen(arguments: dict[str, Any]) -> Seen:
    return Seen(
        at=0, method="POST", path="/tools/get_order", query="", kind="tool", tool="get_order",
        actor=None, headers=(), tokens=frozenset(), run_id="r", arguments=arguments,
    )  # fmt: skip


def test_the_documentation_is_the_catalogue() -> None:
    document = Path(__file__).parents[2] / "docs" / "conformance.md"
    assert document.read_text() == documentation(), (
        "run python -m services.cli.conformance.documentation > docs/conformance.md"
    )
