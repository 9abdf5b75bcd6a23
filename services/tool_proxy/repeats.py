"""Calls that were made before: retried by a client, or repeated because a turn was posted again.

See docs/adr/0004-reposted-turns.md. Pure; `Repeats` is the one thing about a session that is not
in its log, and losing it with the process costs no more than what the ADR says.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.trajectory import ToolCalled
from services.tool_proxy.errors import Refused
from services.tool_proxy.session import Posting, RecordedCall, RecordedTrace, SessionState


@dataclass(slots=True)
class Repeats:
    """Which recorded steps of the newest turn the newest posting has been answered with."""

    turn: int = 0
    newest: Posting | None = None
    consumed: set[str] = field(default_factory=set)
    undelivered: set[str] = field(default_factory=set)
    """Recorded steps whose caller was told that they had not been."""


def arrived(state: SessionState, repeats: Repeats, turn: int, posting: Posting) -> None:
    """Take note of a request made under a posting.

    Raises:
        Refused: turn_superseded, when the turn has been posted again since.
    """
    if turn < state.turn or turn < repeats.turn:
        return  # a late call of a turn that was answered: made for the first time, not repeated
    if turn > repeats.turn:
        repeats.turn, repeats.newest = turn, None
        repeats.consumed.clear()
        repeats.undelivered.clear()
    known = [entry.posting for entry in state.turn_calls if state.turn == turn]
    known += [entry.posting for entry in state.turn_traces if state.turn == turn]
    known += [] if repeats.newest is None else [repeats.newest]
    if known and posting < max(known):
        raise Refused("turn_superseded")
    if repeats.newest != posting:
        repeats.newest = posting
        repeats.consumed.clear()


def recorded_call(
    state: SessionState,
    repeats: Repeats,
    *,
    turn: int,
    posting: Posting,
    alike: bytes,
    idempotency_key: str | None = None,
) -> ToolCalled | None:
    """The recorded call that answers this one, if it is a repetition.

    Raises:
        Refused: idempotency_key_reused, when the key stands for another call.
    """
    keyed = state.keyed.get(idempotency_key) if idempotency_key is not None else None
    if keyed is not None:
        if keyed.likeness != alike:
            raise Refused("idempotency_key_reused")
        _consume(repeats, f"t{keyed.called.call}", posting)
        return keyed.called
    if turn != state.turn:
        return None
    entries = ((f"t{entry.called.call}", entry) for entry in state.turn_calls)
    found = _repeated(entries, repeats, posting, alike)
    return found.called if isinstance(found, RecordedCall) else None


def is_recorded_trace(
    state: SessionState, repeats: Repeats, *, turn: int, posting: Posting, alike: bytes
) -> bool:
    """Whether a trace event repeats one that is in the log."""
    if turn != state.turn:
        return False
    entries = ((f"x{entry.number}", entry) for entry in state.turn_traces)
    return _repeated(entries, repeats, posting, alike) is not None


def _repeated(
    entries: Iterable[tuple[str, RecordedCall | RecordedTrace]],
    repeats: Repeats,
    posting: Posting,
    alike: bytes,
) -> RecordedCall | RecordedTrace | None:
    for step, entry in entries:
        if entry.likeness != alike or step in repeats.consumed:
            continue
        if entry.posting < posting or step in repeats.undelivered:
            _consume(repeats, step, posting)
            return entry
    return None


def _consume(repeats: Repeats, step: str, posting: Posting) -> None:
    repeats.undelivered.discard(step)
    if repeats.newest == posting:
        repeats.consumed.add(step)
