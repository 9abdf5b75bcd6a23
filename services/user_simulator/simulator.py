"""What every user simulator takes and gives.

A simulator is handed the user's brief and the conversation as the user sees it: the texts of
both sides, what the user itself did with tools of its own, and nothing else. `History` has no
place for the agent's tool calls, messages, metadata, scores or expectations, so no simulator can
be given them by mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, final

from schemas.briefs import UserBrief
from schemas.trajectory import Usage

Ending = Literal["goal_met", "gave_up", "conversation_over"]

GOAL_MET: Ending = "goal_met"
GAVE_UP: Ending = "gave_up"
CONVERSATION_OVER: Ending = "conversation_over"


@final
@dataclass(frozen=True, slots=True)
class UserSaid:
    """A turn of the user."""

    conversation: int
    text: str
    closing: bool = False
    """The user left this conversation with it; the agent was not shown it."""


@final
@dataclass(frozen=True, slots=True)
class AgentSaid:
    """The text of an agent's answer."""

    conversation: int
    text: str


@final
@dataclass(frozen=True, slots=True)
class UserDid:
    """The user used a tool of its own, and this is what came of it."""

    conversation: int
    tool: str
    arguments: str
    """A JSON object."""
    response: str
    """JSON, or text if `is_text`."""
    is_text: bool = False
    refused: bool = False
    """There was no answer of the tool's: it does not exist, or not with such arguments."""


Talk = tuple[UserSaid | AgentSaid, ...]
History = tuple[UserSaid | AgentSaid | UserDid, ...]


@final
@dataclass(frozen=True, slots=True)
class UserAct:
    """The user is about to use a tool of its own."""

    tool: str
    arguments: str
    """A JSON object."""


@final
@dataclass(frozen=True, slots=True)
class UserMove:
    """What the user does next: says something, ends, or both; or does something before that."""

    text: str
    ending: Ending | None = None
    act: UserAct | None = None
    """Then nothing is said: the next move is due when it is known what came of it."""
    invalid: str | None = None
    """What the simulator did wrong; the session is then invalid, not failed."""
    usage: Usage | None = None
    replayed: bool | None = None
    """Users with a recording: whether this is what was said in it, or the agent's other words have
    led away from it."""


class UserSimulator(Protocol):
    """Plays one user. Stateless between calls: the history says everything."""

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        """The user's next move.

        Called with an empty history, after an agent's answer, after something the user did, or
        after a closing turn (the opening of the next conversation is then due). Trouble in playing
        the user is a move with `invalid`, never an exception; only a history in which it is not the
        user's turn raises ValueError. May wait for a model, within the simulator's own deadline.
        """

    def pin(self) -> str:
        """What exactly plays the user. Runs with different pins are not comparable."""


def current_conversation(history: History) -> int:
    """The conversation, from 1, that the next user turn belongs to.

    Raises:
        ValueError: the agent's answer is outstanding.
    """
    if not history:
        return 1
    last = history[-1]
    if isinstance(last, UserSaid):
        if not last.closing:
            raise ValueError("the agent has not answered yet, so it is not the user's turn")
        return last.conversation + 1
    return last.conversation


def next_number(history: History) -> int:
    """The number, from 1, of the next user turn of the session."""
    return 1 + sum(isinstance(entry, UserSaid) for entry in history)
