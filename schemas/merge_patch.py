"""JSON merge patches (RFC 7386)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def patched(target: Any, patch: Any, *, keep_nulls: bool = False) -> Any:
    """`patch` laid over `target`; null removes. Neither argument is changed.

    With `keep_nulls` both are patches, and so is the result: it does what first the one and then
    the other would.
    """
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None and not keep_nulls:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value, keep_nulls=keep_nulls)
    return result
