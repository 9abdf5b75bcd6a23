"""Sessions in which tau2's tasks are played by a script, and what tau2 itself makes of them."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from schemas.briefs import judge_brief, split
from schemas.registry import AgentRegistration, ToolRegistration
from schemas.scenario import Scenario
from schemas.scores import Dimension, DimensionScore
from schemas.trajectory import (
    AGENT_TURN,
    USER_ACTED,
    USER_TURN,
    AgentTurn,
    TrajectoryEvent,
    UserActed,
    UserTurn,
)
from services.cli.tau2.importing import agent_tools, scenario_fields
from services.judge.core import judge_session
from services.runtime.tau2.domains import INITIAL, Domain
from services.runtime.tau2.package import is_installed, tau2
from tests.lanes import require_lane
from tests.support.proxy_server import Server
from tests.support.tool_proxy import CODEC, NOW_MS, Bench, ended, started

# What tau2's evaluator imports would look for prices on the network.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def require_tau2() -> None:
    require_lane("tau2", is_installed(), "make tau2")


@dataclass
class Played:
    """A session: our events, and the messages that tau2 would have of it."""

    events: list[TrajectoryEvent]
    messages: list[Any] = field(default_factory=list)


def scenario_of(of: Domain, task: Any) -> Scenario:
    return Scenario.model_validate(scenario_fields(of, task))


def registered(of: Domain) -> AgentRegistration:
    tools = tuple(
        ToolRegistration(
            name=tool["name"],
            description=tool["description"],
            input_schema=json.dumps(tool["input_schema"]),
        )
        for tool in agent_tools(of)
    )
    return AgentRegistration(agent_id="a", name="a", endpoint="http://agent", tools=tools)


def start_event(of: Domain, task: Any, session_id: str) -> TrajectoryEvent:
    briefs = split(scenario_of(of, task), registered(of), 7, calls_per_minute=10_000)
    return started(briefs.tool, session_id)


def turn(session_id: str, said: str | None = None) -> TrajectoryEvent:
    """The user's turn; with a text, the agent's."""
    kind = USER_TURN if said is None else AGENT_TURN
    return TrajectoryEvent(
        event_id=f"{session_id}:{'u' if said is None else 'a'}1", session_id=session_id,
        run_id="run", kind=kind, conversation=1, turn=1, at_ms=NOW_MS,
        user_turn=UserTurn(text="Hello.") if said is None else None,
        agent_turn=None if said is None
        else AgentTurn(outcome="ok", final_response=said, dispatch_id="d1"),
    )  # fmt: skip


def play(
    server: Server, of: Domain, task: Any, actions: Sequence[Any], said: str, session_id: str
) -> Played:
    """A session with the agent's actions, called over HTTP, and one thing that it says."""
    start = start_event(of, task, session_id)
    server.log.put(start)
    mark = len(server.log.records)
    messages: list[Any] = []
    for number, action in enumerate(actions):
        reply = server.call(action.name, action.arguments, session_id=session_id)
        response = reply.json().get("response", reply.text)
        messages += exchanged(number, action, response)
    calls = [CODEC.decode(TrajectoryEvent, record) for record in server.log.records[mark:]]
    server.log.put(ended(session_id))
    messages.append(tau2("data_model.message").AssistantMessage(role="assistant", content=said))
    events = [start, turn(session_id), *calls, turn(session_id, said), ended(session_id)]
    return Played(events, messages)


async def play_both(bench: Bench, of: Domain, task: Any, actions: Sequence[Any], said: str,
                    session_id: str) -> Played:  # fmt: skip
    """A session with the actions of agent and user, without HTTP: the user's are asked for on the
    log, as the user simulator asks."""
    start = start_event(of, task, session_id)
    bench.log.put(start)
    mark = len(bench.log.records)
    messages: list[Any] = []
    acted = 0
    for number, action in enumerate(actions):
        if action.requestor == "user":
            acted += 1
            bench.log.put(user_acted(session_id, acted, action))
            await bench.proxy.user_calls.perform(bench.log.table[session_id])
        else:
            await bench.call(action.name, action.arguments, session_id=session_id)
        event = CODEC.decode(TrajectoryEvent, bench.log.records[-1])
        called = event.tool_called
        assert called is not None
        assert (called.tool, called.requestor == "user") == (
            action.name, action.requestor == "user",
        )  # fmt: skip
        messages += exchanged(number, action, called.response)
    events = [CODEC.decode(TrajectoryEvent, record) for record in bench.log.records[mark:]]
    bench.log.put(ended(session_id))
    messages.append(tau2("data_model.message").AssistantMessage(role="assistant", content=said))
    return Played(
        [start, turn(session_id), *events, turn(session_id, said), ended(session_id)], messages
    )


def user_acted(session_id: str, ordinal: int, action: Any) -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id=f"{session_id}:q{ordinal}", session_id=session_id, run_id="run", kind=USER_ACTED,
        conversation=1, turn=1, at_ms=NOW_MS,
        user_acted=UserActed(
            call=ordinal, tool=action.name, arguments=json.dumps(action.arguments)
        ),
    )  # fmt: skip


def history_of(task: Any) -> list[Any]:
    """The messages that a task begins with."""
    return list((task.initial_state.message_history if task.initial_state else None) or [])


def exchanged(number: int, action: Any, response: Any) -> list[Any]:
    """tau2's messages of one call."""
    of = tau2("data_model.message")
    content = response if isinstance(response, str) else json.dumps(response)
    call = of.ToolCall(id=f"c{number}", name=action.name, arguments=action.arguments,
                       requestor=action.requestor)  # fmt: skip
    speaker = of.AssistantMessage if action.requestor == "assistant" else of.UserMessage
    return [
        speaker(role=action.requestor, tool_calls=[call]),
        of.ToolMessage(id=call.id, role="tool", content=content, requestor=action.requestor),
    ]


def without_last_write(of: Domain, actions: Sequence[Any]) -> list[Any]:
    """The actions without the last one that changes something."""
    environment = of.environment(INITIAL)
    kits = {"assistant": environment.tools, "user": environment.user_tools}
    for index in range(len(actions) - 1, -1, -1):
        one = actions[index]
        if kits[one.requestor].tool_type(one.name).value == "write":
            return [*actions[:index], *actions[index + 1 :]]
    return list(actions)


def our_score(scenario: Scenario, events: Sequence[TrajectoryEvent]) -> DimensionScore:
    """The gate `tau2_reward` of a session, as the judge gives it."""
    scored = asyncio.run(judge_session(events, judge_brief(scenario), at_ms=0))
    return next(one for one in scored.dimensions if one.dimension == Dimension.TAU2)


def simulation(task: Any, messages: Sequence[Any], trial: int = 0, ended: str = "user_stop") -> Any:
    """tau2's record of a session."""
    return tau2("data_model.simulation").SimulationRun(
        id=f"{task.id}/{trial}", task_id=task.id, start_time="2026-01-15", end_time="2026-01-15",
        duration=1.0, termination_reason=ended, messages=list(messages), trial=trial,
    )  # fmt: skip


def their_reward(
    of: Domain,
    task: Any,
    simulated: Any,
    constructor: Callable[..., Any] | None = None,
) -> Any:
    """tau2's `RewardInfo`; `constructor` instead of the one that reads the files each time."""
    evaluator = tau2("evaluator.evaluator")
    registry = type(evaluator.registry)
    found = constructor or evaluator.registry.get_env_constructor(of.name)
    with mock.patch.object(registry, "get_env_constructor", return_value=found):
        return evaluator.evaluate_simulation(
            simulated, task, evaluator.EvaluationType.ALL, False, of.name
        )


class SmallRetail:
    """Builds tau2's retail environment with all products, and only those users and orders that
    a session or its task mentions: nothing of the others is read or changed, and reading, copying
    and hashing all of them 684 times is most of what tau2's evaluator does."""

    def __init__(self) -> None:
        self._module = tau2("domains.retail.environment")
        self._whole = self._module.get_environment()

    def constructor(self, *mentioning: Any) -> Callable[..., Any]:
        """For sessions and tasks that mention no other ids than `mentioning`, any JSON."""
        ids = set(_texts(mentioning))
        db = self._whole.tools.db
        orders = {key: order for key, order in db.orders.items() if key in ids}
        ids |= {order.user_id for order in orders.values()}
        users = {key: user for key, user in db.users.items() if key in ids}
        packed = pickle.dumps((users, orders))

        def construct(solo_mode: bool = False) -> Any:
            users, orders = pickle.loads(packed)
            small = type(db)(products=db.products, users=users, orders=orders)
            return self._module.get_environment(db=small)

        return construct


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value[:1] in ("{", "["):
            yield from _texts(json.loads(value))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield name
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


@contextmanager
def pristine_vpn() -> Iterator[None]:
    """tau2 has one VPN for all sessions of a process, and breaks it: mend it afterwards."""
    kit = tau2("domains.telecom.user_tools").TelecomUserTools
    before = kit.default_vpn_details.model_copy(deep=True)
    try:
        yield
    finally:
        kit.default_vpn_details = before
