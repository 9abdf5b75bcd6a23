"""Regular expressions of people, searched in texts of agents, at a bounded cost.

A pattern runs on an engine that is linear in the text. One with look-around or back-references,
which such an engine cannot have, runs on another that gives up after a fixed number of steps: a
number and not a time, so that every machine comes to the same answer.

The dialect is that of JSON Schema: `\\d`, `\\w` and `\\b` mean ASCII, `\\p{L}` is any letter.
"""

from __future__ import annotations

import re
from functools import lru_cache

import jsonschema_rs
from jsonschema_rs import FancyRegexOptions, RegexOptions

MAX_PATTERN = 10_000
_SIZE_BYTES = 1024 * 1024
_BACKTRACKS = 100_000
_LINEAR = RegexOptions(size_limit=_SIZE_BYTES)
_BOUNDED = FancyRegexOptions(backtrack_limit=_BACKTRACKS, size_limit=_SIZE_BYTES)
_BEYOND_LINEAR = re.compile(r"\(\?(<?[=!]|>)|\\[1-9k]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class PatternTooCostly(Exception):
    """Whether the text has the pattern was not found out within the bound on steps."""


def check_pattern(pattern: str) -> str:
    """The pattern itself.

    Raises:
        ValueError: it is no regular expression of this dialect, or too large a one.
    """
    _compiled(pattern)
    return pattern


def found(pattern: str, text: str) -> bool:
    """Whether the text contains the pattern as it is written, or a match of it. Case counts.

    Raises:
        PatternTooCostly: see there.
        ValueError: as `check_pattern`.
    """
    text = clean(text)
    if pattern in text:
        return True
    error = next(_compiled(pattern).iter_errors(text), None)
    if error is None:
        return True
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Pattern):
        return False
    raise PatternTooCostly(f"it takes more than {_BACKTRACKS} steps")


def clean(text: str) -> str:
    """The text as it can be encoded: half characters are replaced."""
    return _LONE_SURROGATE.sub("\ufffd", text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> jsonschema_rs.Draft202012Validator:
    if len(pattern) > MAX_PATTERN or clean(pattern) != pattern:
        raise ValueError(f"expected a regular expression of at most {MAX_PATTERN} characters")
    options = _BOUNDED if _BEYOND_LINEAR.search(pattern) else _LINEAR
    try:
        return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except jsonschema_rs.ValidationError:
        raise ValueError("not a regular expression, or too large a one") from None
