"""Performs what a session wants: post a turn, end the session, notify the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import orjson

from schemas.agent_response import ParsedResponse
from schemas.registry import AgentRegistration
from schemas.runs import SessionNotice
from schemas.topics import RUN_PROGRESS, TRAJECTORIES
from schemas.trajectory import (
    AGENT_TURN,
    SESSION_ENDED,
    AgentTurn,
    EndReason,
    SessionEnded,
    TrajectoryEvent,
)
from services.dispatcher.proxies import Proxies
from services.dispatcher.session_core import End, Notify, Post, SessionState
from services.dispatcher.settings import DispatcherSettings
from services.runtime import metrics as m
from services.runtime.agents.client import AgentClient, AgentFailed, TurnRequest
from services.runtime.agents.secrets import SecretMissing
from services.runtime.ids import decimal_id, digest
from services.runtime.service import Publication, Service
from services.runtime.tokens import Claims, Tokens

_TOKEN_SLACK_MS = 60_000


class TurnDispatcher:
    """The effects of the dispatcher's session core. Each returns once its events are durable."""

    def __init__(
        self,
        service: Service[DispatcherSettings],
        client: AgentClient,
        proxies: Proxies,
        agent_of: Callable[[str, str], AgentRegistration | None],
    ) -> None:
        """`agent_of(agent_id, fingerprint)` looks up the registration a session started with."""
        self._service = service
        self._client = client
        self._proxies = proxies
        self._agent_of = agent_of
        self._tokens = Tokens(service.settings.token_secret.get_secret_value())

    async def act(self, state: SessionState, action: Hashable) -> None:
        if isinstance(action, Post):
            await self._post(state, action.turn)
        elif isinstance(action, End):
            await self._end(state, action)
        elif isinstance(action, Notify):
            await self._notify(state)
        else:
            raise TypeError(f"unknown action {action!r}")

    async def _post(self, state: SessionState, turn: int) -> None:
        assert state.pending is not None
        service = self._service
        dispatch_id = service.ids.new()
        started = service.clock.monotonic()
        answer: AgentTurn
        try:
            parsed = await self._ask(state, turn, state.pending[1], dispatch_id)
            answer = _answered(parsed)
        except AgentFailed as failure:
            answer = AgentTurn(
                outcome=failure.outcome, error_code=failure.code, error_detail=failure.detail
            )
        except (SecretMissing, LookupError) as failure:
            answer = AgentTurn(
                outcome="infrastructure", error_code="infrastructure", error_detail=str(failure)
            )
        elapsed = service.clock.monotonic() - started
        service.metrics.observe(m.TURN_SECONDS, elapsed, outcome=answer.outcome)
        await self._append(
            state,
            TrajectoryEvent(
                event_id=f"{state.session_id}:a{turn}",
                session_id=state.session_id,
                run_id=state.run_id,
                kind=AGENT_TURN,
                conversation=state.conversation,
                turn=turn,
                at_ms=service.clock.now_ms(),
                agent_turn=replace(
                    answer, latency_ms=round(elapsed * 1000), dispatch_id=dispatch_id
                ),
            ),
        )

    async def _ask(
        self, state: SessionState, turn: int, text: str, dispatch_id: str
    ) -> ParsedResponse:
        started = state.started
        agent = self._agent_of(started.agent_id, started.agent_fingerprint)
        if agent is None:
            raise LookupError(
                f"agent {started.agent_id} is no longer registered as it was when the run began"
            )
        jti = digest("jti", state.session_id).hex()
        base = await self._proxies.url_for(state.session_id, self._service.settings.proxy_wait_s)
        if base is None:
            raise LookupError("no tool proxy owns this session's partition; is one running?")
        proxy_url = f"{base.rstrip('/')}/api/odyssey-proxy/runs/{jti}"
        now_ms = self._service.clock.now_ms()
        token = self._tokens.mint(
            Claims(
                session_id=state.session_id,
                run_id=state.run_id,
                jti=jti,
                turn=turn,
                conversation=state.conversation,
                dispatch_id=dispatch_id,
                issued_at_ms=now_ms,
                expires_at_ms=max(state.deadline_ms, now_ms) + _TOKEN_SLACK_MS,
            )
        )
        run_id = decimal_id("run", state.run_id)
        body = {
            "task_id": started.task_id,
            "run_id": run_id,
            "agent_id": decimal_id("agent", started.agent_id),
            "input": {
                "task_id": started.task_id,
                "user_instruction": text,
                "input": orjson.loads(started.task_input),
            },
            "odyssey_proxy_url": proxy_url,
            "run_token_jti": jti,
            # Additive: what a conversation of several turns needs. See docs/adr/0005.
            "session": {
                "id": state.session_id,
                "conversation": state.conversation,
                "turn": turn,
                "history": list(state.history),
            },
        }
        request = TurnRequest(
            body=body,
            run_token=token,
            proxy_url=proxy_url,
            run_id=run_id,
            task_id=started.task_id,
            jti=jti,
            idempotency_key=f"{state.session_id}-{turn}",
        )
        return await self._client.turn(agent, request)

    async def _end(self, state: SessionState, end: End) -> None:
        await self._append(
            state,
            TrajectoryEvent(
                event_id=f"{state.session_id}:end",
                session_id=state.session_id,
                run_id=state.run_id,
                kind=SESSION_ENDED,
                conversation=state.conversation,
                turn=state.posted,
                at_ms=self._service.clock.now_ms(),
                session_ended=SessionEnded(
                    reason=end.reason,
                    detail=end.detail,
                    turns=state.posted,
                    tool_calls=state.tool_calls,
                    injected=dict(sorted(state.injected.items())),
                ),
            ),
        )
        category = state.started.category
        self._service.metrics.add(m.SESSIONS_ENDED, category=category, reason=end.reason)

    async def _notify(self, state: SessionState) -> None:
        assert state.ended is not None
        notice = SessionNotice(
            run_id=state.run_id,
            session_id=state.session_id,
            scenario_id=state.started.scenario_id,
            category=state.started.category,
            trial=state.started.trial,
            what="ended",
            reason=state.ended,
            valid=state.ended not in EndReason.INVALID,
            at_ms=self._service.clock.now_ms(),
        )
        await self._service.publish(Publication(RUN_PROGRESS, state.run_id, notice))
        state.notified = True

    async def _append(self, state: SessionState, event: TrajectoryEvent) -> None:
        await self._service.publish(Publication(TRAJECTORIES, state.session_id, event))


def _answered(parsed: ParsedResponse) -> AgentTurn:
    return AgentTurn(
        outcome="ok",
        final_response=parsed.final_response,
        messages=None if parsed.messages is None else orjson.dumps(parsed.messages).decode(),
        metadata=None if parsed.metadata is None else orjson.dumps(parsed.metadata).decode(),
        soft_warnings=parsed.soft_warnings,
        usage=parsed.usage,
        ended=parsed.ended,
    )
