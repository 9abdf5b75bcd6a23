"""Tools lists as people bring them: what is wrong is named, foreign shapes are rewritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidDocument
from services.cli.doctor.documents import parse_document, read_document
from services.cli.doctor.tools import examine_tools
from services.cli.errors import CliError

pytestmark = pytest.mark.req("R24", "R01")

SCHEMA = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}},
    "required": ["order_id"],
    "additionalProperties": False,
}
GOOD = {"name": "get_order", "description": "An order.", "input_schema": SCHEMA}


def test_a_good_list_has_neither_problems_nor_smells() -> None:
    report = examine_tools([GOOD])
    assert report.problems == ()
    assert report.smells == ()
    assert [tool.name for tool in report.tools] == ["get_order"]


@pytest.mark.parametrize(
    ("entry", "hint"),
    [
        (
            {"type": "function", "function": {
                "name": "get_order", "description": "An order.", "parameters": SCHEMA}},
            "nested under `function`, as OpenAI's chat API has it",
        ),
        (
            {"type": "function", "name": "get_order", "description": "An order.",
             "parameters": SCHEMA, "strict": True},
            "`parameters` is OpenAI's word: call it input_schema",
        ),
        (
            {"name": "get_order", "description": "An order.", "params_json_schema": SCHEMA},
            "`params_json_schema` is the OpenAI Agents SDK's word",
        ),
        (
            {"name": "get_order", "description": "An order.", "inputSchema": SCHEMA,
             "annotations": {"readOnlyHint": True}},
            "`inputSchema` is MCP's word",
        ),
        (
            {"name": "get_order", "description": "An order.", "args_schema": SCHEMA},
            "`args_schema` is LangChain's word",
        ),
        ({**GOOD, "input_schema": json.dumps(SCHEMA)}, "JSON in a text"),
        ({**GOOD, "cache_control": {"type": "ephemeral"}}, "`cache_control` means nothing here"),
    ],
)  # fmt: skip
def test_other_libraries_shapes_are_recognised_and_rewritten(entry: Any, hint: str) -> None:
    report = examine_tools([GOOD | {"name": "other"}, entry])
    assert len(report.problems) >= 1
    assert all(line.startswith("tools[1] (get_order): ") for line in report.problems)
    assert any(hint in line for line in report.problems)
    assert report.left == ()
    assert report.fixed == [GOOD | {"name": "other"}, GOOD]
    assert examine_tools(report.fixed).problems == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "expected a list of tools, found a text"),
        ({"name": "x"}, "expected a list of tools, found an object"),
        (None, "expected a list of tools, found nothing"),
        ([{"name": "a b", "input_schema": SCHEMA}], "tools[0] (a b).name: "),
        ([GOOD, GOOD], "tools[1] (get_order).name: expected a name of its own"),
        ([{"name": "x"}], "tools[0] (x).input_schema: expected the field 'input_schema'"),
        ([{**GOOD, "input_schema": {"type": "strin"}}], "expected a valid JSON Schema"),
        ([{**GOOD, "mode": "passthrough"}], "tools[0] (get_order).target: "),
        ([GOOD, 3], "tools[1]: "),
        ([{**GOOD, "colour": "red"}], "unknown field 'colour'"),
    ],
)
def test_what_cannot_be_registered_names_the_entry(value: Any, message: str) -> None:
    report = examine_tools(value)
    assert any(message in line for line in report.problems), report.problems
    assert report.tools == ()


def test_lists_in_other_wrappings() -> None:
    assert examine_tools({"tools": [GOOD], "agent_id": "x"}).problems == ()
    gemini = {"function_declarations": [dict(GOOD)]}
    assert "as Gemini has it" in examine_tools(gemini).problems[0]
    assert examine_tools(gemini).fixed == [GOOD]
    by_name = {"get_order": {k: v for k, v in GOOD.items() if k != "name"}}
    assert "a mapping by name" in examine_tools(by_name).problems[0]
    assert examine_tools(by_name).fixed == [GOOD]


@pytest.mark.parametrize(
    ("change", "smell"),
    [
        ({"description": " "}, "has no description"),
        ({"input_schema": {**SCHEMA, "additionalProperties": True}}, "additionalProperties is not"),
        ({"input_schema": {**SCHEMA, "required": []}}, "requires none of its arguments"),
        ({"input_schema": {"type": "array"}}, "that no arguments object fits"),
        ({"input_schema": {}}, "additionalProperties is not false"),
    ],
)
def test_smells_are_no_problems(change: dict[str, Any], smell: str) -> None:
    report = examine_tools([{**GOOD, **change}])
    assert report.problems == ()
    (line,) = report.smells
    assert line.startswith("tools[0] (get_order) ")
    assert smell in line


def test_schemas_that_close_themselves_in_another_way_do_not_smell() -> None:
    closed = {"type": "object", "unevaluatedProperties": False}
    assert examine_tools([{**GOOD, "input_schema": closed}]).smells == ()
    assert examine_tools([{**GOOD, "input_schema": {"$ref": "#/$defs/a", "$defs": {"a": SCHEMA}}}]
                         ).smells == ()  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["name", "function", "tools", "input_schema", "parameters", "type", "x"]),
        inner, max_size=4),
)  # fmt: skip


@given(JSON)
def test_anything_gets_a_report(value: Any) -> None:
    report = examine_tools(value)
    assert report.problems or isinstance(report.tools, tuple)
    if report.fixed is not None and not report.left:
        assert examine_tools(report.fixed).problems == ()


def test_documents_may_be_lists_in_json_and_yaml() -> None:
    assert parse_document("[1, 2]", "x.txt") == [1, 2]
    assert parse_document("- a: 1\n- b\n", "x.yaml") == [{"a": 1}, "b"]
    assert parse_document("# why\n---\n- a\n", "x.yaml") == ["a"]
    assert parse_document("tools:\n- a\n", "x.yaml") == {"tools": ["a"]}


@pytest.mark.parametrize(
    ("text", "file", "place"),
    [
        ("[1,", "x.json", "x.json:1:4"),
        ('[{"a": 1, "a": 2}]', "x.json", "'a' stands twice"),
        ("# list\n- a: 1\n- {b: \n", "x.yaml", "x.yaml:"),
        ("- a: 1\n  a: 2\n", "x.yaml", "x.yaml:2:3"),
        ("- *x\n", "x.yaml", "x.yaml:1:3"),
    ],
)
def test_documents_that_cannot_be_read_tell_the_place(text: str, file: str, place: str) -> None:
    with pytest.raises(InvalidDocument, match=r"x\.") as caught:
        parse_document(text, file)
    assert place in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="cannot be read"):
        read_document(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'["\xe9"]')
    with pytest.raises(CliError, match="not UTF-8 text: byte 2"):
        read_document(tmp_path / "latin.json")
