"""What is said about words: tone, leaks, and patterns that match too much. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from schemas.model import Pattern

GRAM = 4
"""So many words in a row, at least two of them telling, do not recur by chance."""

_TONE = re.compile(
    r"\b(tone|empath\w*|sympath\w*|compassion\w*|polite\w*|courte\w*|friendl\w*|kindly|warmth|"
    r"warmly|rude\w*|impolite\w*|respectful\w*|professional(?:ly|ism)?|pleasant\w*|cheerful\w*|"
    r"reassuring\w*|caring|natural[- ]sounding|human[- ]like|well[- ]written|helpful(?:ly|ness)?|"
    r"satisf(?:ied|action|ying)|(?:overall|good|high|great) quality|user experience|"
    r"goal (?:is|was|has been) (?:met|achieved|reached))\b",
    re.IGNORECASE,
)
_NORM = r"(?:must|should|shall|has to|have to|needs? to|is expected to|is supposed to|may not)"
_JUDGES = re.compile(
    rf"\b(?:the )?(?:agent|assistant|bot|chatbot|model)\b[^.;:]{{0,40}}\b{_NORM}\b"
    r"|\b(?:must|should) (?:never |not )+be \w+(?:ed|id|en)\b"
    r"|\bwould be (?:wrong|right|correct|a mistake|a violation)\b"
    r"|\bthe (?:correct|right|expected|desired) (?:answer|outcome|behaviou?r|result|reaction)\b"
    r"|\b(?:this|the) (?:scenario|test)\b|\btests? whether\b|\bsimulat(?:ion|ed user)\b",
    re.IGNORECASE,
)
_STOP_WORDS = """
a about after all also an and any are as at be because been before but by can could did do does for
from get had has have he her him his how i if in into is it its just me more must my no not of on
one or other our out should so some than that the their them then there they this to up was we were
what when where which who will with would you your agent user
"""
_STOP = frozenset(_STOP_WORDS.split())
_WORD = re.compile(r"[\w'&@.-]*\w")
NOTHING = ("I'm sorry, I cannot help with that.", "Zebras graze quietly near 41 rivers")
"""Answers that do nothing: what a refusing agent says, and words that belong to no goal."""


def tone(text: str) -> str:
    """The word that makes a criterion one about tone; empty if there is none."""
    found = _TONE.search(text)
    return found[0] if found else ""


def judging(text: str) -> str:
    """What in a user's briefing is meant for the judge; empty if nothing."""
    found = _JUDGES.search(text)
    return " ".join(found[0].split()) if found else ""


def grams(text: str) -> Iterator[str]:
    """Telling runs of words."""
    words = [word.lower() for word in _WORD.findall(text)]
    for start in range(len(words) - GRAM + 1):
        run = words[start : start + GRAM]
        if sum(word not in _STOP for word in run) >= 2:
            yield " ".join(run)


def literal(pattern: str) -> str:
    """The words of a regular expression, without its signs."""
    unescaped = re.sub(r"\\(?=\W)", "", re.sub(r"\\[A-Za-z]|(?<!\\)\.(?=[*+?])", " ", pattern))
    return " ".join(re.sub(r"[\^$|?*+()\[\]{}]", " ", unescaped).split())


def telling_values(value: Any) -> Iterator[str]:
    """The texts in a JSON value that nobody says by chance: numbers of two digits, longer words."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, dict):
        for item in value.values():
            yield from telling_values(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from telling_values(item)
    elif isinstance(value, int | float):
        if abs(value) >= 10:
            yield f"{value:g}" if abs(value) < 1e6 else str(value)
            yield f"{value:.2f}"
    elif len(value) >= 4 and value.lower() not in _STOP:
        yield value


def says(text: str, value: str) -> bool:
    """Whether a text has a value in it, as a word."""
    return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None


def matches_anything(pattern: Pattern) -> bool:
    """Whether a pattern is found even in answers that do nothing."""
    return all(pattern.found_in(text) for text in NOTHING)


def first_shared(user: Iterable[str], judge: Iterable[str]) -> str:
    """The first telling run of words that both have; empty if none."""
    told = {gram for text in user for gram in grams(text)}
    return next((gram for text in judge for gram in grams(text) if gram in told), "")
