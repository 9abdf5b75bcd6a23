"""Whether a simulator's move is one that a user could make.

A session whose user speaks as the agent, gives its instructions away, invents facts, loops or
ends at the wrong time says nothing about the agent: it is invalid, not failed. The checks are
deterministic, and apply to every simulator alike. What the scenario's author wrote for the user
to say is never held against the simulator that says it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from schemas.briefs import UserBrief
from schemas.user import UserGoal
from services.user_simulator import acting
from services.user_simulator.character import out_of_character, words
from services.user_simulator.knowledge import invention
from services.user_simulator.phrasing import UnknownFact, Voice, spoken
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    AgentSaid,
    History,
    UserMove,
    UserSaid,
    current_conversation,
    next_number,
)
from services.user_simulator.standing import Does, standing_after

MAX_TURNS = 500
"""The most turns a scenario can allow; a simulator that goes on has lost count."""
MAX_CHARACTERS = 64_000
SAME_IN_A_ROW = 4
"""So many user turns with the same text are a loop ..."""
LOOP_WINDOW, LOOP_TEXTS = 8, 2
"""... and so are so many with only so many different texts."""
TURNS_AFTER_ALL_IS_DONE = 3
"""So often a user may go on talking after it has heard all it came for."""
TURNS_AFTER_PATIENCE = 4
"""So often, and its patience once more, after an agenda would have given up."""


def checked(brief: UserBrief, history: History, move: UserMove) -> UserMove:
    """The move as it is, or marked `invalid` with the first thing that is wrong with it."""
    if move.invalid is not None:
        return move
    reason = violation(brief, history, move)
    return move if reason is None else replace(move, invalid=reason)


def violation(brief: UserBrief, history: History, move: UserMove) -> str | None:
    """What no user would do, in a sentence; None if nothing is."""
    if move.act is not None:
        return acting.impossible(brief, history, move.act)
    authored = (*_authored(brief), *acting.said_by_tools(history))
    own = _without(move.text, authored)
    return (
        _form(history, move)
        or out_of_character(brief, history, own, authored)
        or invention(brief, history, own, authored)
        or _loop(brief, history, move)
        or _ending(brief, history, move)
    )


def _form(history: History, move: UserMove) -> str | None:
    if not move.text.strip() and move.ending is None:
        return "says nothing, and does not end"
    if next_number(history) > MAX_TURNS:
        return f"runs past {MAX_TURNS} turns"
    if len(move.text) > MAX_CHARACTERS:
        return f"says more than {MAX_CHARACTERS} characters in one turn"
    return None


def _ending(brief: UserBrief, history: History, move: UserMove) -> str | None:
    current = current_conversation(history)
    replies = [e.text for e in history if isinstance(e, AgentSaid) and e.conversation == current]
    if move.ending is not None:
        if not replies:
            return f"ends with {move.ending} before anything was said"
        last = current >= max(1, len(brief.conversations))
        if move.ending == GOAL_MET and not last:
            return "is content with the session although conversations are left"
        if move.ending == CONVERSATION_OVER and last:
            return "goes on to a conversation that does not exist"
    if current > len(brief.conversations) or not replies:
        return None
    goals = brief.conversations[current - 1].goals
    if move.ending is None:
        return _never(brief, current, replies)
    if move.ending != GAVE_UP:
        heard = all(any(_does(goal, reply) for reply in replies) for goal in goals)
        return None if heard else "ends too early: is content although its goal is not done"
    # What an answer said before it was asked for the user may have to ask for again; but whoever
    # has just been told all that was left has nothing to give up.
    left = goals[len(_done_in_turn(goals, replies[:-1])) :]
    if all(_does(goal, replies[-1]) for goal in left):
        return "gives up although it has heard all it came for"
    return _too_early(brief, current, replies)


def _does(goal: UserGoal, reply: str) -> bool:
    return any(pattern.found_in(reply) for pattern in goal.done_when)


def _done_in_turn(goals: Sequence[UserGoal], replies: Sequence[str]) -> list[int]:
    """After how many answers each goal was done, one after the other and each by its own answer,
    as an agenda pursues them; goals that were not done are left out."""
    after: list[int] = []
    for number, reply in enumerate(replies, 1):
        if len(after) < len(goals) and _does(goals[len(after)], reply):
            after.append(number)
    return after


def _too_early(brief: UserBrief, conversation: int, replies: Sequence[str]) -> str | None:
    """Giving up while the agent is making progress, with patience to spare."""
    standing = standing_after(brief, brief.conversations[conversation - 1], replies)
    spare = len(replies) < brief.persona.patience and standing.agenda.idle == 0
    answers = standing.acts[0].does in (Does.INFORM, Does.ANSWER, Does.RIGHT, Does.ASK)
    if spare and answers and standing.heeded == len(replies):
        return "ends too early: gives up although the agent gets on with it"
    return None


def _never(brief: UserBrief, conversation: int, replies: Sequence[str]) -> str | None:
    """Going on and on after the end."""
    goals = brief.conversations[conversation - 1].goals
    done = _done_in_turn(goals, replies)
    if len(done) == len(goals) and len(replies) - done[-1] >= TURNS_AFTER_ALL_IS_DONE:
        return "never ends: goes on although it has heard all it came for"
    heeded = standing_after(brief, brief.conversations[conversation - 1], replies).heeded
    if len(replies) - heeded > TURNS_AFTER_PATIENCE + brief.persona.patience:
        return "never ends: goes on although it gets nowhere"
    return None


def _loop(brief: UserBrief, history: History, move: UserMove) -> str | None:
    if not move.text.strip() or _pushes_left(brief, history, move.text):
        return None
    current = current_conversation(history)
    said = [
        words(entry.text)
        for entry in history
        if isinstance(entry, UserSaid) and entry.conversation == current
    ]
    said.append(words(move.text))
    if len(said) >= SAME_IN_A_ROW and len(set(said[-SAME_IN_A_ROW:])) == 1:
        return f"says the same thing {SAME_IN_A_ROW} times in a row"
    if len(said) >= LOOP_WINDOW and len(set(said[-LOOP_WINDOW:])) <= LOOP_TEXTS:
        return f"goes round in a circle for {LOOP_WINDOW} turns"
    return None


def _pushes_left(brief: UserBrief, history: History, text: str) -> bool:
    """Whether the author asks for this very text more often than it was said."""
    voice = Voice(brief, 1, 1)
    pushes = 0
    for conversation in brief.conversations:
        for push in conversation.pushes:
            try:
                pushes += words(voice.filled(push)) == words(text)
            except UnknownFact:
                continue
    said = sum(isinstance(e, UserSaid) and words(e.text) == words(text) for e in history)
    return said < pushes


def _authored(brief: UserBrief) -> Iterator[str]:
    """Every text the scenario's author gave the user to say, as it is said."""
    voice = Voice(brief, 1, 1)
    for conversation in brief.conversations:
        says = (say for goal in conversation.goals for say in goal.say)
        for text in (*says, *conversation.pushes):
            try:
                yield voice.filled(text).strip()
            except UnknownFact:
                continue
    for fact in brief.facts.values():
        yield spoken(fact.value)
    yield from (line.text for line in brief.recording if line.who == "user")
    yield from acting.report_texts(brief)


def _without(text: str, authored: Sequence[str]) -> str:
    for part in sorted(authored, key=len, reverse=True):
        # Short values would cut words apart.
        if len(part) >= 12:
            text = text.replace(part, " ")
    return text
