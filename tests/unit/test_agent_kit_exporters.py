"""R25: tools lists from the tool objects of the real SDKs."""

from __future__ import annotations

import asyncio
import enum
import json
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import anthropic
import jsonschema_rs
import pydantic.v1
import pytest
import strands
from agents import Agent, FunctionTool, WebSearchTool, function_tool
from agents.tool_context import ToolContext
from langchain_core.tools import InjectedToolArg, InjectedToolCallId, StructuredTool, Tool
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, Field
from strands.models import Model
from strands.types.tools import ToolUse

from schemas.agent_document import ToolDocument
from services.agent_kit.exporters import ExportError, export_tools, load, main

ROOT = Path(__file__).parents[2]


class Kind(enum.Enum):
    EXPRESS = "express"
    NORMAL = "normal"


class Address(BaseModel):
    street: str
    country: Literal["DE", "CH"] = "DE"
    floor: int | None = None


class Parcel(BaseModel):
    weight_kg: float = Field(gt=0)
    to: Address


def ship(
    order_id: str,
    parcels: list[Parcel],
    kind: Kind = Kind.NORMAL,
    copies: int | None = 3,
    labels: dict[str, int] | None = None,
    sender: Address | None = None,
    note: str | None = None,
) -> str:
    """Ship an order.

    Args:
        order_id: Which one.
    """
    return json.dumps([order_id, len(parcels), str(kind), copies, labels, note])


PARCEL = {"weight_kg": 1.5, "to": {"street": "Weg 1", "country": "CH", "floor": 2}}
FULL = {
    "order_id": "7", "parcels": [PARCEL, PARCEL], "kind": "express", "copies": 1,
    "labels": {"a": 1}, "sender": {"street": "Weg 2", "country": "DE", "floor": None},
    "note": "ring twice",
}  # fmt: skip
NULLS = FULL | {"copies": None, "labels": None, "sender": None, "note": None}
LEAST = {"order_id": "7", "parcels": [{"weight_kg": 1, "to": {"street": "Weg 1"}}]}
WRONG = [
    FULL | {"order_id": None},
    FULL | {"parcels": [{"weight_kg": -1, "to": {"street": "Weg 1"}}]},
    FULL | {"parcels": [{"weight_kg": 1, "to": {"street": "Weg 1", "country": "FR"}}]},
    FULL | {"parcels": [{"weight_kg": 1, "to": {}}]},
    FULL | {"kind": "slow"},
    FULL | {"copies": "many"},
    FULL | {"sender": {"street": 1}},
    {key: value for key, value in FULL.items() if key != "parcels"},
]


def exported(source: Any) -> dict[str, Any]:
    """The only tool of a source, after the check that the registration makes of it."""
    (tool,) = export_tools(source)
    ToolDocument.model_validate(tool)
    return tool


def compare(source: Any, accepts: typing.Callable[[dict[str, Any]], bool], *, least: bool) -> None:
    """What the SDK accepts is valid by the exported schema, and what it refuses is not."""
    tool = exported(source)
    validator = jsonschema_rs.validator_for(tool["input_schema"])
    assert (tool["name"], tool["description"].splitlines()[0]) == ("ship", "Ship an order.")
    for arguments in [FULL, NULLS, *([LEAST] if least else [])]:
        assert accepts(arguments)
        assert list(map(str, validator.iter_errors(arguments))) == []
    for arguments in WRONG:
        assert not accepts(arguments)
        assert not validator.is_valid(arguments)
    assert tool["input_schema"]["properties"]["order_id"].get("description") in ("Which one.", None)


def openai_accepts(tool: FunctionTool) -> typing.Callable[[dict[str, Any]], bool]:
    def accepts(arguments: dict[str, Any]) -> bool:
        text = json.dumps(arguments)
        context = ToolContext(
            context=None, tool_name=tool.name, tool_call_id="c", tool_arguments=text
        )
        answer = asyncio.run(tool.on_invoke_tool(context, text))
        return "error" not in str(answer).lower()

    return accepts


@pytest.mark.req("R25", "R01")
def test_openai_agents() -> None:
    loose = function_tool(ship, strict_mode=False)
    compare([loose], openai_accepts(loose), least=True)

    # Strict mode has every parameter required: that is what the model is given, and gives.
    def strict_ship(order_id: str, parcels: list[Parcel], note: str | None = None) -> str:
        """Ship an order."""
        return order_id

    strict = function_tool(strict_ship)
    tool = exported([strict])
    assert tool["input_schema"] == strict.params_json_schema
    validator = jsonschema_rs.validator_for(tool["input_schema"])
    full = {"order_id": "7", "parcels": [PARCEL], "note": None}
    assert validator.is_valid(full)
    assert openai_accepts(strict)(full)
    assert not validator.is_valid({"order_id": "7", "parcels": [PARCEL]})


@pytest.mark.req("R25")
def test_an_openai_agent_and_its_output_schemas() -> None:
    @function_tool
    def locate(order_id: str) -> Address:
        """Find it."""
        return Address(street=order_id)

    def pick(order_id: str) -> str:
        return order_id

    given = {"type": "object", "properties": {"street": {"type": "string"}}}
    locate.output_json_schema = given
    triage = Agent(name="triage", tools=[locate])
    desk = Agent(name="desk", tools=[locate, function_tool(pick)], handoffs=[triage])
    notes: list[str] = []
    tools = export_tools(desk, note=notes.append)
    assert [tool["name"] for tool in tools] == ["locate", "pick"]
    assert tools[0]["output_schema"] == given
    assert "output_schema" not in tools[1]
    assert len(notes) == 1
    assert "desk" in notes[0]
    # Shared tools are exported once, and what leaves is a copy.
    assert export_tools([triage, desk], note=notes.append) == tools
    tools[0]["input_schema"].clear()
    assert locate.params_json_schema


@pytest.mark.req("R25")
def test_anthropic_parameters_and_decorated_functions() -> None:
    decorated = anthropic.beta_tool(ship)

    def accepts(arguments: dict[str, Any]) -> bool:
        try:
            decorated.call(arguments)
        except ValueError:
            return False
        return True

    compare([decorated], accepts, least=True)

    async def later(order_id: str) -> str:
        """Ask later."""
        return order_id

    assert exported([anthropic.beta_async_tool(later)])["input_schema"]["required"] == ["order_id"]
    model = anthropic.beta_tool(ship, input_schema=Parcel)
    assert exported([model])["input_schema"]["required"] == ["weight_kg", "to"]
    parameter: anthropic.types.ToolParam = {
        "name": "get_order",
        "description": "Look it up.",
        "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}},
        "cache_control": {"type": "ephemeral"},
    }
    assert export_tools([parameter]) == [
        {key: parameter[key] for key in ("name", "description", "input_schema")}  # type: ignore[literal-required]
    ]
    assert exported([{**parameter, "type": "custom"}])["name"] == "get_order"


@pytest.mark.req("R25")
def test_langchain() -> None:
    decorated = langchain_tool(ship)

    def accepts(arguments: dict[str, Any]) -> bool:
        try:
            decorated.invoke(arguments)
        except ValueError:
            return False
        return True

    compare([decorated], accepts, least=True)
    as_dict = StructuredTool.from_function(
        func=lambda **_: "", name="raw", description="", args_schema=Parcel.model_json_schema()
    )
    assert exported([as_dict])["input_schema"]["required"] == ["weight_kg", "to"]


@pytest.mark.req("R25")
def test_langchain_arguments_that_are_not_the_models() -> None:
    @langchain_tool
    def look_up(
        order_id: str,
        user_id: Annotated[str, InjectedToolArg],
        call_id: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Look it up."""
        return order_id

    assert list(exported([look_up])["input_schema"]["properties"]) == ["order_id"]


@pytest.mark.req("R25")
def test_langchain_old_models_and_single_arguments() -> None:
    class Old(pydantic.v1.BaseModel):
        order_id: str
        copies: int = 1

    old = StructuredTool.from_function(
        func=lambda **_: "", name="old", description="Old.", args_schema=Old
    )
    schema = exported([old])["input_schema"]
    assert (list(schema["properties"]), schema["required"]) == (
        ["order_id", "copies"],
        ["order_id"],
    )
    single = Tool(name="search", func=lambda text: text, description="Search.")
    arguments = {"__arg1": "lamp"}
    assert single.invoke(arguments) == "lamp"
    assert jsonschema_rs.validator_for(exported([single])["input_schema"]).is_valid(arguments)


class NoModel(Model):
    """An agent of Strands wants a model; none is asked anything here."""

    def update_config(self, **_: Any) -> None:
        raise NotImplementedError

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.mark.req("R25")
def test_strands() -> None:
    decorated = strands.tool(ship)

    def accepts(arguments: dict[str, Any]) -> bool:
        async def last() -> Any:
            use: ToolUse = {"toolUseId": "u", "name": "ship", "input": arguments}
            return [event async for event in decorated.stream(use, {})][-1]

        return "'status': 'success'" in str(asyncio.run(last()))

    compare([decorated], accepts, least=True)
    agent = strands.Agent(model=NoModel(), tools=[decorated], callback_handler=None)
    assert exported(agent) == exported([decorated])
    module = types.ModuleType("module_tool")
    module.TOOL_SPEC = {  # type: ignore[attr-defined]
        "name": "old_style", "description": "Old.",
        "inputSchema": {"json": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }  # fmt: skip
    assert exported([module])["input_schema"]["properties"] == {"a": {"type": "string"}}


@pytest.mark.req("R25")
def test_strands_keeps_a_given_schema_as_it_is() -> None:
    given = {"type": "object", "properties": {"copies": {"type": "integer", "default": 1}}}

    @strands.tool(inputSchema={"json": given})
    def ship_it(copies: int | None = 1) -> str:
        """Ship it."""
        return ""

    assert exported([ship_it])["input_schema"]["properties"]["copies"]["type"] == "integer"


@pytest.mark.req("R25")
def test_tools_as_data() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}}}
    output = {"type": "array"}
    plain = {"name": "t", "description": "T.", "input_schema": schema}
    for form in [
        {"type": "function", "function": {"name": "t", "description": "T.", "parameters": schema}},
        {"type": "function", "name": "t", "description": "T.", "parameters": schema},
        {"name": "t", "description": "T.", "inputSchema": {"json": schema}},
        {"toolSpec": {"name": "t", "description": "T.", "inputSchema": schema}},
        plain,
    ]:
        assert exported([form]) == plain
    assert exported([plain | {"output_schema": output}]) == plain | {"output_schema": output}
    bare = exported([{"type": "function", "function": {"name": "t"}}])
    assert bare["input_schema"] == {"type": "object", "properties": {}}


BROKEN: list[tuple[Any, str]] = [
    ([{"name": "a", "input_schema": {}}, object()], r"tools\[1\]: builtins\.object"),
    ([ship], r"tools\[0\]: ship is a plain function"),
    ([Parcel], r"Parcel is a class"),
    ([WebSearchTool()], r"tools\[0\]: 'web_search"),
    ([{"type": "web_search_20250305", "name": "web_search"}], r"'web_search' of type"),
    ([{"nom": "a"}], r"a mapping with \['nom'\]"),
    ([{"name": "get order", "input_schema": {}}], r"tools\[0\]: the name 'get order'"),
    ([{"name": "1st", "input_schema": {}}], "the name '1st'"),
    ([{"name": "a" * 129, "input_schema": {}}], "cannot be registered"),
    ([{"name": "é", "input_schema": {}}], "cannot be registered"),
    ([{"name": None, "input_schema": {}}], "the name None"),
    ([{"name": "a", "input_schema": {"type": "string"}}], r"tools\[0\] \(a\): expected a JSON"),
    ([{"name": "a", "input_schema": None}], r"tools\[0\] \(a\): expected a JSON"),
    ([{"name": "a", "input_schema": {"default": {1, 2}}}], r"tools\[0\] \(a\): .* no JSON form"),
    ([{"name": "a", "input_schema": {"maximum": float("nan")}}], "no JSON form"),
    (
        [{"name": "a", "input_schema": {}}, {"name": "a", "input_schema": {"required": []}}],
        r"tools\[1\]: another tool is named 'a'",
    ),
    ("get_order", "builtins.str"),
]


@pytest.mark.req("R25", "R01")
@pytest.mark.parametrize(("source", "message"), BROKEN)
def test_what_cannot_be_exported_is_named(source: Any, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        export_tools(source)


@pytest.mark.req("R25", "R01")
def test_names_of_the_sdks_own_objects_are_checked() -> None:
    sources = [
        function_tool(ship, name_override="ship it", strict_mode=False),
        anthropic.beta_tool(ship, name="ship it"),
        StructuredTool.from_function(func=ship, name="ship it"),
    ]
    for source in sources:
        with pytest.raises(ExportError, match="'ship it' cannot be registered"):
            export_tools([source])


@pytest.mark.req("R25")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "shop_agent.py").write_text(
        "from agents import Agent, function_tool\n"
        "@function_tool\n"
        "def get_order(order_id: str) -> str:\n"
        '    """Look it up: é."""\n'
        "    return ''\n"
        "class Shop:\n"
        "    agent = Agent(name='shop', tools=[get_order])\n"
        "def build_agent():\n"
        "    return Shop.agent\n"
        "def needs(what): ...\n"
        "async def later(): ...\n"
    )

    def run(reference: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "services.agent_kit.exporters", reference],
            cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "", "PYTHONUTF8": "1"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    done = run("shop_agent:build_agent")
    assert done.returncode == 0, done.stderr
    tools = json.loads(done.stdout)
    assert [(tool["name"], tool["description"]) for tool in tools] == [
        ("get_order", "Look it up: é.")
    ]
    sys.path.insert(0, str(tmp_path))
    try:
        assert main(["shop_agent:Shop.agent.tools"]) == 0
        assert json.loads(capsys.readouterr().out) == tools
        for reference, message in [
            ("shop_agent", "expected package.module:attribute"),
            ("shop_agent:nothing", "there is no 'nothing'"),
            ("shop_agent:needs", "a function with parameters"),
            ("shop_agent:later", "is asynchronous"),
            ("no_such_agent:x", "cannot be imported"),
        ]:
            assert main([reference]) == 1
            captured = capsys.readouterr()
            assert captured.out == ""
            assert message in captured.err
        assert load("shop_agent:build_agent").name == "shop"
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("shop_agent", None)


@pytest.mark.req("R25")
def test_no_sdk_is_imported_for_plain_data() -> None:
    code = (
        "import sys; sys.path.insert(0, {!r})\n"
        "import exporters\n"
        "assert exporters.export_tools([{{'name': 'a', 'input_schema': {{}}}}])\n"
        "found = {{'agents', 'anthropic', 'langchain_core', 'strands', 'pydantic', 'services'}}\n"
        "assert not found & set(sys.modules), found & set(sys.modules)\n"
    ).format(str(ROOT / "services/agent_kit"))
    subprocess.run([sys.executable, "-I", "-c", code], check=True, timeout=60)
