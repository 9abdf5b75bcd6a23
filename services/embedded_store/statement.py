"""Telling an INSERT with data apart from everything else.

The engine takes data as bytes next to the statement; HTTP brings both in one text, the ``query``
parameter, a newline and the body, as on a ClickHouse server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = rb"(?:\w+|`[^`]+`|\"[^\"]+\")"
_INSERT = re.compile(
    rb"\s*(?P<head>INSERT\s+INTO\s+(?:TABLE\s+)?" + _NAME + rb"(?:\s*\.\s*" + _NAME + rb")?"
    rb"\s*(?:\([^()]*\))?)\s*FORMAT\s+(?P<format>\w+)[ \t\f]*;?\s*?(?:\r?\n|[ \t\f]|\Z)",
    re.IGNORECASE,
)
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)[\s;]*\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Insert:
    """An INSERT whose data, in ``format``, goes to the engine as bytes."""

    head: str
    format: str
    data: bytes


@dataclass(frozen=True)
class Plain:
    """Any other statement. ``format`` is how its result will be written."""

    sql: str
    format: str


def parse(query: str, body: bytes, default_format: str) -> Insert | Plain:
    """Raises ``UnicodeDecodeError`` if a statement without separate data is not UTF-8."""
    whole = query.encode() + b"\n" + body if query else body
    match = _INSERT.match(whole)
    if match is not None and match["format"].lower() != b"values":
        data = whole[match.end() :]
        return Insert(match["head"].decode(), match["format"].decode(), data)
    sql = whole.decode()
    written = _FORMAT.search(sql)
    return Plain(sql, written[1] if written else default_format)
