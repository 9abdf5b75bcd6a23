"""Dual control through the real services: a user switches its phone, an agent its line."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from schemas.loader import parse_suite
from schemas.registry import AgentRegistration, ToolRegistration
from schemas.runs import RunRequest
from schemas.scores import SessionScored
from schemas.topics import AGENTS, RUN_REQUESTS, SCORES, SUITES, TRAJECTORIES
from schemas.trajectory import TrajectoryEvent
from services.runtime.bus import BusSettings
from services.runtime.service import Publication
from tests.support.dual import PHONE
from tests.support.http_server import serve
from tests.support.live import decoded, live_broker, live_services, publish

pytestmark = [pytest.mark.req("D01", "D02", "V05", "V14"), pytest.mark.timeout(180)]
T = TypeVar("T")
SECRET = "a secret of the tests, long enough"
SUITE = parse_suite(
    "name: phones\nversion: '1'\nowner: us\n",
    {
        "no-signal.yaml": """
scenario:
  id: no-signal
  name: No signal
  category: happy
  world: {name: phone}
  user:
    tools: [set_airplane_mode, roll]
    actions:
      - when: [airplane mode off]
        tool: set_airplane_mode
        arguments: {on: false}
        say: ["It is off. {response}"]
      - {when: [roll], tool: roll, say: ["It rolled {response}"]}
    goals:
      - say: [I have no signal]
        done_when: [you are connected]
  expect:
    end: [goal_met]
    state: {/airplane_mode: false, /refreshed: 1}
    calls: [{tool: refresh_line, times: 2}]
    no_calls: [{tool: set_airplane_mode}, {tool: roll}]
"""
    },
)


class Agent:
    """Refreshes the line in every turn, and asks the user for what only the user can do."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.app = Starlette(routes=[Route("/dispatch", self._turn, methods=["POST"])])

    async def _turn(self, request: Request) -> JSONResponse:
        body, token = await request.json(), request.headers.get("X-Pipelines-Run-Token")
        if token is None:
            return JSONResponse({"final_response": "Yes?"})  # asked who it is, before the run
        headers = {"X-Pipelines-Run-Token": token}
        async with httpx.AsyncClient(timeout=30) as client:
            tools = f"{body['odyssey_proxy_url']}/tools"
            called = await client.post(f"{tools}/refresh_line", json={}, headers=headers)
        self.asked.set()
        await asyncio.to_thread(self.go_on.wait, 60)
        connected = called.json()["response"]["connected"]
        text = "You are connected." if connected else "Turn airplane mode off, please, and roll."
        return JSONResponse({"final_response": text})


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[BusSettings]:
    with live_broker(tmp_path, partitions=1) as settings:
        yield settings


def eventually(attempt: Callable[[], T | None], what: str, timeout_s: float = 60) -> T:
    deadline = time.monotonic() + timeout_s
    while (found := attempt()) is None:
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.1)
    return found


def recorded(bus: BusSettings, run: str) -> list[TrajectoryEvent]:
    """The run's events as every reader counts them."""
    found: dict[str, TrajectoryEvent] = {}
    for event in decoded(bus, TRAJECTORIES, TrajectoryEvent):
        if event.run_id == run:
            found.setdefault(event.event_id, event)
    return list(found.values())


def has(bus: BusSettings, run: str, step: str) -> list[TrajectoryEvent]:
    def found() -> list[TrajectoryEvent] | None:
        events = recorded(bus, run)
        return events if any(event.step == step for event in events) else None

    return eventually(found, f"{step} of {run}")


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)


def content(events: list[TrajectoryEvent]) -> list[Any]:
    """What has to be equal in two runs of one seed: all but times, and who was asked when."""
    found = []
    for event in events:
        turn, said, called = event.user_turn, event.agent_turn, event.tool_called
        found.append((
            event.step, event.kind, event.turn,
            turn and (turn.text, turn.ending, turn.invalid), said and said.final_response,
            event.user_acted and (event.user_acted.tool, event.user_acted.arguments),
            called and (called.requestor, called.tool, called.arguments, called.response,
                        called.error_code, called.state_patch, called.state_hash),
            event.session_ended and (event.session_ended.reason, event.session_ended.tool_calls),
        ))  # fmt: skip
    return found


def test_user_and_agent_work_together_whoever_is_killed_in_between(
    bus: BusSettings, tmp_path: Path
) -> None:
    agent = Agent()
    settings = {"token_secret": SECRET, "worlds": "tests.support.dual:PHONE"}
    with serve(agent.app) as url, live_services(bus, tmp_path, **settings) as start:
        publish(
            bus,
            Publication(SUITES, SUITE.suite_hash, SUITE),
            Publication(AGENTS, "agent", _registration(url)),
        )
        for service in ("dispatcher", "judge"):
            start(f"services.{service}")
        processes = {name: start(f"services.{name}") for name in ("user_simulator", "tool_proxy")}
        agent.go_on.clear()
        publish(bus, Publication(RUN_REQUESTS, "one", _request("one")))
        eventually(lambda: agent.asked.wait(0.05) or None, "the agent is asked")
        # Nobody is there to do what the user is about to ask for.
        kill(processes["tool_proxy"])
        agent.go_on.set()
        assert "r1" not in {event.step for event in has(bus, "one", "c1")}
        # And then nobody to hear what came of it.
        kill(processes["user_simulator"])
        start("services.tool_proxy")
        assert "c2" not in {event.step for event in has(bus, "one", "r1")}
        start("services.user_simulator")
        events = has(bus, "one", "end")
        check_story(events)

        publish(bus, Publication(RUN_REQUESTS, "two", _request("two")))
        assert content(has(bus, "two", "end")) == content(events)
        scores = eventually(lambda: _scores(bus), "both are scored")
        for score in scores:
            assert (score.valid, score.passed) == (True, True), score


def check_story(events: list[TrajectoryEvent]) -> None:
    steps = [event.step for event in events]
    assert steps == [
        "start", "u1", "t1", "a1", "c1", "r1", "c2", "r2", "u2", "t2", "a2", "u3", "end",
    ]  # fmt: skip
    by_step = {event.step: event for event in events}
    results = [by_step[step].tool_called for step in ("r1", "r2")]
    assert all(one is not None and one.requestor == "user" for one in results)
    said = by_step["u2"].user_turn
    assert said is not None
    assert said.text.startswith("It is off. airplane_mode: off It rolled rolled: ")
    ended = by_step["end"].session_ended
    assert ended is not None
    assert (ended.reason, ended.turns, ended.tool_calls) == ("goal_met", 2, 2)


def _registration(url: str) -> AgentRegistration:
    tools = tuple(
        ToolRegistration(name=tool.name, input_schema=json.dumps(tool.input_schema))
        for tool in PHONE.tools
    )
    return AgentRegistration(
        agent_id="agent", name="agent", endpoint=f"{url}/dispatch", tools=tools
    )


def _request(run: str) -> RunRequest:
    return RunRequest(run_id=run, suite="phones", agent_id="agent", seed=5, baseline="none")


def _scores(bus: BusSettings) -> list[SessionScored] | None:
    scores = decoded(bus, SCORES, SessionScored)
    return scores if {score.run_id for score in scores} == {"one", "two"} else None
