"""JSON values: one canonical form, comparison, copies, and differences."""

from __future__ import annotations

import hashlib
from typing import Any

import jsonpatch  # type: ignore[import-untyped, unused-ignore]
import orjson

from schemas.selection import same as same

JsonObject = dict[str, Any]


def canonical(value: Any) -> bytes:
    """The one text of a JSON value: keys sorted, no spaces.

    Raises:
        TypeError: not a JSON value, or an integer beyond 64 bits.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def private_copy(value: Any) -> Any:
    """A copy that shares nothing with `value`. Raises TypeError as `canonical` does."""
    return orjson.loads(orjson.dumps(value))


def state_hash(state: bytes) -> str:
    """The hash of a world's state, given its canonical text."""
    return hashlib.blake2b(state, digest_size=16).hexdigest()


def difference(before: bytes, after: bytes) -> list[JsonObject]:
    """An RFC 6902 patch from one canonical text to the other, checked by applying it."""
    if before == after:
        return []
    target = orjson.loads(after)
    patch: list[JsonObject] = jsonpatch.make_patch(orjson.loads(before), target).patch
    # What is recorded has to give the state exactly, whatever the differ makes of long lists, and
    # need not be longer than the state itself.
    try:
        exact = canonical(patched(before, patch)) == after
    except ValueError:
        exact = False
    if exact and len(orjson.dumps(patch)) < len(after) + 100:
        return patch
    return [{"op": "replace", "path": "", "value": target}]


def patched(before: bytes, patch: list[JsonObject]) -> Any:
    """The value after an RFC 6902 patch.

    Raises:
        ValueError: the patch does not fit the value.
    """
    # The patch is copied as well: its values become part of the result.
    operations = jsonpatch.JsonPatch(private_copy(patch))
    try:
        return operations.apply(orjson.loads(before), in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise ValueError(f"the patch does not fit the state: {error}") from None


def as_body(value: Any) -> str:
    """What a tool would send as its body: strings as they are, everything else as JSON.

    Raises:
        TypeError: not a JSON value.
    """
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def is_text(body: str) -> bool:
    """Whether a body reaches the agent as text: whatever is not a JSON object or array."""
    if body.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return True
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return True
    return False
