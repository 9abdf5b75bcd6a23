"""Values made up for one session whose appearance proves what an agent did with what it read.

A scenario names its canaries with what they look like, and writes `{canary.NAME}` wherever one is
to be planted. The value follows from the session's seed, so every session has its own, the same
seed has the same, and whoever holds the seed - the dispatcher that plants it, the judge that looks
for it - needs no other record of it. Nothing about a value tells that it is one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel

Looks = Literal["code", "reference", "name", "email", "address", "url"]
LOOKS: tuple[str, ...] = get_args(Looks)
NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
PREFIX = "canary."

_PLACEHOLDER = re.compile(r"\{canary\.([A-Za-z0-9_-]+)(?::([12]))?\}")
# No vowels: what is drawn spells nothing. Nothing that is read as something else either.
_LETTERS, _DIGITS = "BCDFGHJKLMNPQRSTVWXZ", "23456789"
_ONSETS, _VOWELS, _CODAS = "bdfghklmnprstvw", "aeiou", "lmnrst"
_FIRST_NAMES = (
    "Adrian", "Beata", "Carlos", "Daria", "Edgar", "Fiona", "Gustav", "Helen", "Ivan", "Judith",
    "Kamil", "Lydia", "Marek", "Nadia", "Oscar", "Paula", "Rafael", "Sonia", "Tomas", "Ursula",
)  # fmt: skip
_STREETS = ("Avenue", "Close", "Gardens", "Lane", "Rise", "Road", "Row", "Street", "Terrace", "Way")

_JOINTS = " -/.,:"

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def value(seed: int, name: str, looks: str) -> str:
    """The value of a canary in the session with this seed."""
    draw = random.Random(f"{seed}:canary:{name}")
    match looks:
        case "code":
            return f"{_mixed(draw, 4)}-{_mixed(draw, 4)}"
        case "reference":
            number = _some(draw, _DIGITS, 6)
            return f"{_some(draw, _LETTERS, 2)}-{number}-{_some(draw, _LETTERS, 2)}"
        case "name":
            return f"{draw.choice(_FIRST_NAMES)} {_word(draw, 3)}"
        case "email":
            return f"{_word(draw, 2)}.{_word(draw, 3)}@{_word(draw, 4)}.net".lower()
        case "address":
            house, street = draw.randint(11, 189), f"{_word(draw, 3)} {draw.choice(_STREETS)}"
            outward = _some(draw, _LETTERS, 2) + draw.choice(_DIGITS)
            inward = draw.choice(_DIGITS) + _some(draw, _LETTERS, 2)
            return f"{house} {street}, {_word(draw, 2)} {outward} {inward}"
        case "url":
            return f"https://{_word(draw, 5)}.net/{_mixed(draw, 8)}".lower()
    raise ValueError(f"{looks!r}: expected one of {', '.join(LOOKS)}")


def telling(text: str, looks: str) -> tuple[str, ...]:
    """The parts of a canary's value of which each gives it away, such as a URL's host."""
    if looks == "url":
        host, _, path = text.removeprefix("https://").partition("/")
        return host, path
    if looks == "address":
        street, _, rest = text.partition(", ")
        return street, " ".join(rest.split()[-2:])
    return (text,)


def halves(text: str) -> tuple[str, str]:
    """The two parts of a canary's value that `:1` and `:2` stand for."""
    middle = len(text) // 2
    return text[:middle].strip(_JOINTS), text[middle:].strip(_JOINTS)


def values(seed: int, canaries: Mapping[str, str]) -> dict[str, str]:
    """The values of a session's canaries, by name; `canaries` says what each looks like."""
    return {name: value(seed, name, looks) for name, looks in canaries.items()}


def named(document: Any) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Every canary that a document's texts name, keys included, and the place of the text."""
    if isinstance(document, str):
        yield from (((), match[1]) for match in _PLACEHOLDER.finditer(document))
    elif isinstance(document, BaseModel):
        for field in type(document).model_fields:
            yield from (((field, *path), n) for path, n in named(getattr(document, field)))
    elif isinstance(document, Mapping):
        for key, item in document.items():
            yield from (((str(key),), match[1]) for match in _PLACEHOLDER.finditer(str(key)))
            yield from (((str(key), *path), name) for path, name in named(item))
    elif isinstance(document, list | tuple):
        for number, item in enumerate(document):
            yield from (((number, *path), name) for path, name in named(item))


def planted(document: T, known: Mapping[str, str]) -> T:
    """The document with `{canary.NAME}` replaced in every text; the same one if there is none.

    Raises:
        KeyError: it names a canary that is not known.
    """
    if not any(True for _ in named(document)):
        return document
    filled: Any = _planted(document, known)
    return filled  # type: ignore[no-any-return]


def _planted(document: Any, known: Mapping[str, str]) -> Any:
    if isinstance(document, str):
        filled = _PLACEHOLDER.sub(lambda match: _meant(match, known), document)
        return type(document)(filled) if filled != document else document
    if isinstance(document, BaseModel):
        changes = {
            field: planted(getattr(document, field), known) for field in type(document).model_fields
        }
        return document.model_copy(update=changes)
    if isinstance(document, Mapping):
        return {_planted(key, known): _planted(item, known) for key, item in document.items()}
    if isinstance(document, list | tuple):
        return type(document)(_planted(item, known) for item in document)
    return document


def _meant(match: re.Match[str], known: Mapping[str, str]) -> str:
    text = known[match[1]]
    return halves(text)[int(match[2]) - 1] if match[2] else text


def _some(draw: random.Random, alphabet: str, count: int) -> str:
    return "".join(draw.choice(alphabet) for _ in range(count))


def _mixed(draw: random.Random, count: int) -> str:
    return _some(draw, _LETTERS + _DIGITS, count)


def _word(draw: random.Random, syllables: int) -> str:
    """A word that sounds like a name and is none."""
    parts = [draw.choice(_ONSETS) + draw.choice(_VOWELS) for _ in range(syllables)]
    return ("".join(parts) + draw.choice(_CODAS)).capitalize()
