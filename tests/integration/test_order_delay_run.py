"""The order that is late, run: an agent over HTTP that reports flows, slots and actions to the
tool proxy over HTTP while it answers, and each type of assertion both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from schemas.briefs import UserBrief, judge_brief
from schemas.loader import parse_scenario
from schemas.registry import AgentRegistration, Suite
from schemas.runs import RunRequest
from schemas.scores import DimensionScore, SessionScored
from schemas.trajectory import (
    AGENT_TURN,
    SESSION_ENDED,
    TRACE,
    EndReason,
    SessionEnded,
    TrajectoryEvent,
)
from services.dispatcher.answers import answered
from services.dispatcher.expansion import make_plan, started_event
from services.dispatcher.session_core import DispatcherCore, End, Post
from services.judge.core import judge_session
from services.runtime.agents.client import AgentClient, TurnRequest
from services.tool_proxy.session import ProxyCore
from services.user_simulator.core import UserSimulatorCore, perform
from services.user_simulator.simulator import GOAL_MET, AgentSaid, History, UserMove
from tests.support.http_server import serve
from tests.support.proxy_server import Server, serving
from tests.support.services import FixedClock
from tests.support.tool_proxy import NOW_MS, MemoryLog
from tests.unit.test_judge_assertions_order_delay import CHANGES, IDENTITY, STATUS, Model, Turn

pytestmark = pytest.mark.req("S01", "S02", "S05", "R10", "R12")

FILE = Path(__file__).parents[1] / "support" / "scenarios" / "order_delay.yml"
SCENARIO = parse_scenario(FILE.read_text(), FILE.name)
SUITE = Suite(suite_hash="h", name="late", version="1", owner="me", scenarios=())
MAX_STEPS = 20


class Customer:
    """Says what the turns of the test say, and is content after the last."""

    def __init__(self, turns: tuple[Turn, ...]) -> None:
        self._says = [said for said, _, _ in turns]

    def pin(self) -> str:
        return "scripted/1"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        heard = sum(isinstance(entry, AgentSaid) for entry in history)
        return UserMove(self._says[heard]) if heard < len(self._says) else UserMove("", GOAL_MET)


@contextmanager
def agent(turns: tuple[Turn, ...]) -> Iterator[tuple[str, list[Any]]]:
    """An agent that reports each turn's events to the proxy it is given, and then answers. Yields
    its URL and what it is asked.
    """
    asked: list[Any] = []

    async def dispatch(request: Request) -> JSONResponse:
        body = await request.json()
        asked.append(body)
        _, told, reply = turns[len(asked) - 1]
        events = [{"type": "state", "payload": event} for event in told]
        token = request.headers["X-Pipelines-Run-Token"]
        async with httpx.AsyncClient() as client:
            if events:
                answer = await client.post(
                    f"{body['odyssey_proxy_url']}/trace",
                    json={"events": events},
                    headers={"Authorization": f"Bearer {token}"},
                )
                assert answer.status_code == 202, answer.text
        return JSONResponse({"final_response": reply})

    with serve(Starlette(routes=[Route("/turn", dispatch, methods=["POST"])])) as url:
        yield f"{url}/turn", asked


async def session(
    proxy: Server, url: str, turns: tuple[Turn, ...], seed: int
) -> list[TrajectoryEvent]:
    """Play one session of the scenario to its end; the events as they are in the log."""
    registered = AgentRegistration(agent_id="agent", name="late", endpoint=url)
    request = RunRequest(run_id=f"run{seed}", suite="late", agent_id="agent", seed=seed)
    plan = make_plan(request, [SCENARIO], can_improvise=True)
    start = started_event(request, plan, plan.phases[0].sessions[0], SUITE, registered, NOW_MS)
    log, client = proxy.log, AgentClient(4)
    log.put(start)
    dispatcher, users = DispatcherCore(), UserSimulatorCore()
    state, side, known = dispatcher.start(start), users.start(start), 1
    try:
        for _ in range(MAX_STEPS):
            events = [e for e in log.events() if e.session_id == start.session_id]
            for event in events[known:]:
                dispatcher.apply(state, event)
                users.apply(side, event)
            known = len(events)
            if state.ended is not None:
                return events
            wanted, move = dispatcher.wants(state), users.wants(side)
            if isinstance(wanted, End):
                ended = SessionEnded(reason=wanted.reason, detail=wanted.detail)
                log.put(_event(start, "end", SESSION_ENDED, state.posted, session_ended=ended))
            elif isinstance(wanted, Post):
                assert state.pending is not None
                turn = _posted(proxy, start, wanted.turn, state.pending[1])
                said = answered(await client.turn(registered, turn))
                step = f"a{wanted.turn}"
                log.put(_event(start, step, AGENT_TURN, wanted.turn, agent_turn=said))
            else:
                log.put(*await perform(side, move, Customer(turns), FixedClock(NOW_MS)))
    finally:
        await client.close()
    raise AssertionError("no end")


def _event(start: TrajectoryEvent, step: str, kind: str, turn: int, **body: Any) -> TrajectoryEvent:
    session_id = start.session_id
    return TrajectoryEvent(
        event_id=f"{session_id}:{step}", session_id=session_id, run_id=start.run_id, kind=kind,
        turn=turn, at_ms=NOW_MS, **body,
    )  # fmt: skip


def _posted(proxy: Server, start: TrajectoryEvent, turn: int, text: str) -> TurnRequest:
    session_id = start.session_id
    assert start.session_started is not None
    task_input = json.loads(start.session_started.task_input)
    token = proxy.token(session_id, turn=turn, dispatch_id=f"d{turn}", run_id=start.run_id)
    return TurnRequest(
        body={
            "task_id": 1, "run_id": 1, "agent_id": 1,
            "input": {"task_id": 1, "user_instruction": text, "input": task_input},
            "odyssey_proxy_url": proxy.base(session_id), "run_token_jti": f"jti-{session_id}",
        },
        run_token=token, proxy_url=proxy.base(session_id), run_id=1, task_id=1,
        jti=f"jti-{session_id}", idempotency_key=f"{session_id}:{turn}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def proxy() -> Iterator[Server]:
    with serving(MemoryLog(ProxyCore({}))) as running:
        yield running


def ran(
    proxy: Server, turns: tuple[Turn, ...], model: Model, seed: int
) -> tuple[SessionScored, DimensionScore, list[TrajectoryEvent], list[Any]]:
    with agent(turns) as (url, asked):
        events = asyncio.run(session(proxy, url, turns, seed))
    scored = asyncio.run(judge_session(events, judge_brief(SCENARIO), 0, model))
    gate = next(one for one in scored.dimensions if one.dimension == "assertions")
    return scored, gate, events, asked


def test_it_loads_runs_and_passes(proxy: Server) -> None:
    turns = (IDENTITY, STATUS)
    scored, gate, events, asked = ran(proxy, turns, Model(), 1)
    assert (scored.valid, scored.passed, scored.end_reason) == (True, True, EndReason.GOAL_MET)
    assert (gate.passed, gate.value) == (True, 1.0), gate.reason
    # The agent was given what the scenario sets up, and nothing of what is expected of it.
    assert [body["input"]["input"] for body in asked] == [SCENARIO.setup.initial_slots] * 2
    assert "goals" not in json.dumps(asked)
    # What it reported stands in the log, in its order, before the answer of its turn.
    reported = [json.loads(e.trace.payload) for e in events if e.trace is not None]
    assert reported == [event for _, told, _ in turns for event in told]
    kinds = [event.kind for event in events]
    assert kinds.index(TRACE) < kinds.index(AGENT_TURN)


@pytest.mark.parametrize("kind", CHANGES)
def test_each_type_of_assertion_fails_in_a_run_of_its_own(proxy: Server, kind: str) -> None:
    turns, model, expected = CHANGES[kind]
    seed = 2 + list(CHANGES).index(kind)
    scored, gate, _, _ = ran(proxy, turns, model, seed)
    failing = {kind for kind in CHANGES if f") {kind} fails: " in gate.reason}
    assert (scored.valid, scored.passed, failing) == (True, False, expected), gate.reason


def test_an_agent_that_reports_nothing_is_neither_passed_nor_failed_by_it(proxy: Server) -> None:
    silent: tuple[Turn, ...] = tuple((said, [], reply) for said, _, reply in (IDENTITY, STATUS))
    scored, gate, events, _ = ran(proxy, silent, Model(), 99)
    assert (scored.valid, scored.passed, gate.status) == (True, None, "unscored")
    assert not [event for event in events if event.kind == TRACE]
