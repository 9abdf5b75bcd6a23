"""One whole session in one process: every part is the real one, only the broker is a list.

    played = play(scenario, agent)
    played.events, played.score, played.agent_saw

The dispatcher's core says whose move it is, the user simulator's core plays the user, the tool
proxy answers calls, and the judge judges what is in the log afterwards.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.briefs import judge_brief
from schemas.registry import AgentRegistration, Suite, ToolRegistration
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from schemas.scores import DimensionScore, SessionScored
from schemas.trajectory import AGENT_TURN, SESSION_ENDED, AgentTurn, SessionEnded, TrajectoryEvent
from services.dispatcher.expansion import make_plan, started_event
from services.dispatcher.session_core import DispatcherCore, End, Post
from services.judge.core import judge_session
from services.tool_proxy.errors import Refused
from services.tool_proxy.recording import refusal
from services.tool_proxy.session import ProxyCore
from services.user_simulator.agenda import AgendaSimulator
from services.user_simulator.core import UserSimulatorCore, perform
from services.user_simulator.simulator import UserSimulator
from tests.support.tool_proxy import NOW_MS, Bench, MemoryLog, answer_of, make_world

TURNS = 40
CallTool = Callable[..., Awaitable[dict[str, Any]]]
"""`await call("get_order", order_id="1")` is the decoded reply."""
Agent = Callable[[str, CallTool], Awaitable[str | AgentTurn]]
"""What it answers to a user turn."""

SUITE = Suite(suite_hash="hash", name="desk", version="1", owner="desk-team", scenarios=())
REQUEST = RunRequest(run_id="run", suite="desk", agent_id="agent", seed=11)


def registration(**changes: Any) -> AgentRegistration:
    """The agent of these tests, with all tools of the world `desk`."""
    tools = tuple(
        ToolRegistration(name=tool.name, input_schema=json.dumps(tool.input_schema))
        for tool in make_world().tools
    )
    agent = AgentRegistration(
        agent_id="agent", name="desk-agent", endpoint="http://127.0.0.1:1/turn", tools=tools,
        actors=("planner", "worker"), build={"image": "desk:1", "model": "m"},
    )  # fmt: skip
    return replace(agent, **changes)


def scenario(**fields: Any) -> Scenario:
    """A scenario whose user asks where order 1 is, with these fields instead or on top."""
    document: dict[str, Any] = {
        "id": "case",
        "name": "A case",
        "world": {"name": "desk"},
        "user": {
            "personas": ["plain"],
            "facts": {"order_id": "1"},
            "goals": [
                {"say": ["Where is order {order_id}?"], "done_when": ["it (is|was) shipped"]}
            ],
        },
        "expect": {"calls": [{"tool": "get_order"}]},
    }
    return Scenario.model_validate({**document, **fields})


async def good_agent(text: str, call: CallTool) -> str:
    """Looks the order up, once more if it has to, and says what it found."""
    for _ in range(3):
        reply = await call("get_order", order_id="1")
        response = reply.get("response")
        if isinstance(response, dict) and "status" in response:
            return f"It is {response['status']}."
    return "I cannot reach the order system right now, please try again later."


@dataclass
class Played:
    """A session that is over."""

    events: list[TrajectoryEvent]
    score: SessionScored
    agent_saw: list[str] = field(default_factory=list)
    """User turns, and replies of the tool proxy."""

    def dimension(self, name: str) -> DimensionScore:
        return next(d for d in self.score.dimensions if d.dimension == name)


def start_of(one: Scenario, agent: AgentRegistration | None = None) -> TrajectoryEvent:
    """The event by which the coordinator starts the scenario's first session."""
    plan = make_plan(REQUEST, [one], can_improvise=True)
    planned = plan.phases[0].sessions[0]
    return started_event(REQUEST, plan, planned, SUITE, agent or registration(), NOW_MS)


def play(
    one: Scenario,
    agent: Agent = good_agent,
    *,
    simulator: UserSimulator | None = None,
    start: TrajectoryEvent | None = None,
) -> Played:
    """Play the scenario's first session to its end, and judge it."""
    return asyncio.run(_play(one, agent, simulator or AgendaSimulator(), start or start_of(one)))


async def _play(
    one: Scenario, agent: Agent, simulator: UserSimulator, start: TrajectoryEvent
) -> Played:
    log = MemoryLog(ProxyCore({"desk": make_world()}))
    bench = Bench(log=log)
    log.put(start)
    session = start.session_id
    saw: list[str] = []
    dispatcher, users = DispatcherCore(), UserSimulatorCore()
    state, side, known = dispatcher.start(start), users.start(start), 1

    def fold() -> None:
        nonlocal known
        events = log.events()
        for event in events[known:]:
            dispatcher.apply(state, event)
            users.apply(side, event)
        known = len(events)

    def add(event: TrajectoryEvent) -> None:
        log.put(event)
        fold()

    def event_of(step: str, kind: str, turn: int, **body: Any) -> TrajectoryEvent:
        return TrajectoryEvent(
            event_id=f"{session}:{step}", session_id=session, run_id=start.run_id, kind=kind,
            conversation=state.conversation, turn=turn, at_ms=NOW_MS, **body,
        )  # fmt: skip

    try:
        for _ in range(TURNS):
            action = dispatcher.wants(state)
            if isinstance(action, Post):
                text = state.pending[1] if state.pending else ""
                turn, conversation = action.turn, state.conversation

                async def call(tool: str, **arguments: Any) -> dict[str, Any]:
                    try:
                        reply = await bench.call(
                            tool, arguments, session_id=session, turn=turn,  # noqa: B023
                            conversation=conversation, posting=turn,  # noqa: B023
                        )  # fmt: skip
                    except Refused as refused:
                        reply = refusal(refused)
                    saw.append(reply.body.decode())
                    return answer_of(reply)

                saw.append(text)
                said = await agent(text, call)
                fold()
                answer = (
                    said
                    if isinstance(said, AgentTurn)
                    else AgentTurn(outcome="ok", final_response=said, dispatch_id=f"d{turn}")
                )
                add(event_of(f"a{turn}", AGENT_TURN, turn, agent_turn=answer))
            elif isinstance(action, End):
                ended = SessionEnded(
                    reason=action.reason, detail=action.detail, turns=state.posted,
                    tool_calls=state.tool_calls, injected=dict(state.injected),
                )  # fmt: skip
                add(event_of("end", SESSION_ENDED, state.posted, session_ended=ended))
                break
            else:
                for event in await perform(side, users.wants(side), simulator, bench.clock):
                    add(event)
        else:
            raise AssertionError("no end")
    finally:
        bench.close()
    events = log.events()
    return Played(events, await judge_session(events, judge_brief(one), 0), saw)


def judged(events: Sequence[TrajectoryEvent], one: Scenario) -> SessionScored:
    """The score of recorded events."""
    return asyncio.run(judge_session(events, judge_brief(one), 0))
