"""Whether a user says something that this user cannot know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from schemas.briefs import UserBrief
from services.user_simulator.acting import said_by_tools
from services.user_simulator.phrasing import spoken
from services.user_simulator.simulator import AgentSaid, History
from services.user_simulator.stating import squeezed

_CODE = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\w+(?:[-/.]\w+)*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
_SPACED_NUMBER = re.compile(r"\+?\d{2,6}(?:[ -]\d{2,6}){2,6}")
_STREET = re.compile(
    r"\b\d{1,4}[a-z]? (?:[A-Z][a-z]+ ){1,3}(?:Street|Road|Avenue|Lane|Drive|Close|Row|Square|Way)\b"
)
_NAME = re.compile(
    r"\b(?i:my (?:full |last |first )?name(?: is|'s)|i(?:'m| am) called) "
    r"((?:[A-Z][\w'-]+)(?: [A-Z][\w'-]+){0,2})"
)
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")


def invention(brief: UserBrief, history: History, own: str, authored: Iterable[str]) -> str | None:
    """What stands nowhere in the brief, and the agent did not say; None if there is nothing.

    Codes, addresses, long numbers and names are looked for, and what the user is still waiting to
    hear: the figures in a goal's `done_when`, which only the agent can tell.
    """
    known = squeezed(" ".join([*_known(brief, history), *authored]))
    for token in _telling(own):
        if squeezed(token) not in known:
            return f"knows something that it cannot know: {token!r}"
    awaited = set(_awaited(brief))
    for match in _NUMBER.finditer(own):
        number = squeezed(match[0])
        if number in awaited and number not in known:
            return f"knows something that only the agent can tell: {match[0]!r}"
    return None


def _known(brief: UserBrief, history: History) -> Iterator[str]:
    yield brief.narrative
    yield brief.persona.description
    for fact in brief.facts.values():
        yield spoken(fact.value)
        yield from fact.say
    yield from (entry.text for entry in history if isinstance(entry, AgentSaid))
    yield from said_by_tools(history)


def _telling(own: str) -> Iterator[str]:
    """Everything in a text that somebody has to have been told."""
    for match in _CODE.finditer(own):
        if "@" in match[0] or _is_code(match[0], squeezed(match[0])):
            yield match[0]
    for pattern in (_SPACED_NUMBER, _STREET):
        for match in pattern.finditer(own):
            if _DATE.fullmatch(match[0]) is None:
                yield match[0]
    for match in _NAME.finditer(own):
        yield match[1]


def _is_code(text: str, token: str) -> bool:
    if token.isdigit():
        return len(token) >= 8 and _DATE.fullmatch(text) is None
    return len(token) >= 6 and sum(c.isdigit() for c in token) >= 3


def _awaited(brief: UserBrief) -> Iterator[str]:
    """Figures of at least three digits that stand literally in what the goals wait for."""
    for conversation in brief.conversations:
        for goal in conversation.goals:
            for pattern in goal.done_when:
                literal = re.sub(r"\\([.,-])", r"\1", re.sub(r"\{\d+(?:,\d*)?\}", " ", pattern))
                for match in _NUMBER.finditer(literal):
                    number = squeezed(match[0])
                    if len(number) >= 3:
                        yield number
