"""What docs/worlds.md shows is run."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.loader import parse_scenario
from services.tool_proxy.world import Context, ToolError, World

pytestmark = pytest.mark.req("V05")

PAGE = (Path(__file__).parents[2] / "docs/worlds.md").read_text()
NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def shown() -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "shown"}
    exec("\n".join(blocks("python")), namespace)
    return namespace


def call(world: World, ctx: Context, tool: str, **arguments: Any) -> Any:
    found = world.find(tool)
    assert found is not None
    return world.call(found, ctx, orjson.dumps(arguments))


def context(state: Any) -> Context:
    return Context(state, NOW, random.Random(1), 1)


def test_the_shop(shown: dict[str, Any]) -> None:
    shop = shown["shop"]
    ctx = context(shop.initial_state)
    assert call(shop, ctx, "get_order", order_id="7")["total"] == 12.5
    assert call(shop, ctx, "cancel_order", order_id="7", reason="late") == {"cancelled": "7"}
    with pytest.raises(ToolError, match="Only open orders can be cancelled"):
        call(shop, ctx, "cancel_order", order_id="7", reason="late")
    assert ctx.state["mails"] == [{"about": "7", "at": "2026-03-01T09:00:00+00:00", "note": ""}]


def test_the_bank_as_its_scenario_has_it(shown: dict[str, Any]) -> None:
    bank = shown["bank"]
    setup = parse_scenario(blocks("yaml")[0], "bank.yaml").world
    assert setup is not None
    state = bank.seeded(setup.state, NOW, random.Random(1))
    assert state["tables"]["accounts"]["A"] == {"id": "A", "owner": "Ann", "cents": 20000}
    ctx = context(state)
    assert call(bank, ctx, "transfer", source="A", target="B", cents=5000) == {"transfer": 1}
    assert ctx.state["tables"]["accounts"]["A"]["cents"] == 15000
    assert ctx.state["tables"]["transfers"]["1"]["made_at"] == "2026-03-01 09:00:00"
    with pytest.raises(ToolError) as error:
        call(bank, ctx, "transfer", source="C", target="B", cents=1)
    assert error.value.code == "insufficient_funds"


def test_the_desk(shown: dict[str, Any]) -> None:
    desk = shown["desk"]
    ctx = context(desk.initial_state)
    assert call(desk, ctx, "read_file", path="todo.txt") == "call Ann\n"
    files = call(desk, ctx, "write_file", path="notes/new/a.txt", text="x")
    assert files == ["notes/2026.txt", "notes/new/a.txt", "todo.txt"]


@pytest.mark.parametrize("text", blocks("yaml"))
def test_the_scenarios(text: str) -> None:
    assert parse_scenario(text, "case.yaml").world is not None
