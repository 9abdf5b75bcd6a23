"""Calls that the simulated user makes, with tools of its own, on the world of its session.

They are asked for on the log (`user_acted`) and answered there (`tool_called`, of requestor
`user`); see docs/user-tools.md. Failures, response rules, limits and the rate are for the agent's
calls alone: here a tool of the user's is answered by the world and by nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from schemas.trajectory import USER, TrajectoryEvent
from services.runtime.bus.errors import BusUnavailable
from services.runtime.clock import Clock
from services.runtime.strict_json import NotStrict, read_object
from services.tool_proxy.answer import (
    MAX_BODY_BYTES,
    Call,
    Forward,
    Outcome,
    body_bytes,
    refused,
    simulated,
)
from services.tool_proxy.errors import Refused
from services.tool_proxy.jsons import JsonObject
from services.tool_proxy.live import LiveSessions
from services.tool_proxy.own_time import OwnTime
from services.tool_proxy.session import Posting, SessionState
from services.tool_proxy.world import ArgumentsRefused

_Answer = Callable[
    [SessionState, Call, OwnTime, int], Awaitable[tuple[TrajectoryEvent, Outcome] | Forward]
]
_POSTED = Posting(0, "")
"""A user's call belongs to no posting of a turn."""


def answer_user(state: SessionState, call: Call) -> Outcome:
    """The world's answer to a call of the user's. Pure but for the world's code.

    A tool that is not the user's own, or arguments that are none, are refused as data: who plays
    the user reads it and goes on. A tool of the user's that the world has not is the scenario's
    mistake, and spoils the session.
    """
    if call.tool not in state.brief.user_tools:
        return _refused("tool_unknown", f"You have no tool named {call.tool}.")
    try:
        read_object(call.raw.encode())
    except NotStrict as error:
        return _refused("arguments_invalid", f"The arguments must be one JSON object: {error}")
    if state.fault is not None:
        return refused(state.fault, fault=state.fault_detail)
    if state.world is None or call.tool not in state.world.user_tools():
        return refused("tool_unavailable", fault="the world has no such tool for users")
    try:
        outcome = simulated(state, call)
    except ArgumentsRefused as error:
        where = {"path": error.path, "rule": error.rule, "message": error.message}
        return refused("arguments_invalid", errors=[where])
    return refused("response_too_large") if body_bytes(outcome) > MAX_BODY_BYTES else outcome


def _refused(code: str, message: str) -> Outcome:
    body = orjson.dumps({"error": {"code": code, "message": message, "retryable": False}})
    return Outcome(response=body.decode(), source="error", error_code=code)


class UserCalls:
    """Performs the user's calls of the sessions that this replica owns, each once in the log."""

    def __init__(
        self,
        live: LiveSessions,
        answer: _Answer,
        account: Callable[[str, TrajectoryEvent, Outcome, OwnTime], Any],
        clock: Clock,
    ) -> None:
        """`answer` decides a call and makes its event, `account` counts what was recorded."""
        self._live = live
        self._answer = answer
        self._account = account
        self._clock = clock

    async def perform(self, state: SessionState) -> None:
        """Perform the first outstanding call; when this returns, it is in the log, or the session
        is over or another replica's.

        Raises:
            BusUnavailable: it is not known whether it is in the log; to be tried again, which
                changes nothing if it is.
        """
        due = state.user_calls + 1
        request = state.outstanding.get(due)
        if request is None:
            return  # it was performed while this waited for its turn
        try:
            async with self._live.entered(state.session_id) as live, self._live.locked(live):
                if live.view.user_calls >= due:
                    return  # acknowledged, and not read back yet
                time = OwnTime(self._clock)
                answered = await self._answer(live.view, _call_of(request), time, 0)
                assert not isinstance(answered, Forward)
                event, outcome = answered
                await self._live.append(live, event)
                self._account(state.session_id, event, outcome, time)
        except Refused as error:
            if error.row.code == "log_unavailable":
                raise BusUnavailable(f"user's call {due} could not be recorded") from None


def _call_of(request: TrajectoryEvent) -> Call:
    acted = request.user_acted
    assert acted is not None
    return Call(
        tool=acted.tool,
        raw=acted.arguments,
        arguments=_object(acted.arguments),
        posting=_POSTED,
        turn=request.turn,
        conversation=request.conversation,
        requestor=USER,
    )


def _object(text: str) -> JsonObject:
    try:
        return read_object(text.encode())
    except NotStrict:
        return {}
