"""Validation errors in words, at the place in the file that they are about."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails

from schemas.errors import Problem
from schemas.yaml_tree import Node

Location = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class CheckedAgainst:
    """In an annotation: what values are checked against, though they are kept as written."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(
        self, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Documents are described by what they are checked against."""
        return handler(self.model.__pydantic_core_schema__)


def problems_of(error: ValidationError, model: type[BaseModel], root: Node) -> list[Problem]:
    """One problem for each place that an error is about.

    Args:
        model: What the document was checked against.
        root: The document, with the places of its values.
    """
    by_place: dict[tuple[Location, bool], list[ErrorDetails]] = {}
    errors = error.errors(include_url=False)
    for details in errors:
        if details["type"] == "too_short" and _has_others_below(details, errors):
            continue  # a list is only short of the items that are wrong themselves
        found = _reach(root, details["loc"])
        # A union reports one error for each of its members; they are one problem.
        about_member = len(found) < len(details["loc"])
        by_place.setdefault((found, about_member), []).append(details)
    problems = []
    for (found, about_member), group in by_place.items():
        if about_member and group[0]["type"] != "missing":
            at_key = group[0]["loc"][-1] == "[key]"  # what pydantic calls a mapping's key
            problems.append(_problem(root, found, _one_of(group), at_key=at_key))
            continue
        problems += [_single(details, model, root, found) for details in group]
    return problems


def _has_others_below(details: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    here = details["loc"]
    return any(len(e["loc"]) > len(here) and e["loc"][: len(here)] == here for e in errors)


def _single(details: ErrorDetails, model: type[BaseModel], root: Node, found: Location) -> Problem:
    where = details["loc"]
    if details["type"] == "missing":
        wanted = where[len(found) :]
        message = f"expected the field {wanted[-1]!r}, which is missing"
        return _problem(root, found, message, path=(*found, *wanted))
    if details["type"] == "extra_forbidden":
        known = _fields(model, where[:-1])
        message = _unknown("field", str(where[-1]), known)
        return _problem(root, found, message, at_key=True)
    return _problem(root, found, _words(details))


def _problem(
    root: Node, location: Location, message: str, *, path: Location | None = None,
    at_key: bool = False,
) -> Problem:  # fmt: skip
    node = root
    for part in location:
        node = _child(node, part) or node
    return node.problem(_path(location if path is None else path), message, at_key=at_key)


def _path(location: Location) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _reach(root: Node, location: Location) -> Location:
    """The part of an error's location that exists in the document.

    What follows names members of unions and the like, or what is missing.
    """
    node: Node | None = root
    for depth, part in enumerate(location):
        node = _child(node, part)
        if node is None:
            return location[:depth]
    return location


def _child(node: Node | None, part: int | str) -> Node | None:
    value = None if node is None else node.value
    if isinstance(value, dict):
        return value.get(str(part))
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def _words(details: ErrorDetails) -> str:
    """What was expected and what was found."""
    kind, context = details["type"], details.get("ctx", {})
    if kind in ("literal_error", "enum"):
        return _unknown("value", str(details["input"]), re.findall(r"'([^']*)'", details["msg"]))
    if kind == "string_pattern_mismatch":
        expected = f"expected text like {context['pattern']}"
    elif kind == "value_error":
        text = str(context.get("error", details["msg"]))
        if text.startswith("expected") or isinstance(details["input"], Mapping):
            return text
        expected = text.replace("not a regular expression", "expected a regular expression")
    else:
        expected = "expected " + _wanted(details)
    return f"{expected}, found {shown(details['input'])}"


def _one_of(group: Sequence[ErrorDetails]) -> str:
    """The errors of a union's members as one message."""
    if all(details["msg"].startswith(_PREFIX) for details in group):
        wanted = " or ".join(dict.fromkeys(map(_wanted, group)))
        return f"expected {wanted}, found {shown(group[0]['input'])}"
    return "; ".join(dict.fromkeys(map(_words, group)))


_PREFIX = "Input should be "
_WORDS = (
    (r"^(Input|Value|String|Tuple|List|Dictionary) should (be|have) ", ""),
    (r"a valid dictionary( or instance of \w+)?", "a mapping"),
    (r"a valid (tuple|list)", "a list"),
    (r"a valid string", "text"),
    (r"a valid (number|boolean|integer)", r"a \1"),
    (r"\ba integer", "an integer"),
    (r" after validation, not \d+$", ""),
    (r", (unable|got) .*$", ""),
)


def _wanted(details: ErrorDetails) -> str:
    """What an error says was expected, in the words of the file rather than of Python."""
    text = details["msg"]
    for pattern, instead in _WORDS:
        text = re.sub(pattern, instead, text)
    return text[:1].lower() + text[1:]


def _unknown(what: str, found: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(found, known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {what} {found!r}; {hint}expected one of {', '.join(known)}"


def shown(value: Any) -> str:
    """A value as people call it, short."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(str, value)) or 'no keys'}"[:80]
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _fields(model: type[BaseModel], location: Location) -> list[str]:
    """The names of the fields that the model at a location knows."""
    hints: list[Any] = [model]
    for part in location:
        hints = [inner for hint in hints for inner in _step(hint, part)]
    models = [m for hint in hints for m in _models(hint)]
    return sorted({name for m in models for name in m.model_fields})


def _step(hint: Any, part: int | str) -> list[Any]:
    found = []
    for option in _options(hint):
        origin, args = get_origin(option), get_args(option)
        if isinstance(option, type) and issubclass(option, BaseModel):
            field = option.model_fields.get(str(part))
            found += [field.annotation] if field else []
        elif origin is tuple or (isinstance(origin, type) and issubclass(origin, Sequence)):
            found.append(args[0])
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            found.append(args[1])
    return found


def _models(hint: Any) -> list[type[BaseModel]]:
    return [o for o in _options(hint) if isinstance(o, type) and issubclass(o, BaseModel)]


def _options(hint: Any) -> list[Any]:
    """The members of a union; what a plain annotation stands for."""
    if get_origin(hint) is Annotated:
        plain, *notes = get_args(hint)
        checked = [note.model for note in notes if isinstance(note, CheckedAgainst)]
        return [*_options(plain), *checked]
    if get_origin(hint) in (Union, types.UnionType):
        return [option for arg in get_args(hint) for option in _options(arg)]
    return [] if get_origin(hint) is Literal else [hint]
