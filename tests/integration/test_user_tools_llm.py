"""V02, V06, dual control: a model that plays a user with tools, over real HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.briefs import UserBrief
from schemas.user import UserTool
from services.user_simulator.prompt import RESPONSE_FORMAT
from services.user_simulator.simulator import AgentSaid, History, UserAct, UserDid, UserSaid
from services.user_simulator.validity import checked
from tests.integration.test_user_simulator_llm import TOLD, Bench, bench, good, loop, provider, says

__all__ = ["bench", "loop", "provider"]  # fixtures
pytestmark = pytest.mark.timeout(180)

SCHEMA = {"type": "object", "properties": {"on": {"type": "boolean"}}}
USER: UserBrief = TOLD.model_copy(
    update={
        "tools": (
            UserTool(name="set_airplane_mode", description="Switch it.", input_schema=SCHEMA),
            UserTool(name="roll"),
        )
    }
)
ASKED: History = (UserSaid(1, "No signal."), AgentSaid(1, "Please turn airplane mode off."))


def reply(
    message: str = "", tool: str = "", arguments: Any = "", status: str = "continue"
) -> dict[str, Any]:
    return says(
        json.dumps({"message": message, "status": status, "tool": tool, "arguments": arguments})
    )


@pytest.mark.req("V02", "V03")
def test_a_model_is_told_its_tools_and_can_use_them(bench: Bench) -> None:
    move = bench.turn(reply(tool="set_airplane_mode", arguments='{"on": false}'), user=USER,
                      history=ASKED)  # fmt: skip
    assert move.act == UserAct("set_airplane_mode", '{"on": false}')
    assert (move.text, move.ending, move.invalid) == ("", None, None)
    assert move.usage is not None
    assert move.usage.input_tokens == 100
    assert checked(USER, ASKED, move) == move
    (body,) = bench.provider.bodies
    system = body["messages"][0]["content"]
    for part in ("- set_airplane_mode: Switch it. Its arguments: ", json.dumps(SCHEMA), "- roll"):
        assert part in system
    assert system.count("Write exactly one JSON object") == 1
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["message", "status", "tool", "arguments"]
    assert schema["properties"]["tool"]["enum"] == ["", "set_airplane_mode", "roll"]
    assert set(schema["properties"]) == set(schema["required"])


@pytest.mark.req("V02", "V03")
def test_it_sees_what_came_of_it_before_it_goes_on(bench: Bench) -> None:
    seen: History = (*ASKED, UserDid(1, "set_airplane_mode", '{"on": false}', '{"state": "off"}'))
    move = bench.turn(reply("It is off now."), user=USER, history=seen)
    assert (move.text, move.act) == ("It is off now.", None)
    messages = bench.provider.bodies[0]["messages"]
    assert [m["role"] for m in messages[1:]] == ["user", "assistant", "user", "assistant", "user"]
    assert json.loads(messages[-2]["content"]) == {
        "message": "", "status": "continue", "tool": "set_airplane_mode",
        "arguments": '{"on": false}',
    }  # fmt: skip
    assert messages[-1]["content"] == '[set_airplane_mode: {"state": "off"}]'
    # Another draw than that of the act before it in the same turn, and the same each time.
    bench.turn(reply("x"), user=USER, history=seen)
    bench.turn(reply("x"), user=USER, history=ASKED)
    seeds = [body["seed"] for body in bench.provider.bodies]
    assert seeds[0] == seeds[1] != seeds[2]


@pytest.mark.req("V06")
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (reply(tool="refresh_line"), "there is no refresh_line"),
        (reply(tool="roll", arguments="[1]"), "expected a JSON object"),
        (reply(tool="roll", arguments="{"), "expected a JSON object"),
        (reply(), "empty, although status is continue"),
    ],
)
def test_what_is_no_call_is_asked_for_again_and_then_invalid(
    bench: Bench, bad: dict[str, Any], why: str
) -> None:
    move = bench.turn(bad, reply(tool="roll", arguments={}), user=USER, history=ASKED)
    assert move.act == UserAct("roll", "{}")
    assert why in bench.provider.bodies[1]["messages"][-1]["content"]
    assert '"tool" and "arguments"' in bench.provider.bodies[1]["messages"][-1]["content"]
    never = bench.turn(bad, bad, bad, user=USER, history=ASKED)
    assert why in (never.invalid or "")


def test_a_user_without_tools_is_asked_as_before(bench: Bench) -> None:
    bench.turn(good(), history=ASKED)
    (body,) = bench.provider.bodies
    assert body["response_format"] == RESPONSE_FORMAT
    assert "tool" not in body["messages"][0]["content"]
