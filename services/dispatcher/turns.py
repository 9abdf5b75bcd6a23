"""Performs what a session wants: post a turn, end the session, notify the coordinator."""

from __future__ import annotations

import asyncio
import traceback
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
from services.dispatcher.agents.kind import AgentKind, Superseded
from services.dispatcher.answers import answered, failed, fitting
from services.dispatcher.proxies import Proxies
from services.dispatcher.session_core import End, Notify, Post, SessionState
from services.dispatcher.settings import DispatcherSettings
from services.runtime import metrics as m
from services.runtime.agents.client import AgentFailed, TurnRequest
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import SecretMissing, agent_secrets
from services.runtime.ids import decimal_id, digest
from services.runtime.service import Publication, Service
from services.runtime.telemetry_context import traceparent
from services.runtime.tokens import Claims, TokenRefused, Tokens

_TOKEN_SLACK_MS = 60_000
_RECORD_SLACK_BYTES = 4096


class TurnDispatcher:
    """The effects of the dispatcher's session core. Each returns once its events are durable."""

    def __init__(
        self,
        service: Service[DispatcherSettings],
        agents: AgentKind,
        proxies: Proxies,
        agent_of: Callable[[str, str], AgentRegistration | None],
        *,
        traced: bool = False,
    ) -> None:
        """`agent_of(agent_id, fingerprint)` looks up the registration a session started with.
        `traced`: agents are told which trace their turn belongs to.
        """
        self._service = service
        self._agents = agents
        self._proxies = proxies
        self._agent_of = agent_of
        self._traced = traced
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
        left_s = max(state.deadline_ms - service.clock.now_ms(), 0) / 1000
        try:
            async with asyncio.timeout(left_s):
                answer = await self._answer(state, turn, state.pending[1], dispatch_id)
        except TimeoutError:
            # The session's time is up, not the agent's: there is no answer to record.
            return
        except Superseded:
            service.log.warning("turn superseded", session=state.session_id, turn=turn)
            return
        elapsed = service.clock.monotonic() - started
        service.metrics.observe(m.TURN_SECONDS, elapsed, outcome=answer.outcome)
        event = TrajectoryEvent(
            event_id=f"{state.session_id}:a{turn}",
            session_id=state.session_id,
            run_id=state.run_id,
            kind=AGENT_TURN,
            conversation=state.conversation,
            turn=turn,
            at_ms=service.clock.now_ms(),
            agent_turn=replace(answer, latency_ms=round(elapsed * 1000), dispatch_id=dispatch_id),
        )
        limit = service.bus.max_record_bytes - _RECORD_SLACK_BYTES
        agent = self._agent(state)
        guarded = agent is not None and agent.require_rich_transcript
        event = fitting(event, lambda one: len(service.codec.encode(one)), limit, guarded)
        await self._append(state, event)

    def _agent(self, state: SessionState) -> AgentRegistration | None:
        started = state.started
        return self._agent_of(started.agent_id, started.agent_fingerprint)

    async def _answer(
        self, state: SessionState, turn: int, text: str, dispatch_id: str
    ) -> AgentTurn:
        """What to record of a turn, whatever becomes of it. Holds no secrets."""
        agent = self._agent(state)
        try:
            if agent is None:
                raise LookupError(
                    f"agent {state.started.agent_id} is no longer registered as it was when the "
                    f"run began"
                )
            parsed = await self._ask(state, agent, turn, text, dispatch_id)
            return answered(self._redactor(agent).response(parsed))
        except Superseded:
            raise
        except AgentFailed as failure:
            outcome, code, detail = failure.outcome, failure.code, failure.detail
        except Exception as error:
            outcome = code = "infrastructure"
            detail = str(error)
            if not isinstance(error, SecretMissing) and type(error) is not LookupError:
                # Whatever one agent sets off here must not end every other agent's sessions.
                # Where, but not what: an exception's own text may quote what was sent.
                where = "".join(traceback.format_tb(error.__traceback__))
                self._service.log.error("turn failed", error=type(error).__name__, where=where)
                code, detail = "internal_error", f"{type(error).__name__}; see the log"
        return failed(outcome, code, self._redactor(agent).text(detail))

    def _redactor(self, agent: AgentRegistration | None) -> Redactor:
        """Knows the agent's own secrets, and every run token: an agent may keep earlier ones."""
        return Redactor([] if agent is None else agent_secrets(agent), self._is_token)

    def _is_token(self, text: str) -> bool:
        try:
            self._tokens.open(text, 0)
        except TokenRefused:
            return False
        return True

    async def _ask(
        self, state: SessionState, agent: AgentRegistration, turn: int, text: str, dispatch_id: str
    ) -> ParsedResponse:
        started = state.started
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
            traceparent=traceparent(state.session_id, turn) if self._traced else "",
        )
        return await self._agents.turn(agent, request)

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
