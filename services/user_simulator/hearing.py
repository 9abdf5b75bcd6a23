"""What a user makes of an agent's answer: plain rules over its text.

Sentence by sentence: a request or question may ask for facts, another kind of question asks for
a go-ahead; a statement may refuse, ask to wait, or say that something was done.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from schemas.model import Pattern
from schemas.user import Fact
from services.user_simulator.phrasing import name_pattern
from services.user_simulator.stating import Stated, stated


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


# A full stop after a digit may be a list's number: not a boundary.
_BOUNDARY = re.compile(r"(?<=[.?!])(?<!\d\.)[\"')\]*]*\s+|\n+")
_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d+[.)])\s")

_NOT_A_REQUEST = _any(
    r"\b(?:no|don't|do not|won't|will not) need\b",
    r"\b(?:don't|do not|never) (?:share|give|send|tell|provide|post|enter)\b",
)
_REQUEST = _any(
    r"\bplease (?:also |then |first )?(?:provide|give|tell|send|share|enter|state|specify|type|"
    r"supply|include|confirm|verify|let (?:me|us) know|reply with)\b",
    r"\b(?:could|can|would|will) you (?:please |kindly |also |just )*(?:provide|give|tell|send|"
    r"share|enter|state|specify|type|supply|include|confirm|verify|let (?:me|us) know)\b",
    r"\b(?:may|can|could) (?:i|we) (?:please |also )?(?:have|get|ask)\b",
    r"\b(?:i|we)(?:'ll| will| would| do| also| still| just| first)* (?:need|require)\b",
    r"\b(?:tell|give|send) (?:me|us)\b",
    r"\blet (?:me|us) know\b",
)
_GO_AHEAD = _any(
    r"\b(?:shall|should) (?:i|we)\b",
    r"\b(?:do|would) you (?:want|like|wish|prefer)(?: for)? (?:me|us) to\b",
    r"\b(?:may|can|could) (?:i|we) (?:now )?(?:go ahead|proceed|continue)\b",
    r"\bwould you like to (?:go ahead|proceed|continue)\b",
    r"\bdo you (?:want to|wish to) (?:go ahead|proceed|continue)\b",
    r"\b(?:ok|okay|ready|happy) (?:for (?:me|us) )?to (?:go ahead|proceed|continue)\b",
    r"\bare you sure\b",
    r"\bdo you (?:confirm|agree|consent|approve|authori[sz]e)\b",
    r"\bdo (?:i|we) have your (?:permission|consent|approval|go-ahead|ok)\b",
    r"\b(?:is|would) (?:that|this) (?:be )?(?:ok|okay|all ?right|fine|acceptable)\b",
    r"\b(?:reply|answer|say|type) (?:with )?[\"'*]*(?:yes|confirm)\b",
)
_CONFIRM = _any(
    r"\b(?:is|are|was|were|does) (?:that|this|these|those|it|they|everything|all)\b.{0,40}"
    r"\b(?:correct|right|accurate)\b",
    r"\b(?:correct|right)\?",
    r"\bplease confirm\b",
    r"\b(?:can|could|would) you (?:please )?confirm\b",
    r"\bto confirm[,:]",
)
_IS_IT = _any(r"^\W*(?:so|and|then|okay|ok)?\W*(?:is|was|are) (?:your|the|this|that|it)\b")
_ANYTHING_ELSE = _any(
    r"\b(?:any|some)thing (?:else|more|further)\b", r"\bfurther (?:assistance|help|questions)\b"
)
_OPEN = _any(
    r"\b(?:can|may|could) (?:i|we) (?:help|assist|do for)\b",
    r"\bwhat (?:can|may|could) (?:i|we) do\b",
    r"\b(?:how|what) would you like\b",
    r"\b(?:does|did) (?:that|this|it) (?:help|answer|solve|resolve|work)\b",
    r"\b(?:rephrase|clarify|elaborate|reword)\b",
    r"\b(?:say|repeat|explain) (?:that|it|this|your (?:question|request))\b",
    r"\bwhat (?:do|did) you mean\b",
)
_REFUSAL = _any(
    r"(?<!you )\b(?:can't|cannot|can not)\b(?! (?:wait|thank))",
    r"\b(?:i|we) (?:could not|couldn't|won't|will not|must not|may not)\b",
    r"\b(?:won't|will not) be able\b",
    r"\b(?:unable|not able|not allowed|not permitted|not authori[sz]ed|not possible|impossible)\b",
    r"\b(?:wasn't|weren't|isn't|aren't) (?:able|allowed|permitted|possible)\b",
    r"\bonly (?:\w+ ){0,4}?(?:after|once)\b",
    r"\b(?:must|have to|need to) (?:decline|refuse)\b",
    r"\bagainst (?:our|the|company) (?:policy|policies|rules)\b",
)
_OUT_OF_ORDER = _any(
    r"\btemporar(?:y|ily)\b", r"\boutage\b",
    r"\btechnical (?:\w+ )?(?:problem|issue|diffic|err|fault)",
    r"\btim(?:ed|ing) ?-?out\b", r"\btime-?out\b", r"\bnot responding\b", r"\boverloaded\b",
    r"\btoo many requests\b", r"\b(?:system|service|server|network|connection|database)s?\b.{0,40}"
    r"\b(?:down|slow|busy|problem|issue|trouble|error|unavailable|not available|fail\w*)\b",
    r"\b(?:reach|connect to|access|contact) (?:the|our) (?:\w+ ){0,2}"
    r"(?:system|service|server|database)",
)  # fmt: skip
_TROUBLE = _any(
    r"\b(?:un|not )available\b", r"\berrors?\b", r"\b(?:trouble|problem|issue|difficult(?:y|ies)) "
    r"(?:with|in|reaching|accessing|connecting|processing|looking)\b", r"\bwent wrong\b",
)  # fmt: skip
_TRY_AGAIN = _any(
    r"\b(?:try|trying) (?:\w+ ){0,3}?(?:again|later|once more)\b", r"\bretry(?:ing)?\b",
    r"\bcheck back\b", r"\b(?:come|get) back (?:later|in)\b",
)  # fmt: skip
_HOLD_ON = _any(
    r"\bplease (?:wait|hold)\b", r"\b(?:hold on|bear with (?:me|us)|hang on)\b",
    r"\b(?:in|for|give me) a (?:\w+ )?(?:moment|minutes?|second)\b",
    r"\b(?:just|one|another) (?:moment|minute|second)\b",
)  # fmt: skip
_SORRY = _any(r"\b(?:sorry|apolog\w+|unfortunately|afraid)\b")


@dataclass(frozen=True, slots=True)
class Heard:
    """An agent's answer as the user understands it."""

    done: bool
    """One of the current goal's `done_when` patterns was found."""
    asked: tuple[str, ...]
    """Names of the user's facts that were asked for, in the brief's order."""
    asks_other: bool
    """Something was asked that no fact answers."""
    confirmation: str
    """The question for a go-ahead or a check, normalised; empty if there was none."""
    checked: tuple[str, ...]
    """Names of facts whose right values were said to have them confirmed."""
    mistaken: tuple[str, ...]
    """Names of facts about which the agent said something wrong."""
    mistook_matter: bool
    """The agent proposes something about a code that is not the one the user spoke of."""
    refused: bool
    trouble: bool
    """Something does not work at the moment; it may work later."""
    hold_on: bool
    """The user is asked to wait, whatever for."""


def hear(
    text: str, facts: Mapping[str, Fact], done_when: Iterable[Pattern], words: str = ""
) -> Heard:
    """Understand one answer of the agent.

    `words` are all the user's own texts: an agent that repeats them is not mistaken.

    `done_when` is searched in the whole answer as it was written: the scenario's author says
    with it what the user must hear. Everything else is told sentence by sentence.
    """
    plain = text.replace("\u2019", "'")
    asked: set[str] = set()
    questions: list[str] = []
    asks_other = False
    claims, checked = Stated(), set[str]()
    for sentence, is_request in sentences(plain):
        go_ahead = _found(_GO_AHEAD, sentence)
        checks = is_request and _is_check(sentence)
        claim = stated(sentence, facts, words, proposes=go_ahead or checks)
        claims |= claim
        if _ANYTHING_ELSE.search(sentence) or _OPEN.search(sentence):
            continue
        if go_ahead:
            questions.append(sentence)
            continue
        if not is_request:
            continue
        given = claim.wrong | (claim.right if checks else set())
        checked |= given - claim.wrong
        found = _facts_asked(sentence, facts) - given
        asked |= found
        if found or given:
            continue
        if _CONFIRM.search(sentence):
            questions.append(sentence)
        elif not _HOLD_ON.search(sentence) and not _TRY_AGAIN.search(sentence):
            asks_other = True
    refused, hold_on = _found(_REFUSAL, plain), _found(_HOLD_ON, plain)
    later = hold_on or _found(_TRY_AGAIN, plain)
    trouble = (later and _found(_TROUBLE, plain)) or (
        (later or refused or _found(_SORRY, plain)) and _found(_OUT_OF_ORDER, plain)
    )
    return Heard(
        done=any(pattern.found_in(text) for pattern in done_when),
        asked=tuple(name for name in facts if name in asked),
        asks_other=asks_other,
        confirmation=" ".join(" ".join(questions).casefold().split()),
        checked=tuple(name for name in facts if name in checked),
        mistaken=tuple(name for name in facts if name in claims.wrong),
        mistook_matter=claims.wrong_matter,
        refused=refused,
        trouble=trouble,
        hold_on=hold_on,
    )


def _found(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.search(text) is not None


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Each sentence, and whether it asks for something; list items share their heading's."""
    heading = False
    for sentence in _BOUNDARY.split(text):
        if not sentence.strip():
            continue
        bullet = _BULLET.match(sentence) is not None
        own = ("?" in sentence or _REQUEST.search(sentence) is not None) and (
            _NOT_A_REQUEST.search(sentence) is None
        )
        if not bullet:
            heading = own and sentence.rstrip().rstrip("*").endswith(":")
        yield sentence, own or (bullet and heading)


def _facts_asked(sentence: str, facts: Mapping[str, Fact]) -> set[str]:
    """The facts a request names; `email` is not asked for by 'your new email' if that is one."""
    spans = [
        (match.start(), match.end(), name)
        for name, fact in facts.items()
        for pattern in (name_pattern(name), *map(_compiled, fact.ask))
        if (match := pattern.search(sentence)) is not None
    ]
    return {
        name
        for start, end, name in spans
        if not any(s <= start and end <= e and (e - s) > (end - start) for s, e, _ in spans)
    }


def _is_check(sentence: str) -> bool:
    """Whether a question gives a value to have it confirmed, rather than asking for one."""
    return _found(_CONFIRM, sentence) or (_found(_IS_IT, sentence) and " or " not in sentence)


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
