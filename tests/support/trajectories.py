"""Sessions built by hand: the events that a real one would leave, a step a line.

    session = Session(world={"orders": {"7": {"status": "open"}}})
    session.user("Where is my order?")
    session.call("get_order", {"id": "7"}, {"status": "open"})
    session.agent("It is open.")
    events = session.end()

Calls and turns number themselves; the first call carries the world's start state, as the tool
proxy records it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.briefs import JudgeBrief, judge_brief
from schemas.scenario import Scenario
from schemas.trajectory import (
    AgentTurn,
    Injection,
    Limits,
    SessionEnded,
    SessionStarted,
    ToolCalled,
    TraceEvent,
    TrajectoryEvent,
    Usage,
    UserTurn,
)

FAILING = ("timeout", "schema_mismatch", "outage", "malformed", "rate_limit")


class Session:
    """Collects the events of one session. `events` is what was recorded so far."""

    def __init__(
        self,
        world: Any = None,
        *,
        session_id: str = "run-1/case/0",
        scenario_id: str = "case",
        category: str = "happy",
        suite_hash: str = "hash",
        failure_multiplier: float = 1.0,
        task_input: str = "{}",
        seed: int = 1,
        tool_brief: Mapping[str, Any] | None = None,
        injection_plan: str = "",
    ) -> None:
        self.events: list[TrajectoryEvent] = []
        self._session_id = session_id
        self._world = world
        self._turn = 0
        self._calls = 0
        self._traces = 0
        self.conversation = 1
        started = SessionStarted(
            scenario_id=scenario_id, category=category, trial=0, seed=seed, suite="suite",
            suite_hash=suite_hash, agent_id="agent", agent_fingerprint="f", task_id=1,
            user_brief="{}", task_input=task_input, limits=Limits(),
            tool_brief=json.dumps(
                {"failure_multiplier": failure_multiplier, **(tool_brief or {})}
            ),
            injection_plan=injection_plan,
        )  # fmt: skip
        self._add("start", "session_started", session_started=started)

    def user(self, text: str = "Hello.", **fields: Any) -> Session:
        """The user's next turn."""
        self._turn += 1
        body = UserTurn(text=text, **fields)
        return self._add(f"u{self._turn}", "user_turn", user_turn=body)

    def agent(
        self,
        text: str = "Done.",
        *,
        outcome: str = "ok",
        messages: Any = None,
        usage: Usage | None = None,
        latency_ms: int = 100,
    ) -> Session:
        """The agent's answer to the turn at hand."""
        body = AgentTurn(
            outcome=outcome, final_response=text if outcome == "ok" else "", usage=usage,
            messages=None if messages is None else json.dumps(messages), latency_ms=latency_ms,
            dispatch_id="d",
        )  # fmt: skip
        return self._add(f"a{self._turn}", "agent_turn", agent_turn=body)

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        response: Any = None,
        *,
        changes: Sequence[Mapping[str, Any]] = (),
        injected: str | None = None,
        rule: str = "f1",
        source: str | None = None,
        status: int = 200,
        error: str | None = None,
        turn: int | None = None,
        actor: str | None = None,
    ) -> Session:
        """A tool call; `changes` is what it did to the world, `injected` the kind of a failure,
        which is what it is answered with unless there is a `response`."""
        self._calls += 1
        patch = list(changes)
        if self._calls == 1 and self._world is not None:
            patch.insert(0, {"op": "replace", "path": "", "value": self._world})
        if source is None:
            source = "error" if error else "injected" if injected in FAILING else "odyssey"
        if response is None and injected in FAILING:
            # As the tool proxy words it: what is recorded has to be seen in the answer.
            response = {"error": {"code": injected, "message": "It did not work."}}
            if injected == "malformed":
                response = '{"id": "7", "sta'
        is_text = isinstance(response, str)
        body = ToolCalled(
            call=self._calls, tool=tool, arguments=json.dumps(arguments or {}),
            response=response if is_text else json.dumps({} if response is None else response),
            response_is_text=is_text, source=source, status=status, error_code=error,
            injection=Injection(rule_id=rule, kind=injected, occurrence=1) if injected else None,
            state_patch=json.dumps(patch) if patch else None, dispatch_id="d", actor=actor,
        )  # fmt: skip
        return self._add(f"t{self._calls}", "tool_called", turn=turn, tool_called=body)

    def trace(
        self, type: str = "plan", payload: Any = None, *, actor: str | None = None
    ) -> Session:
        """Something the agent's runtime reported."""
        self._traces += 1
        body = TraceEvent(
            number=self._traces, type=type, payload=json.dumps(payload or {}), actor=actor
        )
        return self._add(f"x{self._traces}", "trace", trace=body)

    def end(self, reason: str = "goal_met", detail: str = "") -> list[TrajectoryEvent]:
        """The session's end, and with it all of its events."""
        body = SessionEnded(reason=reason, detail=detail)
        self._add("end", "session_ended", session_ended=body)
        return self.events

    def _add(self, step: str, kind: str, turn: int | None = None, **body: Any) -> Session:
        event = TrajectoryEvent(
            event_id=f"{self._session_id}:{step}",
            session_id=self._session_id,
            run_id="run-1",
            kind=kind,
            conversation=self.conversation,
            turn=self._turn if turn is None else turn,
            at_ms=len(self.events),
            **body,
        )
        self.events.append(event)
        return self


def brief(**fields: Any) -> JudgeBrief:
    """The judge's brief of a scenario with these fields, as its YAML would have them."""
    category = "failure-injection" if fields.get("failures") else "happy"
    document = {"id": "case", "name": "A case", "category": category, **fields}
    return judge_brief(Scenario.model_validate(document))
