"""Where in a tool's answer something can be planted or left out.

The tool proxy injects there; the judge, for an answer into which nothing was injected although it
was due, sees by it whether there was a place at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PROSE = ("description", "note", "notes", "comment", "comments", "message", "summary", "text",
          "body", "content", "details", "title")  # fmt: skip


@dataclass(slots=True)
class Place:
    """A spot in a JSON value: a key of an object, or an index of a list."""

    parent: Any
    key: str | int
    pointer: str

    @property
    def value(self) -> Any:
        if isinstance(self.parent, list):
            return self.parent[self.key]  # type: ignore[index]
        return self.parent.get(self.key)

    @value.setter
    def value(self, value: Any) -> None:
        self.parent[self.key] = value

    def drop(self) -> None:
        del self.parent[self.key]


def places(value: Any, pointer: str = "") -> Iterator[Place]:
    """Every spot below `value`, outer before inner, in document order."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, _ in items:
        yield Place(value, key, f"{pointer}/{escaped(key)}")
    for key, inner in items:
        yield from places(inner, f"{pointer}/{escaped(key)}")


def escaped(key: str | int) -> str:
    """A key as a JSON pointer has it."""
    return str(key).replace("~", "~0").replace("/", "~1")


def find(field: str, answer: Any) -> Place | None:
    """A field by JSON pointer if it starts with a slash, else the first one of that name."""
    for place in places(answer):
        if field in (place.pointer, place.key):
            return place
    return None


def for_text(field: str, answer: Any) -> Place | None:
    """Where a text is planted in an object or list: the field, which may be a new one, or else
    one that reads as text, never an id, date or status: overwriting those breaks the tool instead
    of planting something in it."""
    if field:
        place = find(field, answer)
        if place is None and isinstance(answer, dict) and not field.startswith("/"):
            return Place(answer, field, f"/{escaped(field)}")
        return place
    texts = [place for place in places(answer) if isinstance(place.value, str)]
    for name in _PROSE:
        for place in texts:
            if place.key == name:
                return place
    sentences = [place for place in texts if " " in place.value.strip()]
    if sentences:
        return max(sentences, key=lambda place: len(place.value))
    if isinstance(answer, list):
        answer = next((item for item in answer if isinstance(item, dict)), None)
        return Place(answer, "note", "/0/note") if answer is not None else None
    return Place(answer, "note", "/note") if isinstance(answer, dict) else None


def can_plant(field: str, answer: Any) -> bool:
    """Whether a text can be planted in an answer: always where it is read as text itself."""
    return not isinstance(answer, dict | list) or for_text(field, answer) is not None


def can_cut(field: str, answer: Any) -> bool:
    """Whether something can be left out of an answer: the field, some of a list, one of several
    fields."""
    if field:
        return find(field, answer) is not None
    if isinstance(answer, dict) and len(answer) > 1:
        return True
    lists = [answer, *(place.value for place in places(answer))]
    return any(isinstance(value, list) and value for value in lists)
