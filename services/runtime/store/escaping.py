"""Values into SQL text. One function for both engines, so that callers write one style and a
test of it on one engine says something about the other."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping

from services.runtime.store.interface import StoreRejected

_ESCAPES = str.maketrans(
    {
        "\\": "\\\\",
        "'": "\\'",
        "\0": "\\0",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
    }
)


def literal(value: object) -> str:
    """The value as a ClickHouse literal; raises ``StoreRejected`` for types it does not know.

    >>> literal("it's"), literal(-1), literal([True, None])
    ("'it\\\\'s'", '(-1)', '[1, NULL]')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise StoreRejected("a parameter holds a lone surrogate, which is not text") from None
        return f"'{value.translate(_ESCAPES)}'"
    if isinstance(value, int | float):
        text = "nan" if math.isnan(value) else repr(value + 0)
        # In parentheses, since "x -%(n)s" with -1 would otherwise begin a comment.
        return f"({text})" if text.startswith("-") else text
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            value = value.astimezone(dt.UTC)
        return f"'{value:%Y-%m-%d %H:%M:%S}'"
    if isinstance(value, dt.date):
        return f"'{value.isoformat()}'"
    if isinstance(value, list | tuple):
        inside = ", ".join(literal(item) for item in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    raise StoreRejected(f"a parameter of type {type(value).__name__} cannot be written as SQL")


def substitute(sql: str, parameters: Mapping[str, object] | None) -> str:
    """Puts the parameters in place of ``%(name)s``. Without parameters the text stays as it is.

    >>> substitute("SELECT %(a)s, '100 %%'", {"a": "x"})
    "SELECT 'x', '100 %'"
    """
    if parameters is None:
        return sql
    try:
        return sql % {name: literal(value) for name, value in parameters.items()}
    except KeyError as error:
        raise StoreRejected(f"the query needs the parameter {error}, which was not given") from None
    except (ValueError, TypeError) as error:
        raise StoreRejected(
            f"placeholders are %(name)s and a per cent sign is %%: {error}"
        ) from None
