"""Whole sessions in one process: the real simulators, agent and judge, without broker or sockets.

What the services' shells do between them is a loop here; every part that decides something is
the product's own. Waiting is skipped, so injected delays and backoff cost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from deploy.demo.agent import create_app
from deploy.demo.builds import BUILDS
from deploy.demo.register import AGENT_NAME, agent_registration
from deploy.demo.world import world
from schemas.briefs import judge_brief
from schemas.loader import scenario_of
from schemas.registry import Suite
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from schemas.scores import SessionScored
from schemas.trajectory import (
    AGENT_TURN,
    SESSION_ENDED,
    AgentTurn,
    SessionEnded,
    TrajectoryEvent,
)
from services.cli.suites import read_suite
from services.dispatcher.expansion import Plan, Planned, make_plan, started_event
from services.dispatcher.session_core import DispatcherCore, End, Post
from services.judge.core import judge_session
from services.tool_proxy.answer import Call, Outcome, execute
from services.tool_proxy.recording import event_of, reply_of
from services.tool_proxy.repeats import Repeats, arrived, recorded_call
from services.tool_proxy.session import Posting, ProxyCore, likeness
from services.tool_proxy.session import SessionState as ProxyState
from services.user_simulator.agenda import AgendaSimulator
from services.user_simulator.core import UserSimulatorCore, perform
from services.user_simulator.replay import ReplaySimulator

SUITE = Path(__file__).parents[2] / "deploy" / "demo" / "suite"
TOKEN = "agent-token"


def demo_suite() -> Suite:
    """The demo's suite as it stands in the tree."""
    return read_suite(SUITE)


class StandingClock:
    """A clock that does not move: no verdict may depend on it."""

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        return None


@dataclass
class Session:
    """One session's log and its world."""

    events: list[TrajectoryEvent]
    proxy: ProxyState
    repeats: Repeats = field(default_factory=Repeats)
    turn: int = 0
    conversation: int = 1
    postings: int = 0

    @property
    def posting(self) -> Posting:
        return Posting(self.postings, f"d{self.postings}")


@dataclass
class Played:
    """A finished session: what happened and what it scored."""

    scenario: Scenario
    events: tuple[TrajectoryEvent, ...]
    scored: SessionScored

    def failed(self) -> dict[str, str]:
        """The failed gates with their reasons; the session's invalidity under `invalid`."""
        gates = {
            d.dimension: d.reason
            for d in self.scored.dimensions
            if d.kind == "gate" and d.status != "not_applicable" and d.passed is not True
        }
        if not self.scored.valid:
            gates["invalid"] = self.scored.invalid_reason
        return gates

    def transcript(self) -> str:
        """The session for people."""
        lines = [f"--- {self.scenario.id} seed {self.events[0].session_started.seed}"]  # type: ignore[union-attr]
        for event in self.events:
            if event.user_turn:
                lines.append(f"USER  {event.user_turn.text} [{event.user_turn.ending or ''}]")
            elif event.agent_turn:
                lines.append(f"AGENT {event.agent_turn.final_response}")
            elif event.tool_called:
                call = event.tool_called
                lines.append(f"  {call.tool} {call.arguments} -> {call.response[:120]}")
            elif event.session_ended:
                lines.append(f"END   {event.session_ended.reason} {event.session_ended.detail}")
        return "\n".join([*lines, f"FAILED {self.failed()}"])


class Offline:
    """Plays sessions of a suite against one build of the demo agent."""

    def __init__(
        self,
        suite: Suite,
        build: str,
        *,
        repost: bool = False,
        make_app: Callable[..., Starlette] = create_app,
    ) -> None:
        """`repost`: every turn is posted twice, as after a crash of the dispatcher. `make_app`:
        makes the agent, as `create_app` does."""
        self._suite, self._repost = suite, repost
        self.scenarios = [scenario_of(entry) for entry in suite.scenarios]
        self._agent = agent_registration("demo", AGENT_NAME, "http://agent/dispatch", build)
        self._proxy_core = ProxyCore({world.name: world})
        self._dispatcher, self._users = DispatcherCore(), UserSimulatorCore()
        self._sessions: dict[str, Session] = {}
        self._clock = StandingClock()
        to_proxy = httpx.AsyncClient(transport=httpx.MockTransport(self._tool_call))
        app = make_app(
            BUILDS[build], TOKEN, clients=[to_proxy],
            sleep=self._clock.sleep, monotonic=self._clock.monotonic,
        )  # fmt: skip
        self._to_agent = httpx.AsyncClient(transport=httpx.ASGITransport(app=app))

    async def run(self, seed: int, scenarios: Sequence[str] = (), trials: int = 1) -> list[Played]:
        """All sessions that a run request with this seed asks for."""
        request = RunRequest(
            run_id=f"run{seed}", suite=self._suite.name, agent_id="demo", seed=seed,
            trials=trials, scenarios=tuple(scenarios),
        )  # fmt: skip
        plan = make_plan(request, self.scenarios, can_improvise=False)
        return [
            await self._play(request, plan, planned)
            for phase in plan.phases
            for planned in phase.sessions
        ]

    async def _play(self, request: RunRequest, plan: Plan, planned: Planned) -> Played:
        start = started_event(request, plan, planned, self._suite, self._agent, 0)
        session = Session([start], self._proxy_core.start(start))
        self._sessions[planned.session_id] = session
        dispatcher, user = self._dispatcher.start(start), self._users.start(start)
        folded = 1
        while dispatcher.ended is None:
            for event in session.events[folded:]:
                self._dispatcher.apply(dispatcher, event)
                if event.kind in ("user_turn", "agent_turn", "session_ended"):
                    self._users.apply(user, event)
            folded = len(session.events)
            wanted, says = self._dispatcher.wants(dispatcher), self._users.wants(user)
            if isinstance(wanted, End):
                session.events.append(_ended(start, dispatcher, wanted))
            elif isinstance(wanted, Post):
                session.turn, session.conversation = wanted.turn, dispatcher.conversation
                text = dispatcher.pending[1] if dispatcher.pending else ""
                for _ in range(1 + self._repost):
                    answer = await self._post(session, start, text, list(dispatcher.history))
                session.events.append(answer)
            elif dispatcher.ended is None and says is not None:
                session.events += await perform(
                    user, says, ReplaySimulator(AgendaSimulator()), self._clock
                )
            elif dispatcher.ended is None:
                raise AssertionError("nobody wants to go on")
        del self._sessions[planned.session_id]
        scenario = plan.scenarios[planned.scenario_id]
        scored = await judge_session(session.events, judge_brief(scenario), 0)
        return Played(scenario, tuple(session.events), scored)

    async def _post(
        self, session: Session, start: TrajectoryEvent, text: str, history: list[dict[str, str]]
    ) -> TrajectoryEvent:
        assert start.session_started is not None
        session.postings += 1
        reply = await self._to_agent.post(
            "http://agent/dispatch",
            headers={
                "Authorization": f"Bearer {TOKEN}",
                "X-Pipelines-Run-Token": start.session_id,
            },
            json={
                "task_id": 1, "run_id": 1, "agent_id": 1,
                "input": {
                    "task_id": 1,
                    "user_instruction": text,
                    "input": json.loads(start.session_started.task_input),
                },
                "odyssey_proxy_url": f"http://proxy/{start.session_id}",
                "run_token_jti": "jti",
                "session": {
                    "id": start.session_id, "conversation": session.conversation,
                    "turn": session.turn, "history": history,
                },
            },
        )  # fmt: skip
        reply.raise_for_status()
        body = reply.json()
        return TrajectoryEvent(
            event_id=f"{start.session_id}:a{session.turn}",
            session_id=start.session_id,
            run_id=start.run_id,
            kind=AGENT_TURN,
            conversation=session.conversation,
            turn=session.turn,
            at_ms=0,
            agent_turn=AgentTurn(
                outcome="ok",
                final_response=body["final_response"],
                messages=json.dumps(body["messages"]),
                metadata=json.dumps(body["metadata"]),
            ),
        )

    async def _tool_call(self, request: httpx.Request) -> httpx.Response:
        session_id, _, tool = request.url.path.strip("/").partition("/tools/")
        assert request.headers["Authorization"] == f"Bearer {session_id}"
        session = self._sessions[session_id]
        state, raw = session.proxy, request.content.decode()
        arguments: dict[str, Any] = json.loads(raw)
        key = request.headers["Idempotency-Key"]
        arrived(state, session.repeats, session.turn, session.posting)
        called = recorded_call(
            state, session.repeats, turn=session.turn, posting=session.posting,
            alike=likeness(tool, arguments), idempotency_key=key,
        )  # fmt: skip
        if called is None:
            assert session.repeats.newest is None or not self._repost or session.postings % 2, (
                "a turn that is posted again must not make a new call"
            )
            call = Call(
                tool=tool, raw=raw, arguments=arguments, posting=session.posting,
                turn=session.turn, conversation=session.conversation, idempotency_key=key,
            )  # fmt: skip
            outcome = execute(state, call)
            assert isinstance(outcome, Outcome)
            event = event_of(state, call, outcome, at_ms=0, latency_ms=outcome.delay_ms)
            self._proxy_core.apply(state, event)
            session.events.append(event)
            called = event.tool_called
            assert called is not None
        reply = reply_of(called)
        return httpx.Response(reply.status, content=reply.body)


def _ended(start: TrajectoryEvent, dispatcher: Any, end: End) -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id=f"{start.session_id}:end",
        session_id=start.session_id,
        run_id=start.run_id,
        kind=SESSION_ENDED,
        conversation=dispatcher.conversation,
        at_ms=0,
        session_ended=SessionEnded(
            reason=end.reason,
            detail=end.detail,
            turns=dispatcher.posted,
            tool_calls=dispatcher.tool_calls,
            injected=dispatcher.injected,
        ),
    )
