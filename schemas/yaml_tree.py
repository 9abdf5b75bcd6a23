"""YAML text as plain values that remember where each of them stands.

A strict subset: one document, string keys, each key once, no aliases, no tags of its own, JSON's
types only. Booleans are `true` and `false` and dates stay text, as in YAML 1.2: `no` is a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from schemas.errors import InvalidDocument, Problem

MAX_DEPTH = 40
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place. `value` is a dict or list of nodes, or a JSON scalar."""

    value: dict[str, Node] | list[Node] | str | int | float | bool | None
    file: str = ""
    line: int | None = None
    column: int | None = None
    key_line: int | None = None
    """Where the key stands under which a mapping holds this value."""
    key_column: int | None = field(default=None)

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def problem(self, path: str, message: str, *, at_key: bool = False) -> Problem:
        """A problem at this node's place."""
        if at_key and self.key_line is not None:
            return Problem(path, message, self.file, self.key_line, self.key_column)
        return Problem(path, message, self.file, self.line, self.column)


def node_of(value: Any) -> Node:
    """A plain value as a node without a place."""
    if isinstance(value, Mapping):
        return Node({str(key): node_of(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return Node([node_of(item) for item in value])
    return Node(value)


def parse(text: str, file: str) -> tuple[Node, list[Problem]]:
    """The document's root, and the problems that do not keep it from being read further.

    Raises:
        InvalidDocument: it cannot be read at all: syntax, aliases, several documents, or no
            mapping at the top.
    """
    problems: list[Problem] = []
    try:
        _check_events(text, file)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise InvalidDocument([_syntax(error, file)]) from None
    except yaml.YAMLError as error:
        raise InvalidDocument([Problem("", f"not YAML: {_one_line(str(error))}", file)]) from None
    if not isinstance(root, yaml.MappingNode):
        found = "nothing" if root is None else _kind(root)
        line, column = (1, 1) if root is None else _place(root)
        message = f"expected a mapping at the top of the file, found {found}"
        raise InvalidDocument([Problem("", message, file, line, column)])
    return _Building(file, problems).node(root, ""), problems


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as JSON types, as YAML 1.2's core schema does."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = {}  # noqa: RUF012


def _resolve_plain_scalars() -> None:
    import re

    for kind, pattern, first in (
        ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
        ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
        ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
        (
            "float",
            r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$",
            "-+.0123456789",
        ),
    ):
        _Loader.add_implicit_resolver(_TAG + kind, re.compile(pattern), list(first))


_resolve_plain_scalars()


def _check_events(text: str, file: str) -> None:
    """Refuse what would be expensive or ambiguous, before anything is built.

    Raises:
        InvalidDocument: aliases, several documents, or nesting beyond `MAX_DEPTH`.
    """
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        what = ""
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                what = "expected one document in the file, found a second"
        elif isinstance(event, yaml.AliasEvent):
            what = f"expected the value itself, found the alias *{event.anchor}"
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                what = f"expected at most {MAX_DEPTH} levels of nesting, found more"
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        if what:
            raise InvalidDocument([Problem("", what, file, *_mark(event.start_mark))])


@dataclass(frozen=True, slots=True)
class _Building:
    """Makes nodes of composed YAML and notes what is wrong with it."""

    file: str
    problems: list[Problem]

    def node(self, source: yaml.Node, path: str, key: yaml.Node | None = None) -> Node:
        value: Any
        if isinstance(source, yaml.MappingNode):
            value = dict(self._items(source, path))
        elif isinstance(source, yaml.SequenceNode):
            value = [self.node(item, f"{path}[{i}]") for i, item in enumerate(source.value)]
        elif isinstance(source, yaml.ScalarNode):
            value = self._scalar(source, path)
        else:
            raise TypeError(f"composed YAML has no node of type {type(source).__name__}")
        key_place = (None, None) if key is None else _place(key)
        return Node(value, self.file, *_place(source), *key_place)

    def _items(self, source: yaml.MappingNode, path: str) -> Iterator[tuple[str, Node]]:
        seen: dict[str, int] = {}
        for key, value in source.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, path, f"expected a name as key, found {_kind(key)}")
                continue
            name = key.value
            here = f"{path}.{name}" if path else name
            if name in seen:
                self._note(key, here, f"expected each key once, found it in line {seen[name]} too")
                continue
            seen[name] = _place(key)[0]
            yield name, self.node(value, here, key)

    def _scalar(self, source: yaml.ScalarNode, path: str) -> str | int | float | bool | None:
        text: str = source.value
        kind = source.tag.removeprefix(_TAG)
        try:
            if kind == "str":
                return text
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                return int(text)
            if kind == "float" and math.isfinite(float(text)):
                return float(text)
        except (KeyError, ValueError):
            pass
        expected = "expected text, a number, true, false or null"
        self._note(source, path, f"{expected}, found {_short(text)} as {kind}")
        return None

    def _note(self, source: yaml.Node, path: str, message: str) -> None:
        self.problems.append(Problem(path, message, self.file, *_place(source)))


def _kind(node: yaml.Node) -> str:
    return (
        "a list"
        if isinstance(node, yaml.SequenceNode)
        else "a scalar"
        if isinstance(node, yaml.ScalarNode)
        else "a mapping"
    )


def _place(node: yaml.Node) -> tuple[int, int]:
    line, column = _mark(node.start_mark)
    return line or 1, column or 1


def _mark(mark: Any) -> tuple[int | None, int | None]:
    return (None, None) if mark is None else (mark.line + 1, mark.column + 1)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _syntax(error: yaml.MarkedYAMLError, file: str) -> Problem:
    said = _one_line(": ".join(part for part in (error.context, error.problem) if part))
    mark = error.problem_mark or error.context_mark
    return Problem("", f"not YAML: {said}", file, *_mark(mark))


def _one_line(text: str) -> str:
    return " ".join(text.split())
