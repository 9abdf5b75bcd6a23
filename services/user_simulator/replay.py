"""A recorded conversation, said again to another agent.

As long as the agent means what the recording's agent meant - by the rules of `hearing`, not word
by word - the user says what was recorded. From the first answer that means something else the
agenda takes over, with the brief's goals and facts, or with those that the recording shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from schemas.briefs import UserBrief
from schemas.model import Pattern
from schemas.pins import AGENDA
from schemas.trajectory import TrajectoryEvent
from schemas.user import Conversation, Fact, UserGoal
from services.user_simulator.agenda import plan
from services.user_simulator.hearing import Heard, hear, sentences
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    AgentSaid,
    Ending,
    History,
    UserMove,
    UserSaid,
)
from services.user_simulator.standing import own_words

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

    entries: History
    ending: Ending | None = None
    """None if the session ended in another way: the user then never came to leave."""


class ReplaySimulator:
    """Plays one recording."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def pin(self) -> str:
        return f"replay/1, {AGENDA}"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        return replayed(brief, self._recording, history)


def recording_of(events: Iterable[TrajectoryEvent]) -> Recording:
    """The conversations of a trajectory, up to an answer that failed or a turn that was invalid."""
    entries: list[UserSaid | AgentSaid] = []
    ending: Ending | None = None
    for event in events:
        if turn := event.user_turn:
            if turn.invalid is not None:
                break
            entries.append(UserSaid(event.conversation, turn.text, turn.ending is not None))
            ending = _ending(turn.ending)
        elif answer := event.agent_turn:
            if answer.outcome != "ok":
                break
            entries.append(AgentSaid(event.conversation, answer.final_response))
    return Recording(tuple(entries), ending)


def replayed(brief: UserBrief, recording: Recording, history: History) -> UserMove:
    """The recorded turn, or the agenda's where the conversation has gone another way. Pure.

    Raises:
        ValueError: it is not the user's turn, or all conversations are over.
    """
    brief = briefed(brief, recording)
    due = recording.entries[len(history)] if len(history) < len(recording.entries) else None
    if not isinstance(due, UserSaid) or not _follows(brief, recording, history):
        return plan(brief, history)
    if not due.closing:
        return UserMove(due.text)
    if due.conversation < len(brief.conversations):
        return UserMove(due.text, ending=CONVERSATION_OVER)
    return UserMove(due.text, ending=recording.ending or GAVE_UP)


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


def _follows(brief: UserBrief, recording: Recording, history: History) -> bool:
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


def _facts(entries: History) -> Iterator[tuple[str, str]]:
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


def _ending(ending: str | None) -> Ending | None:
    return GOAL_MET if ending == GOAL_MET else GAVE_UP if ending == GAVE_UP else None
