"""JSON without anything that two readers could read differently.

Refused: what is not UTF-8, a byte order mark, a key given twice, NaN and infinities, integers
beyond 64 bits, lone surrogates, and deep nesting. So what is checked, what is recorded and what
whoever comes next gets are one value.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

MAX_DEPTH = 100
"""Objects and arrays in one another, the outermost included."""


class NotStrict(ValueError):
    """The text is not one unambiguous JSON object; the message says why and quotes nothing."""


def read_object(body: bytes) -> dict[str, Any]:
    """The object that a JSON text is.

    Raises:
        NotStrict: see above.
    """
    try:
        text = body.decode()
        value: Any = orjson.loads(text)
        if not isinstance(value, dict):
            raise NotStrict(f"expected an object, got {type(value).__name__}")
        _check_depth(text, value)
        value = json.loads(text, object_pairs_hook=_unique)
        orjson.dumps(value)
    except (UnicodeDecodeError, orjson.JSONDecodeError, TypeError) as error:
        raise NotStrict(str(error)[:200]) from None
    found: dict[str, Any] = value
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotStrict("an object has the same key more than once")  # it may be a secret
    return found


def _check_depth(text: str, value: Any) -> None:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    level = [value]
    for _ in range(MAX_DEPTH):
        inside = (c.values() if isinstance(c, dict) else c for c in level)
        level = [child for some in inside for child in some if isinstance(child, dict | list)]
    if level:
        raise NotStrict(f"nested more than {MAX_DEPTH} deep")
