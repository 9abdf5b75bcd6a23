"""The default user: an agenda of what is still to be said, and nothing left to chance.

After Schatzmann et al., "Agenda-Based User Simulation for Bootstrapping a POMDP Dialogue System"
(NAACL 2007): the user keeps a stack of dialogue acts. At the bottom is the leave-taking, on it
the conversation's goals, the first on top. What the agent says takes a goal off the stack or puts
a response on it; the user says what is on top. The whole thing is a fold over the history, so the
same brief and history give the same move in any process at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from schemas.briefs import UserBrief
from schemas.pins import AGENDA
from schemas.scenario import Conversation
from services.user_simulator.hearing import Heard, hear
from services.user_simulator.phrases import Kind
from services.user_simulator.phrasing import UnknownFact, Voice
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    AgentSaid,
    History,
    UserMove,
    current_conversation,
    next_number,
)

"""Raised with every change of what this user says or understands: it is the simulator's pin."""

MAX_WAITS = 2
"""So often for one goal the user is willing to wait, unless less patient than that."""
MAX_CONFIRMATIONS = 4
"""So many different go-ahead questions for one goal count as progress."""


class Does(Enum):
    """What a user can do in a turn."""

    ASK = auto()
    INFORM = auto()
    ANSWER = auto()
    PUSH = auto()
    RETRY = auto()
    WAIT = auto()
    UNKNOWN = auto()
    LEAVE = auto()
    QUIT = auto()


_WORDLESS = {Does.RETRY: Kind.RETRY, Does.WAIT: Kind.WAIT, Does.UNKNOWN: Kind.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Act:
    """One entry of the agenda; `item` is the number of the goal or push it is about."""

    does: Does
    item: int = 0
    facts: tuple[str, ...] = ()
    again: bool = False


@dataclass(frozen=True, slots=True)
class Agenda:
    """The user's state of mind within one conversation."""

    stack: tuple[Act, ...]
    """What is still to be said, the next on top (last)."""
    asked: frozenset[str] = frozenset()
    confirmed: frozenset[str] = frozenset()
    pushed: int = 0
    waited: int = 0
    idle: int = 0
    """Agent turns since the last progress."""

    @classmethod
    def of(cls, conversation: Conversation) -> Agenda:
        """The agenda with which a conversation begins."""
        goals = [Act(Does.ASK, item) for item in range(len(conversation.goals))]
        return cls((Act(Does.LEAVE), *reversed(goals)))

    @property
    def goal(self) -> int:
        """The goal that is being pursued: the topmost on the stack."""
        return next(act.item for act in reversed(self.stack) if act.does is Does.ASK)


class AgendaSimulator:
    """Plays every user whose scenario writes its goals down."""

    def pin(self) -> str:
        return AGENDA

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        return plan(brief, history)


def plan(brief: UserBrief, history: History) -> UserMove:
    """The next move of the user; a pure function.

    Raises:
        ValueError: it is not the user's turn, or all conversations are over.
    """
    if not brief.conversations:
        return UserMove(
            "",
            invalid="this scenario describes its user in words only, which takes a model: "
            "configure one for the user simulator, or write `user.goals`",
        )
    number = current_conversation(history)
    if number > len(brief.conversations):
        raise ValueError(f"conversation {number} of {len(brief.conversations)}: all are over")
    conversation = brief.conversations[number - 1]
    replies = [
        entry.text
        for entry in history
        if isinstance(entry, AgentSaid) and entry.conversation == number
    ]
    agenda = Agenda.of(conversation)
    acts: tuple[Act, ...] = ()
    goal_done = False
    for reply in replies:
        heard = hear(reply, brief.facts, conversation.goals[agenda.goal].done_when)
        goal_done = heard.done
        agenda, acts = _settle(_respond(agenda, heard, conversation, brief.persona.patience))
        if agenda.stack[-1].does is Does.LEAVE or (acts and acts[0].does is Does.QUIT):
            break
    voice = Voice(brief, number, next_number(history))
    try:
        return _move(acts or (agenda.stack[-1],), voice, conversation, opening=not replies,
                     goal_done=goal_done)  # fmt: skip
    except UnknownFact as error:
        return UserMove("", invalid=f"the scenario's text cannot be said: {error}")


def _settle(agenda: Agenda) -> tuple[Agenda, tuple[Act, ...]]:
    """Take what is said in this turn off the stack, top first: all that lies on the goal."""
    stack = agenda.stack
    cut = len(stack)
    while stack[cut - 1].does not in (Does.ASK, Does.LEAVE):
        cut -= 1
    return replace(agenda, stack=stack[:cut]), stack[: cut - 1 : -1]


def _respond(agenda: Agenda, heard: Heard, conversation: Conversation, patience: int) -> Agenda:
    """The agenda after an answer of the agent."""
    if heard.done:
        return replace(
            agenda, stack=agenda.stack[:-1], confirmed=frozenset(), waited=0, idle=0
        )  # fmt: skip
    new = [name for name in heard.asked if name not in agenda.asked]
    if new:
        acts = [Act(Does.INFORM, facts=heard.asked)]
        if heard.confirmation and not heard.refused:
            acts.insert(0, Act(Does.ANSWER))
        return _push(replace(agenda, asked=agenda.asked | set(new), idle=0), *reversed(acts))
    if (heard.trouble or heard.hold_on) and agenda.waited < min(MAX_WAITS, patience):
        act = Act(Does.RETRY if heard.trouble else Does.WAIT)
        return _push(replace(agenda, waited=agenda.waited + 1), act)
    if heard.trouble:
        return _push(agenda, Act(Does.QUIT))
    if heard.refused and agenda.pushed < len(conversation.pushes):
        return _push(
            replace(agenda, pushed=agenda.pushed + 1), Act(Does.PUSH, item=agenda.pushed)
        )  # fmt: skip
    if heard.confirmation:
        seen = heard.confirmation in agenda.confirmed
        progress = not seen and len(agenda.confirmed) < MAX_CONFIRMATIONS
        agenda = replace(agenda, confirmed=agenda.confirmed | {heard.confirmation})
        return _push(_tick(agenda, patience, progress=progress), Act(Does.ANSWER))
    if heard.asked:
        return _push(
            _tick(agenda, patience), Act(Does.INFORM, facts=heard.asked, again=True)
        )  # fmt: skip
    if heard.asks_other:
        return _push(_tick(agenda, patience), Act(Does.UNKNOWN))
    if heard.refused:
        return _push(agenda, Act(Does.QUIT))
    return _tick(agenda, patience)


def _tick(agenda: Agenda, patience: int, *, progress: bool = False) -> Agenda:
    """Count an answer against the user's patience; a user who has run out of it quits."""
    if progress:
        return replace(agenda, idle=0)
    agenda = replace(agenda, idle=agenda.idle + 1)
    return _push(agenda, Act(Does.QUIT)) if agenda.idle >= patience else agenda


def _push(agenda: Agenda, *acts: Act) -> Agenda:
    # Nothing is said after the user has quit.
    if agenda.stack[-1].does is Does.QUIT:
        return agenda
    return replace(agenda, stack=(*agenda.stack, *acts))


def _move(
    acts: tuple[Act, ...], voice: Voice, conversation: Conversation, *, opening: bool,
    goal_done: bool,
) -> UserMove:  # fmt: skip
    """The acts in words."""
    if acts[0].does is Does.QUIT:
        return UserMove(voice.simply(Kind.QUIT), ending=GAVE_UP)
    if acts[0].does is Does.LEAVE:
        more = voice.conversation < len(voice.brief.conversations)
        ending = CONVERSATION_OVER if more else GOAL_MET
        return UserMove(voice.simply(Kind.THANKS), ending=ending)
    said = []
    for act in acts:
        if act.does is Does.ASK:
            say = conversation.goals[act.item].say
            if opening:
                said.append(voice.opening(say))
            else:
                said.append(voice.next_goal(say) if goal_done else voice.nudge(say))
        elif act.does is Does.INFORM:
            said.append(voice.inform(act.facts, again=act.again))
        elif act.does is Does.ANSWER:
            said.append(voice.simply(Kind.YES if conversation.consents else Kind.NO))
        elif act.does is Does.PUSH:
            said.append(voice.push(conversation.pushes[act.item]))
        else:
            said.append(voice.simply(_WORDLESS[act.does]))
    return UserMove(" ".join(said))
