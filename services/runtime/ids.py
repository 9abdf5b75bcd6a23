"""Deterministic ids and seeds, and the one source of ids that are not."""

from __future__ import annotations

import hashlib
import secrets
from typing import Protocol


def digest(*parts: object, size: int = 16) -> bytes:
    """A hash over the parts in which no two different sequences of parts look the same."""
    state = hashlib.blake2b(digest_size=size)
    for part in parts:
        data = str(part).encode()
        state.update(len(data).to_bytes(4, "big"))
        state.update(data)
    return state.digest()


def session_id(run_id: str, scenario_id: str, trial: int, copy: int = 0, attempt: int = 0) -> str:
    """The id of a session. Opaque: the agent sees it, and it must not tell what is played."""
    again = (attempt,) if attempt else ()
    return digest("session", run_id, scenario_id, trial, copy, *again).hex()


def session_seed(seed: int, scenario_id: str, trial: int, copy: int = 0, attempt: int = 0) -> int:
    """63 bits that depend on everything but the run's id: same seed, same session."""
    again = (attempt,) if attempt else ()
    parts = digest("seed", seed, scenario_id, trial, copy, *again, size=8)
    return int.from_bytes(parts, "big") >> 1


def decimal_id(*parts: object) -> int:
    """A positive id below 2**53, so that every JSON reader keeps its digits."""
    return int.from_bytes(digest("decimal", *parts, size=8), "big") >> 11 or 1


class Ids(Protocol):
    """Ids that must differ each time, such as that of one posting of a turn."""

    def new(self) -> str:
        """An id that was never given before."""


class RandomIds:
    """Ids from the operating system's randomness."""

    def new(self) -> str:
        return secrets.token_hex(8)
