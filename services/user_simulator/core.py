"""The user simulator's core: a session's events to the user's side of it.

Of everything on the log it takes what a user sees: the user's brief, what was said, what the user
did with tools of its own, and that it is over. The tool brief stays the unread string it is, and
what the agent did with its tools is not even decoded.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from schemas.briefs import UserBrief
from schemas.trajectory import (
    AGENT_TURN,
    SESSION_ENDED,
    SESSION_STARTED,
    TOOL_CALLED,
    USER,
    USER_ACTED,
    USER_TURN,
    ToolCalled,
    TrajectoryEvent,
    UserActed,
    UserTurn,
)
from services.runtime.clock import Clock
from services.user_simulator.acting import done_since
from services.user_simulator.pacing import pause_ms
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    AgentSaid,
    History,
    UserDid,
    UserMove,
    UserSaid,
    UserSimulator,
    current_conversation,
    next_number,
)
from services.user_simulator.validity import checked

KINDS = frozenset(
    {SESSION_STARTED, USER_TURN, AGENT_TURN, SESSION_ENDED, USER_ACTED, f"{TOOL_CALLED}/{USER}"}
)
"""The events this service reads; it need not decode the others."""


@dataclass(slots=True)
class UserSide:
    """A session as its user lives it."""

    session_id: str
    run_id: str
    brief: UserBrief | None
    """None if it cannot be read: such a session is invalid from its first turn."""
    trouble: str = ""
    entries: list[UserSaid | AgentSaid | UserDid] = field(default_factory=list)
    acts: int = 0
    """Calls of the user's that were asked for."""
    doing: int | None = None
    """The one of them that the next turn waits for: the tool proxy has not performed it yet."""
    silent: bool = False
    """The user has left, or the agent failed: there is nothing more for the user to say."""
    ended: bool = False

    @property
    def history(self) -> History:
        return tuple(self.entries)


class UserSimulatorCore:
    """Folds events into `UserSide`s and says when it is the user's turn. Pure."""

    def start(self, record: TrajectoryEvent) -> UserSide:
        """The user's side of a session that was just admitted."""
        assert record.session_started is not None
        brief, trouble = None, ""
        try:
            brief = UserBrief.model_validate_json(record.session_started.user_brief)
        except ValidationError as error:
            what = "; ".join(
                f"{'.'.join(map(str, item['loc']))}: {item['msg']}"
                for item in error.errors(include_input=False, include_url=False)
            )
            trouble = f"the user's brief cannot be read: {what}"
        return UserSide(record.session_id, record.run_id, brief, trouble)

    def apply(self, state: UserSide, record: TrajectoryEvent) -> None:
        """Fold an event; what is out of turn changes nothing."""
        if record.session_ended is not None:
            state.ended = True
        elif record.user_turn is not None and record.turn == self._due(state):
            turn = record.user_turn
            closing = turn.ending is not None
            state.doing = None
            state.entries.append(UserSaid(record.conversation, turn.text, closing))
            state.silent = turn.invalid is not None or turn.ending not in (None, CONVERSATION_OVER)
        elif record.agent_turn is not None and record.turn == self._awaited(state):
            answer = record.agent_turn
            if answer.outcome == "ok":
                state.entries.append(AgentSaid(record.conversation, answer.final_response))
            state.silent = answer.outcome != "ok" or answer.ended
        elif record.user_acted is not None and record.user_acted.call == state.acts + 1:
            state.acts += 1
            if state.doing is None and record.turn == self._due(state):
                state.doing = state.acts
        elif record.tool_called is not None and record.tool_called.requestor == USER:
            self._did(state, record.conversation, record.tool_called)

    def _did(self, state: UserSide, conversation: int, called: ToolCalled) -> None:
        if called.call != state.doing:
            return
        state.doing = None
        state.entries.append(
            UserDid(
                conversation,
                called.tool,
                called.arguments,
                called.response,
                is_text=called.response_is_text,
                refused=called.error_code is not None,
            )
        )

    def foreign(self, state: UserSide, incoming: object) -> None:
        """No other topic is about the user's side."""

    def wants(self, state: UserSide) -> Hashable | None:
        """`("user", n)` when user turn n is due, and again with the number of the user's calls
        when it is known what came of something done before it."""
        due = None if state.ended or state.doing is not None else self._due(state)
        return None if due is None else deed(state, due)

    def finished(self, state: UserSide) -> bool:
        return state.ended

    def _due(self, state: UserSide) -> int | None:
        """The number of the user turn that may come now."""
        if state.silent or self._awaited(state) is not None:
            return None
        return next_number(state.history)

    def _awaited(self, state: UserSide) -> int | None:
        """The number of the turn whose answer is outstanding."""
        last = state.entries[-1] if state.entries else None
        if state.silent or not isinstance(last, UserSaid) or last.closing:
            return None
        return next_number(state.history) - 1


def deed(state: UserSide, number: int) -> Hashable:
    """What is to be done when user turn `number` is due; the same value means the same deed."""
    return (USER, number, state.acts) if done_since(state.history) else (USER, number)


async def perform(
    state: UserSide, action: Hashable, simulator: UserSimulator, clock: Clock
) -> list[TrajectoryEvent]:
    """Play the user turn that is due, or what the user does before it; the events are to be
    appended to the log.

    The move is checked before it leaves, whoever made it.
    """
    history = state.history
    number = next_number(history)
    if action != deed(state, number):
        raise ValueError(f"{action!r} is not due; user turn {number} is")
    started = clock.monotonic()
    if state.brief is None:
        move = UserMove("", invalid=state.trouble)
    else:
        move = checked(state.brief, history, await simulator.next_turn(state.brief, history))
    if move.invalid is not None:
        # What must not be said is not said, and such a turn ends nothing in the user's name.
        move = replace(move, ending=None, act=None)
    latency_ms = round((clock.monotonic() - started) * 1000)
    if move.act is not None:
        acted = UserActed(
            call=state.acts + 1,
            tool=move.act.tool,
            arguments=move.act.arguments,
            usage=move.usage,
            latency_ms=latency_ms,
        )
        return [
            TrajectoryEvent(
                event_id=f"{state.session_id}:c{acted.call}",
                session_id=state.session_id,
                run_id=state.run_id,
                kind=USER_ACTED,
                conversation=current_conversation(history),
                turn=number,
                at_ms=clock.now_ms(),
                user_acted=acted,
            )
        ]
    return [
        TrajectoryEvent(
            event_id=f"{state.session_id}:u{number}",
            session_id=state.session_id,
            run_id=state.run_id,
            kind=USER_TURN,
            conversation=current_conversation(history),
            turn=number,
            at_ms=clock.now_ms(),
            user_turn=UserTurn(
                text=move.text,
                ending=move.ending,
                invalid=move.invalid,
                usage=move.usage,
                latency_ms=latency_ms,
                think_ms=pause_ms(state.brief, number) if state.brief else 0,
                replayed=move.replayed,
            ),
        )
    ]
