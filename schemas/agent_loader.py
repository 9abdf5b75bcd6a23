"""Reads agent registrations in YAML or JSON: every mistake at once, each with its place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from schemas.agent_document import AgentDocument, check_url
from schemas.errors import InvalidDocument, Problem
from schemas.locating import problems_of
from schemas.yaml_tree import Node, node_of, parse

_BLOCKS = {"code": "code", "chat": "openai", "rasa": "rasa"}
_ORIGINS = ("paste", "zip", "path", "git", "published")


def parse_agent(text: str, file: str) -> AgentDocument:
    """The document in a YAML text, or a JSON one where the file's name ends in `.json`.

    Raises:
        InvalidDocument: with every problem found.
    """
    noted: list[Problem] = []
    if file.endswith(".json"):
        root = _parse_json(text, file)
    else:
        root, noted = parse(text, file)
    problems = [*noted, *_across_fields(root)]
    try:
        document = AgentDocument.model_validate(root.plain())
    except ValidationError as error:
        problems += problems_of(error, AgentDocument, root)
    else:
        if not problems:
            return document
    problems = [Problem(p.path, p.message, p.file or file, p.line, p.column) for p in problems]
    raise InvalidDocument(
        sorted(dict.fromkeys(problems), key=lambda p: (p.line or 0, p.column or 0, p.path))
    )


def _across_fields(root: Node) -> list[Problem]:
    """What is wrong between fields, found even when single fields are wrong too."""
    fields = root.value if isinstance(root.value, dict) else {}
    problems = _kind_problems(root, fields)
    problems += _pair_problems("", root, fields, "auth_header", "auth_value_ref")
    tools = fields["tools"].value if "tools" in fields else []
    entries = [
        (index, tool.value)
        for index, tool in enumerate(tools if isinstance(tools, list) else [])
        if isinstance(tool.value, dict)
    ]
    names = Counter(
        tool["name"].value for _, tool in entries if "name" in tool and _is_text(tool["name"])
    )
    for index, tool in entries:
        path = f"tools[{index}]"
        name = tool.get("name")
        if name is not None and _is_text(name) and names[name.value] > 1:
            message = f"expected a name of its own, found {name.value!r} {names[name.value]} times"
            problems.append(name.problem(f"{path}.name", message))
        problems += _target_problems(path, tool)
        problems += _pair_problems(
            f"{path}.", name or root, tool, "target_auth_header", "target_auth_ref"
        )
    return problems


def _given(fields: Mapping[str, Node], name: str) -> Node | None:
    node = fields.get(name)
    return None if node is None or node.value is None else node


def _pair_problems(
    prefix: str, root: Node, fields: Mapping[str, Node], name: str, reference: str
) -> list[Problem]:
    one, other = _given(fields, name), _given(fields, reference)
    if (one is None) == (other is None):
        return []
    node = one or other or root
    return [node.problem(f"{prefix}{name}", f"expected {name} and {reference}, or neither")]


def _kind_problems(root: Node, fields: Mapping[str, Node]) -> list[Problem]:
    """Each kind of agent has what it needs, and nothing of another kind."""
    given = _given(fields, "kind")
    kind = "http" if given is None else given.value
    problems = []
    endpoint = _given(fields, "endpoint")
    if kind == "code" and endpoint is not None and endpoint.value:
        problems.append(endpoint.problem("endpoint", "expected no endpoint: the agent runs here"))
    if kind in ("http", "openai", "rasa") and (endpoint is None or endpoint.value == ""):
        problems.append(
            (endpoint or root).problem("endpoint", f"expected a URL, as kind is {kind}")
        )
    for block, owner in _BLOCKS.items():
        node = _given(fields, block)
        if node is not None and kind != owner:
            problems.append(node.problem(block, f"expected only with kind: {owner}"))
    if kind == "openai" and _given(fields, "chat") is None:
        problems.append(
            root.problem("chat", "expected the model and its prompt, as kind is openai")
        )
    if kind == "code":
        problems += _origin_problems(root, _given(fields, "code"))
    return problems


def _origin_problems(root: Node, code: Node | None) -> list[Problem]:
    origins = []
    if code is not None and isinstance(code.value, dict):
        origins = [name for name in _ORIGINS if _given(code.value, name) is not None]
    if len(origins) == 1:
        return []
    found = f", found {', '.join(origins)}" if origins else ""
    return [(code or root).problem("code", f"expected one of {', '.join(_ORIGINS)}{found}")]


def _target_problems(path: str, tool: Mapping[str, Node]) -> list[Problem]:
    mode, target = tool.get("mode"), tool.get("target")
    is_passthrough = mode is not None and mode.value == "passthrough"
    given = target is not None and target.value is not None
    if is_passthrough and not given:
        assert mode is not None
        return [
            mode.problem(
                f"{path}.target", "expected the URL of the real tool, as it passes through"
            )
        ]
    if given and not is_passthrough:
        assert target is not None
        return [target.problem(f"{path}.target", "expected no target: the tool is in sandbox mode")]
    if given and target is not None and isinstance(target.value, str):
        try:
            check_url(target.value)
        except ValueError as error:
            return [target.problem(f"{path}.target", str(error))]
    return []


def _is_text(node: Node) -> bool:
    return isinstance(node.value, str)


def _parse_json(text: str, file: str) -> Node:
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        if isinstance(value, dict):
            return node_of(value)
    except json.JSONDecodeError as error:
        raise InvalidDocument(
            [Problem("", f"not JSON: {error.msg}", file, error.lineno, error.colno)]
        ) from None
    except RecursionError:
        raise InvalidDocument([Problem("", "not JSON: nested too deep", file)]) from None
    except ValueError as error:
        raise InvalidDocument([Problem("", f"not JSON: {error}", file)]) from None
    raise InvalidDocument([Problem("", "expected an object at the top of the file", file)])


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        repeated = next(key for key, count in Counter(k for k, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {repeated!r} stands twice in one object")
    return found
