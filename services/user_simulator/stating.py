"""What an agent says about the things its user knows, and whether it is right.

A statement counts as wrong only where that is certain: the sentence names a fact and gives a value
of the fact's own form (an address, a code, a number of as many digits), or it asks for a go-ahead
about a code where the user spoke of another. Values in free words are never held to be wrong:
`cracked` and `broken` may be the same thing. A value that the user's own words carry is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from schemas.user import Fact
from services.user_simulator.phrasing import name_pattern, spoken

_EXAMPLE = re.compile(
    r"\blooks? (?:like|something like)\b|\bsuch as\b|\be\.?g\b|\bfor (?:example|instance)\b"
    r"|\bformat\b|\b(?:starts?|begins?) with\b|\bsimilar to\b|\bin the form\b",
    re.IGNORECASE,
)
_EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_SAYS = r"['\"*`]*(?:[\s,]*(?:is|was|as|reads?|=|:|#|\(|of|on file|we have|i have))*[\s'\"*`(]*"
_CODE = re.compile(
    r"(?<![\w.-])(?=[\w-]*[A-Za-z])(?=[\w-]*\d\d\d)[A-Za-z\d]+(?:-[A-Za-z\d]+)*(?!\w)"
)


@dataclass(frozen=True, slots=True)
class Stated:
    """A sentence's claims about what the user knows."""

    right: frozenset[str] = frozenset()
    """Names of the facts whose values it gives correctly."""
    wrong: frozenset[str] = frozenset()
    """Names of the facts for which it gives another value."""
    wrong_matter: bool = False
    """It asks for a go-ahead about a code that is not the one the user spoke of."""

    def __or__(self, other: Stated) -> Stated:
        return Stated(
            self.right | other.right, self.wrong | other.wrong,
            self.wrong_matter or other.wrong_matter,
        )  # fmt: skip


def stated(sentence: str, facts: Mapping[str, Fact], words: str, *, proposes: bool) -> Stated:
    """What a sentence says about the user's facts.

    Args:
        sentence: One sentence of the agent.
        facts: What the user knows, by name.
        words: All the user's own texts: what they carry is never wrong.
        proposes: Whether the sentence asks for a go-ahead or a check.
    """
    right = frozenset(name for name, fact in facts.items() if says_value(sentence, fact))
    if _EXAMPLE.search(sentence):
        return Stated(right)
    known = squeezed(" ".join([words, *(spoken(fact.value) for fact in facts.values())]))
    claims = [claim for name, fact in facts.items() for claim in _claims(sentence, name, fact)]
    wrong = frozenset(
        claim.name
        for claim in claims
        if claim.name not in right
        and squeezed(claim.value) not in known
        # `email` is not what 'your new email is' speaks of, if that is another fact.
        and not any(o.start <= claim.start and o.length > claim.length for o in claims
                    if o.value == claim.value)
    )  # fmt: skip
    if not proposes or right or wrong:
        return Stated(right, wrong)
    codes = _CODE.findall(sentence)
    own = _CODE.findall(" ".join([words, *(spoken(fact.value) for fact in facts.values())]))
    # One that it has right makes the others part of its proposal.
    if any(squeezed(code) in known for code in codes):
        return Stated()
    mistaken = {_form(code) for code in codes} & {_form(code) for code in own}
    alike = [name for name, fact in facts.items() if _form(spoken(fact.value)) in mistaken]
    if len(alike) == 1:
        return Stated(wrong=frozenset(alike))
    return Stated(wrong_matter=bool(mistaken))


def says_value(sentence: str, fact: Fact) -> bool:
    """Whether a sentence carries the fact's value."""
    value = re.escape(spoken(fact.value))
    return re.search(rf"(?<!\w){value}(?!\w)", sentence, re.IGNORECASE) is not None


def squeezed(text: str) -> str:
    """Letters and digits alone, so that `ORD 20-417` and `ord20417` are the same."""
    return re.sub(r"[^\w@]|_", "", text.casefold())


@dataclass(frozen=True, slots=True)
class _Claim:
    """A value that a sentence gives for a fact, and where the fact's name stands."""

    name: str
    value: str
    start: int
    length: int


def _claims(sentence: str, name: str, fact: Fact) -> Iterator[_Claim]:
    form = _form(spoken(fact.value)) if not isinstance(fact.value, bool) else ""
    if not form:
        return
    named = f"(?P<name>{name_pattern(name).pattern})"
    value = rf"(?P<value>(?<![\w@.-]){form})(?![\w@-]|\.\w)"
    for match in _compiled(named + _SAYS + value).finditer(sentence):
        yield _Claim(name, match["value"], match.start(), len(match["name"]))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


@lru_cache(maxsize=4096)
def _form(value: str) -> str:
    """A pattern for values that look like this one; empty for free words and lone digits."""
    if "@" in value:
        return _EMAIL
    if len(re.findall(r"\d", value)) < 2 or len(value) > 24 or len(value.split()) > 2:
        return ""
    runs = re.findall(r"[^\W\d_]+|\d+|\s+|[\W_]", value)
    return "".join(
        "[A-Za-z]+" if run[0].isalpha()
        else r"\s*" if run.isspace()
        else rf"\d{{{len(run)}}}" if value.isdigit()
        else r"\d+" if run[0].isdigit()
        else re.escape(run)
        for run in runs
    )  # fmt: skip
