"""What an agent's answer says, read so that whatever is read can be written again.

Agents are written in every language, so what their JSON libraries really do is taken: a byte order
mark, a character cut in half, a key given twice, an integer beyond 64 bits. Each is noted. What is
no JSON (NaN above all), or beyond what a double can hold, is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import isfinite
from typing import Any, NoReturn

_MAX_DIGITS = 20
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)


class NotJson(ValueError):
    """The body is no JSON; the message says why and quotes nothing of it but a place."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A JSON value without lone surrogates and with numbers of 64 bits, and what was done to it."""

    value: Any
    notes: tuple[str, ...] = ()


def decode(body: bytes) -> Decoded:
    """The JSON in a body.

    Raises:
        NotJson
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    reader = _Reader()
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(reader.escape, text)
    try:
        value = json.loads(
            text,
            object_pairs_hook=reader.pairs,
            parse_int=reader.integer,
            parse_float=reader.number,
            parse_constant=reader.constant,
        )
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise NotJson("nested too deeply") from None
    return Decoded(value, tuple(reader.notes))


class _Reader:
    """The hooks of one reading."""

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            self.notes["a key is given more than once in an object; the last one counts"] = None
        return found

    def integer(self, digits: str) -> int | float:
        if len(digits) <= _MAX_DIGITS and -(2**63) <= (whole := int(digits)) < 2**64:
            return whole
        self.notes["an integer beyond 64 bits was rounded"] = None
        return self.number(digits)

    def number(self, digits: str) -> float:
        value = float(digits)
        if not isfinite(value):
            raise NotJson("a number is beyond what a double can hold")
        return value

    def constant(self, name: str) -> NoReturn:
        raise NotJson(f"{name} is no JSON")

    def escape(self, match: re.Match[str]) -> str:
        if match["lone"] is None:
            return match[0]
        self.notes["half of a character (a lone surrogate) was replaced by U+FFFD"] = None
        return "\\ufffd"
