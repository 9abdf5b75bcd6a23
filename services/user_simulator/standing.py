"""The user's agenda, and how it changes with what the agent says: a fold over its answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from schemas.briefs import UserBrief
from schemas.user import Conversation
from services.user_simulator.acting import asked_for
from services.user_simulator.hearing import Heard, hear

MAX_WAITS = 2
"""So often for one goal the user is willing to wait, unless less patient than that."""
MAX_CONFIRMATIONS = 4
"""So many different go-ahead questions for one goal count as progress."""


class Does(Enum):
    """What a user can do in a turn."""

    ASK = auto()
    INFORM = auto()
    ANSWER = auto()
    RIGHT = auto()
    CORRECT = auto()
    WRONG = auto()
    PUSH = auto()
    RETRY = auto()
    WAIT = auto()
    UNKNOWN = auto()
    REPORT = auto()
    LEAVE = auto()
    QUIT = auto()


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
    did: frozenset[int] = frozenset()
    """Numbers of the brief's actions that the agent has asked for."""
    corrected: frozenset[str] = frozenset()
    """Names of facts that the agent was put right about; empty for what the user wants."""
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


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a conversation stands for its user after the agent's answers."""

    agenda: Agenda
    acts: tuple[Act, ...]
    """What is said now, first things first."""
    goal_done: bool = False
    """A goal was just done."""
    heeded: int = 0
    """So many answers were listened to; by then the user has left, if there were more."""


def standing_after(
    brief: UserBrief, conversation: Conversation, replies: Sequence[str]
) -> Standing:
    """Fold the agent's answers of one conversation."""
    agenda = Agenda.of(conversation)
    standing = Standing(agenda, (agenda.stack[-1],))
    words = own_words(brief)
    for number, reply in enumerate(replies, 1):
        heard = hear(reply, brief.facts, conversation.goals[agenda.goal].done_when, words)
        patience, wanted = brief.persona.patience, frozenset(asked_for(brief, reply))
        agenda, acts = _settle(_respond(agenda, heard, conversation, patience, wanted))
        standing = Standing(agenda, acts or (agenda.stack[-1],), heard.done, number)
        if standing.acts[0].does in (Does.LEAVE, Does.QUIT):
            break
    return standing


def own_words(brief: UserBrief) -> str:
    """All that the scenario's author gives the user to say."""
    return " ".join(
        text
        for one in brief.conversations
        for text in (*(say for goal in one.goals for say in goal.say), *one.pushes)
    )


def _settle(agenda: Agenda) -> tuple[Agenda, tuple[Act, ...]]:
    """Take what is said in this turn off the stack, top first: all that lies on the goal."""
    stack = agenda.stack
    cut = len(stack)
    while stack[cut - 1].does not in (Does.ASK, Does.LEAVE):
        cut -= 1
    return replace(agenda, stack=stack[:cut]), stack[: cut - 1 : -1]


def _respond(
    agenda: Agenda,
    heard: Heard,
    conversation: Conversation,
    patience: int,
    wanted: frozenset[int] = frozenset(),
) -> Agenda:
    """The agenda after an answer of the agent; `wanted` are the actions that it asks for."""
    if heard.done:
        return replace(
            agenda, stack=agenda.stack[:-1], confirmed=frozenset(), did=frozenset(), waited=0,
            idle=0,
        )  # fmt: skip
    if heard.mistaken or heard.mistook_matter:
        return _put_right(agenda, heard, patience)
    new = [name for name in heard.asked if name not in agenda.asked]
    if new:
        acts = [Act(Does.INFORM, facts=heard.asked)]
        if heard.confirmation and not heard.refused:
            acts.insert(0, Act(Does.ANSWER))
        return _push(replace(agenda, asked=agenda.asked | set(new), idle=0), *reversed(acts))
    if wanted:
        return _do(agenda, heard, patience, wanted)
    if (heard.trouble or heard.hold_on) and agenda.waited < min(MAX_WAITS, patience):
        act = Act(Does.RETRY if heard.trouble else Does.WAIT)
        return _push(replace(agenda, waited=agenda.waited + 1), act)
    if heard.trouble:
        return _push(agenda, Act(Does.QUIT))
    if heard.refused and agenda.pushed < len(conversation.pushes):
        return _push(
            replace(agenda, pushed=agenda.pushed + 1), Act(Does.PUSH, item=agenda.pushed)
        )  # fmt: skip
    if question := heard.confirmation or ", ".join(heard.checked):
        progress = question not in agenda.confirmed and len(agenda.confirmed) < MAX_CONFIRMATIONS
        agenda = replace(agenda, confirmed=agenda.confirmed | {question})
        # Whoever declines may still say that what the agent has is right.
        does = Does.ANSWER if heard.confirmation else Does.RIGHT
        return _push(_tick(agenda, patience, progress=progress), Act(does))
    if heard.asked:
        return _push(
            _tick(agenda, patience), Act(Does.INFORM, facts=heard.asked, again=True)
        )  # fmt: skip
    if heard.asks_other:
        return _push(_tick(agenda, patience), Act(Does.UNKNOWN))
    if heard.refused:
        return _push(agenda, Act(Does.QUIT))
    return _tick(agenda, patience)


def _do(agenda: Agenda, heard: Heard, patience: int, wanted: frozenset[int]) -> Agenda:
    """The agenda after an answer that asks the user to do something: its other words lead up to
    that. What was done for this goal already costs patience to do again."""
    progress = not wanted <= agenda.did
    agenda = replace(agenda, did=agenda.did | wanted)
    acts = [Act(Does.REPORT)]
    if heard.asked:
        acts.insert(0, Act(Does.INFORM, facts=heard.asked, again=True))
    return _push(_tick(agenda, patience, progress=progress), *acts)


def _put_right(agenda: Agenda, heard: Heard, patience: int) -> Agenda:
    """The agenda after an answer with a mistake: nothing is agreed to before it is corrected.

    The first mistake about a fact costs no patience; saying it again does.
    """
    about = frozenset(heard.mistaken or ("",))
    if about <= agenda.corrected:
        agenda = _tick(agenda, patience)
    agenda = replace(
        agenda,
        asked=agenda.asked | frozenset((*heard.mistaken, *heard.asked)),
        corrected=agenda.corrected | about,
    )
    if heard.asked:
        agenda = _push(agenda, Act(Does.INFORM, facts=heard.asked))
    if heard.mistaken:
        return _push(agenda, Act(Does.CORRECT, facts=heard.mistaken))
    return _push(agenda, Act(Does.WRONG, agenda.goal))


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
