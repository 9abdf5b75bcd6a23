"""Notes of what is asked of models: which calls a piece of work made, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from schemas.trajectory import Usage
from services.runtime.ids import digest


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model. Holds nothing of what was asked or answered.

    Attributes:
        key: Equal for equal requests, a repeated one too.
        usage: None where there was no answer.
        answered_by: The model as the provider names it.
        error: The type of what was raised; empty for an answer.
    """

    key: str
    model: str
    started_ms: int
    ended_ms: int
    usage: Usage | None = None
    answered_by: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Notes:
    now_ms: Callable[[], int]
    calls: list[ModelCall] = field(default_factory=list)


Answered = Callable[[Usage, str], None]
_notes: ContextVar[_Notes | None] = ContextVar("notes", default=None)


@contextmanager
def calls_noted(now_ms: Callable[[], int]) -> Iterator[list[ModelCall]]:
    """Every call that is over of those made in the block, by tasks made in it as well."""
    notes = _Notes(now_ms)
    token = _notes.set(notes)
    try:
        yield notes.calls
    finally:
        _notes.reset(token)


@contextmanager
def noting(model: str, *request: object) -> Iterator[Answered]:
    """Around one call: note it, if anybody wants to know, however it ends.

    What is yielded takes the usage and the model's name of the answer.
    """
    notes = _notes.get()
    answers: list[tuple[Usage, str]] = []
    error = ""
    started_ms = notes.now_ms() if notes is not None else 0
    try:
        yield lambda usage, name: answers.append((usage, name))
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        if notes is not None:
            usage, name = answers[0] if answers else (None, "")
            key = digest("model call", model, *request, size=8).hex()
            call = ModelCall(key, model, started_ms, notes.now_ms(), usage, name, error)
            notes.calls.append(call)
