"""Whether a simulator's move is one that a user could make.

A session whose user speaks as the agent, gives its instructions away, invents facts, loops or
ends at the wrong time says nothing about the agent: it is invalid, not failed. The checks are
deterministic, and apply to every simulator alike. What the scenario's author wrote for the user
to say is never held against the simulator that says it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from schemas.briefs import UserBrief
from services.user_simulator.phrasing import UnknownFact, Voice, spoken
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GOAL_MET,
    AgentSaid,
    History,
    UserMove,
    UserSaid,
    current_conversation,
    next_number,
)

MAX_TURNS = 500
"""The most turns a scenario can allow; a simulator that goes on has lost count."""
MAX_CHARACTERS = 64_000
SAME_IN_A_ROW = 4
"""So many user turns with the same text are a loop ..."""
LOOP_WINDOW, LOOP_TEXTS = 8, 2
"""... and so are so many with only so many different texts."""
LEAK_WORDS = 6

_AI = r"(?:ai|artificial intelligence|language model|virtual assistant|chatbot)"
_SPEAKS_AS_AGENT = re.compile(
    r"^\s*(?:assistant|agent|ai|system|support|bot)\s*:"
    r"|\b(?:how|what) (?:can|may) i (?:help|assist|do for) you\b"
    r"|\banything else (?:that )?i can (?:help|assist|do for)\b"
    rf"|\bas an? {_AI}\b[^.?!]{{0,20}}, i\b|\bi(?:'m| am) (?:just |only )?an? {_AI}\b"
    r"|\bthank you for (?:contacting|reaching out to|choosing) us\b"
    r"|\bi(?:'ve| have) (?:processed|issued|initiated|cancelled) your \w+",
    re.IGNORECASE | re.MULTILINE,
)
_OUT_OF_CHARACTER = re.compile(
    r"\bmy (?:system prompt|persona|instructions|brief)\b|\bthe user brief\b"
    r"|\bsimulat(?:ed|ing|ion|or)\b|\brole-?play(?:ing)?\b|\bstay(?:ing)? in character\b"
    r"|\bi was (?:told|instructed) to (?:play|pretend|act)\b"
    r"|\b(?:done_when|conversation_over|goal_met|give_up|gave_up)\b|\"status\"\s*:"
    r"|</?think(?:ing)?>",
    re.IGNORECASE,
)
_INSTRUCTIVE = re.compile(r"\b(?:you|your|the (?:user|customer|caller|client))\b", re.IGNORECASE)
_CODE = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\w+(?:[-/.]\w+)*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")


def checked(brief: UserBrief, history: History, move: UserMove) -> UserMove:
    """The move as it is, or marked `invalid` with the first thing that is wrong with it."""
    if move.invalid is not None:
        return move
    reason = violation(brief, history, move)
    return move if reason is None else replace(move, invalid=reason)


def violation(brief: UserBrief, history: History, move: UserMove) -> str | None:
    """What no user would do, in a sentence; None if nothing is."""
    authored = tuple(_authored(brief))
    own = _without(move.text, authored)
    return (
        _form(history, move)
        or _ending(brief, history, move)
        or _character(brief, history, own)
        or _leak(brief, own)
        or _invention(brief, history, own)
        or _loop(history, move, authored)
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
    if move.ending is None:
        return None
    current = current_conversation(history)
    if not any(isinstance(e, AgentSaid) and e.conversation == current for e in history):
        return f"ends with {move.ending} before anything was said"
    last = current >= max(1, len(brief.conversations))
    if move.ending == GOAL_MET and not last:
        return "is content with the session although conversations are left"
    if move.ending == CONVERSATION_OVER and last:
        return "goes on to a conversation that does not exist"
    return None


def _character(brief: UserBrief, history: History, own: str) -> str | None:
    if match := _SPEAKS_AS_AGENT.search(own):
        return f"speaks as the agent: {match[0].strip()!r}"
    # A word that the agent used, or that the matter itself is about, is not out of character.
    heard = " ".join((_heard(history), *_authored(brief))).casefold()
    for match in _OUT_OF_CHARACTER.finditer(own):
        if match[0].casefold() not in heard:
            return f"steps out of character: {match[0]!r}"
    return None


def _leak(brief: UserBrief, own: str) -> str | None:
    said = _words(own)
    for instruction in (brief.narrative, brief.persona.description):
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", instruction):
            words = _words(sentence).split()
            # A narrative may lend the user its words, but not its stage directions.
            staged = len(words) >= LEAK_WORDS and _INSTRUCTIVE.search(sentence)
            if staged and f" {' '.join(words)} " in f" {said} ":
                return "says its instructions aloud"
    for conversation in brief.conversations:
        for goal in conversation.goals:
            for pattern in goal.done_when:
                if re.search(r"[\\*+?|(\[{^$]", pattern) and pattern.casefold() in own.casefold():
                    return "says aloud the pattern that it waits for"
    return None


def _invention(brief: UserBrief, history: History, own: str) -> str | None:
    """Addresses and codes that stand nowhere in the brief, and that the agent did not say."""
    known = _squeezed(
        " ".join(
            [
                brief.narrative,
                brief.persona.description,
                *(spoken(fact.value) for fact in brief.facts.values()),
                *(say for fact in brief.facts.values() for say in fact.say),
                *_authored(brief),
                _heard(history),
            ]
        )
    )
    for match in _CODE.finditer(own):
        token = _squeezed(match[0])
        if ("@" in match[0] or _is_code(match[0], token)) and token not in known:
            return f"knows something that it cannot know: {match[0]!r}"
    return None


def _is_code(text: str, token: str) -> bool:
    if token.isdigit():
        return len(token) >= 8 and _DATE.fullmatch(text) is None
    return len(token) >= 6 and sum(c.isdigit() for c in token) >= 3


def _loop(history: History, move: UserMove, authored: Iterable[str]) -> str | None:
    if not move.text.strip() or move.text.strip() in authored:
        return None
    current = current_conversation(history)
    said = [
        _words(entry.text)
        for entry in history
        if isinstance(entry, UserSaid) and entry.conversation == current
    ]
    said.append(_words(move.text))
    if len(said) >= SAME_IN_A_ROW and len(set(said[-SAME_IN_A_ROW:])) == 1:
        return f"says the same thing {SAME_IN_A_ROW} times in a row"
    if len(said) >= LOOP_WINDOW and len(set(said[-LOOP_WINDOW:])) <= LOOP_TEXTS:
        return f"goes round in a circle for {LOOP_WINDOW} turns"
    return None


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


def _heard(history: History) -> str:
    return " ".join(entry.text for entry in history if isinstance(entry, AgentSaid))


def _without(text: str, authored: Iterable[str]) -> str:
    for part in sorted(authored, key=len, reverse=True):
        # Short values would cut words apart.
        if len(part) >= 12:
            text = text.replace(part, " ")
    return text


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _squeezed(text: str) -> str:
    return re.sub(r"[^\w@]|_", "", text.casefold())
