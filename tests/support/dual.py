"""Dual control: a phone whose airplane mode only its user can switch, and a line that only the
agent can refresh, which does something only while the phone is on the air."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.briefs import ToolBrief, ToolSpec, UserBrief
from schemas.trajectory import (
    USER,
    AgentTurn,
    Limits,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TrajectoryEvent,
    UserActed,
    UserTurn,
)
from schemas.user import Conversation, Persona, UserAction, UserGoal, UserTool
from schemas.world_setup import WorldSetup
from services.tool_proxy.world import Context, ToolError, World

NOW_MS = 1_800_000_000_000
PHONE = World("phone", initial_state={"airplane_mode": True, "refreshed": 0, "pin": "4711"})


@PHONE.user_tool
def set_airplane_mode(ctx: Context, on: bool) -> dict[str, Any]:
    """Switch airplane mode."""
    ctx.state["airplane_mode"] = on
    return {"airplane_mode": "on" if on else "off"}


@PHONE.user_tool
def unlock(ctx: Context, pin: str) -> str:
    """Unlock the phone."""
    if pin != ctx.state["pin"]:
        raise ToolError("wrong_pin", "That PIN is wrong.")
    return "unlocked"


@PHONE.user_tool
def roll(ctx: Context) -> dict[str, Any]:
    """Something random."""
    ctx.state["rolled"] = ctx.random.randrange(10**9)
    return {"rolled": ctx.state["rolled"]}


@PHONE.tool
def refresh_line(ctx: Context) -> dict[str, Any]:
    """Refresh the line; nothing comes of it while the phone is off the air."""
    if not ctx.state["airplane_mode"]:
        ctx.state["refreshed"] += 1
    return {"connected": not ctx.state["airplane_mode"]}


ACTIONS = (
    UserAction(
        when=(r"turn (it|airplane mode) off", r"airplane mode .*off"),
        tool="set_airplane_mode",
        arguments={"on": False},
        say=("I switched it. {response}.",),
    ),
    UserAction(when=(r"unlock",), tool="unlock", arguments={"pin": "{pin}"}),
)
GOAL = UserGoal(say=("I have no signal",), done_when=(r"you are connected",))


def user_brief(
    *, actions: Sequence[UserAction] = ACTIONS, style: str = "plain", seed: int = 1, **others: Any
) -> UserBrief:
    return UserBrief(
        persona=Persona(name=style, style=style, patience=4),
        conversations=(Conversation(goals=(GOAL,)),),
        tools=tuple(UserTool(name=name) for name in PHONE.user_tools()),
        actions=tuple(actions),
        seed=seed,
        **{"facts": {}, **others},
    )


def tool_brief(**others: Any) -> ToolBrief:
    """Every tool of the world is registered with the agent, the user's among them."""
    return ToolBrief(
        **{
            "world": WorldSetup(name="phone"),
            "tools": tuple(
                ToolSpec(name=tool.name, input_schema=tool.input_schema) for tool in PHONE.tools
            ),
            "user_tools": PHONE.user_tools(),
            "seed": 7,
            "calls_per_minute": 10_000,
            **others,
        }
    )


def event(step: str, turn: int = 0, *, session: str = "s1", **body: Any) -> TrajectoryEvent:
    (kind,) = body
    return TrajectoryEvent(
        event_id=f"{session}:{step}", session_id=session, run_id="run", kind=kind, turn=turn,
        at_ms=NOW_MS, **body,
    )  # fmt: skip


def started(
    user: UserBrief | None = None, tools: ToolBrief | None = None, session: str = "s1"
) -> TrajectoryEvent:
    body = SessionStarted(
        scenario_id="case", category="happy", trial=0, seed=7, suite="suite", suite_hash="h",
        agent_id="agent", agent_fingerprint="f", task_id=1, limits=Limits(),
        user_brief=(user or user_brief()).model_dump_json(),
        tool_brief=(tools or tool_brief()).model_dump_json(),
    )  # fmt: skip
    return event("start", session=session, session_started=body)


def says(turn: int, text: str = "hello", session: str = "s1", **more: Any) -> TrajectoryEvent:
    return event(f"u{turn}", turn, session=session, user_turn=UserTurn(text=text, **more))


def answers(turn: int, text: str, session: str = "s1") -> TrajectoryEvent:
    body = AgentTurn(outcome="ok", final_response=text)
    return event(f"a{turn}", turn, session=session, agent_turn=body)


def acts(
    call: int, turn: int, tool: str, arguments: str = "{}", session: str = "s1"
) -> TrajectoryEvent:
    body = UserActed(call=call, tool=tool, arguments=arguments)
    return event(f"c{call}", turn, session=session, user_acted=body)


def result(
    call: int, turn: int, tool: str, response: str = "{}", session: str = "s1", **more: Any
) -> TrajectoryEvent:
    body = ToolCalled(
        call=call, tool=tool, arguments="{}", response=response, source="odyssey",
        requestor=USER, **more,
    )  # fmt: skip
    return event(f"r{call}", turn, session=session, tool_called=body)


def ends(turn: int, session: str = "s1") -> TrajectoryEvent:
    return event("end", turn, session=session, session_ended=SessionEnded(reason="goal_met"))
