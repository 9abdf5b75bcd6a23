"""Defining worlds: schemas from signatures, and what is refused when a world is defined."""

from __future__ import annotations

import random
import sys
import types
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from services.tool_proxy.world import (
    ArgumentsRefused,
    Context,
    ToolError,
    World,
    WorldError,
    load_worlds,
)
from tests.support.tool_proxy import make_world


class Line(BaseModel):
    sku: str
    count: int = 1


def context(state: dict[str, Any] | None = None) -> Context:
    return Context(state=state or {}, now=datetime(2026, 1, 1, tzinfo=UTC), random=random.Random(1),
                   call=1)  # fmt: skip


def test_a_tools_schema_comes_from_its_signature() -> None:
    world = World("shop")

    @world.tool(name="order-lines")
    def lines(
        ctx: Context,
        lines: list[Line],
        schema: Annotated[str, Field(description="Which one.", max_length=3)],
        speed: Literal["fast", "slow"] = "slow",
        copy: int | None = None,
    ) -> list[Line]:
        """Order lines of goods.

        Not part of the description.
        """
        assert copy is None
        assert (schema, speed) == ("abc", "slow")
        return lines

    (tool,) = world.tools
    assert (tool.name, tool.description) == ("order-lines", "Order lines of goods.")
    schema = tool.input_schema
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["lines", "schema"]
    assert list(schema["properties"]) == ["lines", "schema", "speed", "copy"]
    assert schema["properties"]["schema"] == {
        "description": "Which one.", "maxLength": 3, "type": "string",
    }  # fmt: skip
    assert schema["properties"]["speed"] == {
        "default": "slow", "enum": ["fast", "slow"], "type": "string",
    }  # fmt: skip
    assert tool.output_schema is not None
    assert tool.output_schema["type"] == "array"
    answer = tool(context(), b'{"lines": [{"sku": "x"}], "schema": "abc"}')
    assert answer == [{"sku": "x", "count": 1}]


def test_arguments_that_do_not_fit_the_signature_are_refused_with_their_path() -> None:
    tool = make_world().find("add_note")
    assert tool is not None
    with pytest.raises(ArgumentsRefused) as refused:
        tool(context({"notes": []}), b'{"text": "x", "kind": "fax"}')
    assert refused.value.path == "/kind"


def test_initial_state_is_a_copy_each_time() -> None:
    given = {"orders": {"1": {"status": "open"}}}
    world = World("shop", initial_state=given)
    given["orders"]["1"]["status"] = "changed"
    world.initial_state["orders"].clear()
    assert world.initial_state == {"orders": {"1": {"status": "open"}}}


def test_what_a_tool_returns_must_be_json() -> None:
    world = World("shop")

    @world.tool
    def bad(ctx: Context) -> Any:
        return object()

    with pytest.raises(TypeError):
        world.tools[0](context(), b"{}")


def _no_context(order_id: str) -> str:
    return order_id


def _starred(ctx: Context, *ids: str) -> str:
    return ids[0]


def _unannotated(ctx: Context, order_id) -> str:  # type: ignore[no-untyped-def]
    return str(order_id)


async def _coroutine(ctx: Context) -> str:
    return ""


def _no_schema(ctx: Context, value: types.CodeType) -> str:
    return str(value)


@pytest.mark.parametrize(
    ("function", "name", "complaint"),
    [
        (_no_context, "", "annotated as Context"),
        (_starred, "", "cannot come from a JSON object"),
        (_unannotated, "", "needs an annotation"),
        (_coroutine, "", "plain function"),
        (_no_schema, "", "_no_schema"),
        (_no_context, "9lives", "must match"),
    ],
)
def test_a_bad_tool_is_refused_when_it_is_defined(function: Any, name: str, complaint: str) -> None:
    with pytest.raises(WorldError, match=complaint):
        World("shop").tool(name=name)(function)


def test_repeated_tools_bad_names_and_states_are_refused() -> None:
    world = make_world()
    with pytest.raises(WorldError, match="two tools named crash"):

        @world.tool(name="crash")
        def other(ctx: Context) -> None:
            raise ToolError("x", "y")

    with pytest.raises(WorldError, match="must match"):
        World("no spaces")
    with pytest.raises(WorldError, match="not a JSON object"):
        World("shop", initial_state={"now": object()})


def test_only_configured_worlds_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("some_worlds")
    module.desk = make_world()  # type: ignore[attr-defined]
    module.other = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_worlds", module)
    assert list(load_worlds(["some_worlds:desk"])) == ["desk"]
    for specs, complaint in [
        (["some_worlds"], "package.module:attribute"),
        (["some_worlds:none"], "none"),
        (["some_worlds:other"], "expected a World"),
        (["no_such_module:x"], "no_such_module"),
        (["some_worlds:desk", "some_worlds:desk"], "another world named desk"),
    ]:
        with pytest.raises(WorldError, match=complaint):
            load_worlds(specs)
