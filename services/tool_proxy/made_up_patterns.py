"""Texts for a regular expression: rstr's, made short, plain, bounded and the same in every process.

rstr picks among a set's members in the order of their hashes, which differs by process, and repeats
whatever a pattern lets it. Both go through its source of randomness, so that is what is bounded.
"""

from __future__ import annotations

import random
import re
from typing import Any

import rstr

from services.tool_proxy.validation import SchemaUnusable

_SPREAD = 4
"""So many more than the fewest repetitions that a pattern allows there are at most."""
_MAX_PATTERN = 1_000
_MAX_REPETITIONS = 2_000
"""And as many as the text needs."""
_ATTEMPTS = 24


def matching(pattern: str, least: int, most: int, chance: random.Random) -> str:
    """A text that the pattern matches, of `least` to `most` characters.

    Raises:
        SchemaUnusable: none could be made.
    """
    hint = f"no text could be made up for the pattern {pattern[:200]}"
    if len(pattern) > _MAX_PATTERN:
        raise SchemaUnusable(f"{hint}: it has more than {_MAX_PATTERN} characters")
    try:
        for _ in range(_ATTEMPTS):
            made = rstr.Rstr(_Bounded(chance, least)).xeger(pattern)
            if least <= len(made) <= most:
                return made
    except (re.error, KeyError, RecursionError, OverflowError) as error:
        # A KeyError is a construct that rstr does not know.
        raise SchemaUnusable(f"{hint} ({error})") from None
    raise SchemaUnusable(f"{hint} with {least} to {most} characters")


class _Bounded(random.Random):
    """Chooses letters and digits rather than other characters, and repeats little."""

    def __init__(self, chance: random.Random, least: int) -> None:
        super().__init__(chance.getrandbits(64))
        self._spread = max(_SPREAD, least)
        self._left = _MAX_REPETITIONS + 2 * least

    def choice(self, seq: Any) -> Any:
        if isinstance(seq, str) or all(isinstance(one, str) for one in seq):
            ordered = sorted(set(seq))
            seq = [one for one in ordered if one.isascii() and one.isalnum()] or ordered
        return super().choice(seq)

    def randint(self, a: int, b: int) -> int:
        times = super().randint(a, max(a, min(b, a + self._spread)))
        self._left -= times + 1
        if self._left < 0:
            raise SchemaUnusable("a pattern repeats too often")
        return times
