"""The default user: an agenda of what is still to be said, and nothing left to chance.

After Schatzmann et al., "Agenda-Based User Simulation for Bootstrapping a POMDP Dialogue System"
(NAACL 2007): the user keeps a stack of dialogue acts. At the bottom is the leave-taking, on it
the conversation's goals, the first on top. What the agent says takes a goal off the stack or puts
a response on it; the user says what is on top. The whole thing is a fold over the history, so the
same brief and history give the same move in any process at any time.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.briefs import UserBrief
from schemas.pins import AGENDA
from schemas.user import Conversation
from services.user_simulator.acting import due_act, reports
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
from services.user_simulator.standing import Act, Does, Standing, standing_after
from services.user_simulator.stating import says_value

LONG_SUFFERING = 3
"""Users of at least this patience say that it is running out before it has."""
_WORDLESS = {
    Does.RIGHT: Kind.RIGHT, Does.RETRY: Kind.RETRY, Does.WAIT: Kind.WAIT,
    Does.UNKNOWN: Kind.UNKNOWN,
}  # fmt: skip
_UNADORNED = frozenset({Does.PUSH, Does.LEAVE, Does.QUIT})


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
    standing = standing_after(brief, conversation, replies)
    voice = Voice(brief, number, next_number(history))
    try:
        if not replies:
            return UserMove(_opening(conversation, voice))
        if standing.acts[0].does is not Does.QUIT and (act := due_act(brief, history)):
            return UserMove("", act=act)
        move = _move(standing, voice, conversation, tuple(reports(brief, history, voice)))
        if _weary(standing, brief.persona.patience):
            return replace(move, text=f"{move.text} {voice.simply(Kind.IMPATIENT)}")
        return move
    except UnknownFact as error:
        return UserMove("", invalid=f"the scenario's text cannot be said: {error}")


def _weary(standing: Standing, patience: int) -> bool:
    """Whether the user says that the next useless answer will be the last."""
    last = patience >= LONG_SUFFERING and standing.agenda.idle == patience - 1
    return last and not _UNADORNED & {act.does for act in standing.acts}


def _opening(conversation: Conversation, voice: Voice) -> str:
    """The first goal, and the facts that this persona tells unasked."""
    said = voice.opening(conversation.goals[0].say)
    names = [name for name in voice.volunteered() if not says_value(said, voice.brief.facts[name])]
    return f"{said} {voice.volunteer(names)}" if names else said


def _move(
    standing: Standing, voice: Voice, conversation: Conversation, reports: tuple[str, ...]
) -> UserMove:
    """What is said now, in words; first what came of what the user was asked to do."""
    acts = standing.acts
    if acts[0].does is Does.QUIT:
        return UserMove(voice.simply(Kind.QUIT), ending=GAVE_UP)
    if acts[0].does is Does.LEAVE:
        more = voice.conversation < len(voice.brief.conversations)
        ending = CONVERSATION_OVER if more else GOAL_MET
        return UserMove(" ".join([*reports, voice.simply(Kind.THANKS)]), ending=ending)
    said = [
        _words(act, voice, conversation, standing.goal_done)
        for act in acts
        if act.does is not Does.REPORT
    ]
    return UserMove(" ".join([*reports, *said]))


def _words(act: Act, voice: Voice, conversation: Conversation, goal_done: bool) -> str:
    if act.does is Does.ASK:
        say = conversation.goals[act.item].say
        return voice.next_goal(say) if goal_done else voice.nudge(say)
    if act.does is Does.WRONG:
        return voice.wrong(conversation.goals[act.item].say)
    if act.does is Does.CORRECT:
        return " ".join(map(voice.correct, act.facts))
    if act.does is Does.INFORM:
        return voice.inform(act.facts, again=act.again)
    if act.does is Does.ANSWER:
        return voice.simply(Kind.YES if conversation.consents else Kind.NO)
    if act.does is Does.PUSH:
        return voice.push(conversation.pushes[act.item])
    return voice.simply(_WORDLESS[act.does])
