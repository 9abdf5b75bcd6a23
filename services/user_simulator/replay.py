"""A recorded conversation, said again to another agent.

As long as the agent means what the recording's agent meant - by the rules of `hearing`, not word
by word - the user says what was recorded. From the first answer that means something else whoever
plays the scenario's other users takes over, with the brief's goals and facts, or with those that
the recording shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from schemas.briefs import UserBrief
from schemas.model import Pattern
from schemas.pins import REPLAY
from schemas.user import Conversation, Fact, RecordedLine, UserGoal
from services.user_simulator.acting import conversation_alone, due_act
from services.user_simulator.agenda import plan
from services.user_simulator.hearing import Heard, hear, sentences
from services.user_simulator.phrasing import UnknownFact
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    AgentSaid,
    Ending,
    History,
    Talk,
    UserMove,
    UserSaid,
    UserSimulator,
)
from services.user_simulator.standing import own_words
from services.user_simulator.validity import violation

SAME_QUESTION = 0.4
"""Two questions that no fact answers are the same if they share so much of their words."""
MAX_VALUE_WORDS = 4
"""An answer of at most so many words is a fact as it stands."""

_NEVER = Pattern(r"(?!)")
_ASKED_FOR = re.compile(r"\b(?:your|the) ((?:[a-z][\w-]* ){0,2}?[a-z][\w-]*)(?= (?:on|for|of|from|in|is)\b|[?.,!:;]|$)", re.I)  # fmt: skip  # noqa: E501
_VALUE = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?=[\w-]*\d{2})[A-Za-z\d]+(?:-[A-Za-z\d]+)*")


@dataclass(frozen=True, slots=True)
class Recording:
    """What was said in a session, and how its user left it."""

    entries: Talk
    ending: Ending | None = None
    """None if nothing tells: the user then never came to leave."""


class ReplaySimulator:
    """Plays users who have a recording; `rest` plays the others, and those whose agent says other
    things than the recorded one did.

    Args:
        improvises: `rest` can play a user who is described in words only.
    """

    def __init__(self, rest: UserSimulator, *, improvises: bool = False) -> None:
        self._rest = rest
        self._improvises = improvises

    def pin(self) -> str:
        return f"{self._rest.pin()}, {REPLAY}"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        if not brief.recording:
            return await self._rest.next_turn(brief, history)
        recording = recording_of(brief.recording)
        move = said_again(brief, recording, history)
        if move is not None:
            return move
        known = briefed(brief, recording)
        if self._improvises and brief.narrative and not brief.conversations:
            # The words say what this user wants; a model needs no goals made up from the recording.
            known = known.model_copy(update={"conversations": ()})
        return replace(await self._rest.next_turn(known, history), replayed=False)


def recording_of(lines: Iterable[RecordedLine]) -> Recording:
    """The conversations of written lines.

    Lines of one side in a row are one turn, and what the agent says before the user's first word
    is left out: here the user speaks first. Where no line says how the user left, a last line of
    the user's is a leave-taking; the user is then content unless the agent's last answer refuses,
    asks, or has trouble.
    """
    entries: list[UserSaid | AgentSaid] = []
    ending: Ending | None = None
    number, opened = 1, False
    for line in lines:
        last = entries[-1] if opened else None
        if line.who == "agent":
            if isinstance(last, AgentSaid):
                entries[-1] = replace(last, text=f"{last.text}\n{line.text}")
            elif opened:
                entries.append(AgentSaid(number, line.text))
            continue
        if isinstance(last, UserSaid):
            text = f"{last.text}\n{line.text}".strip()
            entries[-1] = replace(last, text=text, closing=line.ending is not None)
        else:
            entries.append(UserSaid(number, line.text, line.ending is not None))
        opened = line.ending is None
        if line.ending is not None:
            number += 1
            ending = line.ending
    if not opened or len(entries) < 2:
        return Recording(tuple(entries), _final(ending))
    last, before = entries[-1], entries[-2]
    answer = last if isinstance(last, AgentSaid) else before
    if isinstance(last, UserSaid) and isinstance(before, AgentSaid):
        entries[-1] = replace(last, closing=True)
    content = isinstance(answer, AgentSaid) and _contents(answer.text)
    return Recording(tuple(entries), GOAL_MET if content else GAVE_UP)


def replayed(brief: UserBrief, recording: Recording, history: History) -> UserMove:
    """The recorded turn, or the agenda's where the conversation has gone another way. Pure.

    Raises:
        ValueError: it is not the user's turn, or all conversations are over.
    """
    move = said_again(brief, recording, history)
    return move or replace(plan(briefed(brief, recording), history), replayed=False)


def said_again(brief: UserBrief, recording: Recording, history: History) -> UserMove | None:
    """The recorded turn; None where it does not fit what has been said, or no user could make it
    now: giving up on an agent that gets on with it, say."""
    said = conversation_alone(history)
    due = recording.entries[len(said)] if len(said) < len(recording.entries) else None
    known = briefed(brief, recording)
    if not isinstance(due, UserSaid) or not _follows(known, recording, said):
        return None
    try:
        if act := due_act(brief, history):
            return UserMove("", act=act, replayed=True)
    except UnknownFact as error:
        return UserMove("", invalid=f"the scenario's text cannot be said: {error}")
    ending = None
    if due.closing:
        more = due.conversation < len(known.conversations)
        ending = CONVERSATION_OVER if more else recording.ending or GAVE_UP
    move = UserMove(due.text, ending=ending, replayed=True)
    return move if violation(brief, history, move) is None else None


def briefed(brief: UserBrief, recording: Recording) -> UserBrief:
    """The brief, with goals and facts from the recording if it has no goals of its own."""
    if brief.conversations or not recording.entries:
        return brief
    facts = {name: Fact(value=value) for name, value in _facts(recording.entries)}
    return brief.model_copy(
        update={
            "facts": {**facts, **brief.facts},
            "conversations": tuple(_conversations(recording)),
        }
    )


def _follows(brief: UserBrief, recording: Recording, history: Talk) -> bool:
    """Whether everything so far went as recorded."""
    words = " ".join(
        [own_words(brief), *(e.text for e in recording.entries if isinstance(e, UserSaid))]
    )
    for then, now in zip(recording.entries, history, strict=False):
        if isinstance(then, UserSaid):
            if then != now:
                return False
        elif not isinstance(now, AgentSaid) or then.conversation != now.conversation:
            return False
        elif then.text != now.text:
            goals = brief.conversations[then.conversation - 1].goals
            done_when = [pattern for goal in goals for pattern in goal.done_when]
            meant, means = (hear(e.text, brief.facts, done_when, words) for e in (then, now))
            if not _same(meant, means, then.text, now.text):
                return False
    return True


def _same(meant: Heard, means: Heard, then: str, now: str) -> bool:
    """Whether the recorded turn is an answer to what the agent says now."""
    if means.mistaken or means.mistook_matter:
        return False
    if _sense(meant) != _sense(means):
        return False
    if not (means.asks_other or means.confirmation):
        return True
    one, other = _question_words(then), _question_words(now)
    return len(one & other) >= SAME_QUESTION * len(one | other)


def _sense(heard: Heard) -> tuple[object, ...]:
    return (
        heard.done, heard.asked, heard.asks_other, bool(heard.confirmation), heard.checked,
        heard.refused, heard.trouble, heard.hold_on,
    )  # fmt: skip


def _question_words(text: str) -> set[str]:
    asked = " ".join(sentence for sentence, is_request in sentences(text) if is_request)
    return set(re.findall(r"\w+", asked.casefold()))


def _facts(entries: Talk) -> Iterator[tuple[str, str]]:
    """Names and values: what the agent asked for, and what the user then said."""
    for question, answer in pairwise(entries):
        if not isinstance(question, AgentSaid) or not isinstance(answer, UserSaid):
            continue
        names = [
            match[1]
            for sentence, is_request in sentences(question.text)
            if is_request
            for match in [_ASKED_FOR.search(sentence)]
            if match is not None
        ]
        values = _VALUE.findall(answer.text)
        if not values and len(answer.text.split()) <= MAX_VALUE_WORDS:
            values = [answer.text.strip(" .!")]
        # With several of either nobody can tell which belongs to which.
        if len(names) == len(values) == 1 and values[0]:
            yield re.sub(r"\W+", "_", names[0].casefold()), values[0]


def _conversations(recording: Recording) -> Iterator[Conversation]:
    numbers = sorted({entry.conversation for entry in recording.entries})
    for number in numbers:
        entries = [entry for entry in recording.entries if entry.conversation == number]
        opening = next(entry.text for entry in entries if isinstance(entry, UserSaid))
        answers = [entry.text for entry in entries if isinstance(entry, AgentSaid)]
        met = number < numbers[-1] or recording.ending == GOAL_MET
        done = _done_when(answers[-1]) if met and answers else _NEVER
        yield Conversation(goals=(UserGoal(say=(opening,), done_when=(done,)),))


def _done_when(answer: str) -> Pattern:
    """The first statement of the answer that contented the user, whatever its figures."""
    statements = [s for s, is_request in sentences(answer) if not is_request and "?" not in s]
    parts = re.findall(r"\S+", statements[0] if statements else answer)
    if not parts:
        return _NEVER
    return Pattern(
        r"\s+".join(r"\S+" if re.search(r"\d", part) else re.escape(part) for part in parts)
    )


def _contents(answer: str) -> bool:
    """Whether a user may leave content after this answer, as far as its words tell."""
    heard = hear(answer, {}, ())
    unsettled = heard.asks_other or heard.confirmation or heard.hold_on
    return not (unsettled or heard.refused or heard.trouble)


def _final(ending: Ending | None) -> Ending | None:
    return None if ending == CONVERSATION_OVER else ending
