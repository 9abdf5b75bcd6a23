"""Agent registrations as people write them: a YAML or JSON document, every mistake found at once.

Secrets are given by reference only. What stands where a reference should is never shown again: it
is likely the secret itself.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from schemas.errors import InvalidDocument, Problem
from schemas.loader import canonical_json
from schemas.locating import problems_of
from schemas.registry import AgentRegistration, ToolRegistration
from schemas.scenario import IDENTIFIER, TOOL_NAME
from schemas.yaml_tree import Node, node_of, parse
from services.cli.errors import CliError

_SCHEMA_ERRORS = (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError)
_MAX_FILE_BYTES = 4 * 1024 * 1024
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,63}"
_ACTOR = re.compile(rf"{_LABEL}(/{_LABEL}){{0,15}}", re.ASCII)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ToolDocument(_Document):
    """One tool (R01)."""

    name: str = Field(pattern=TOOL_NAME)
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    mode: Literal["sandbox", "passthrough"] = "sandbox"
    target: str | None = None

    @field_validator("input_schema", "output_schema")
    @classmethod
    def _is_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None:
            try:
                jsonschema_rs.validator_for(value, offline=True)
            except (ValueError, *_SCHEMA_ERRORS) as error:
                first = str(error).partition("\n")[0]
                raise ValueError(f"expected a valid JSON Schema: {first}") from None
        return value


class AgentDocument(_Document):
    """An agent under test (R18)."""

    agent_id: str = Field(pattern=IDENTIFIER)
    name: str = Field(pattern=IDENTIFIER)
    kind: Literal["http"] = "http"
    endpoint: str
    auth_header: str | None = None
    auth_value_ref: str | None = None
    tools: list[ToolDocument] = Field(default_factory=list)
    actors: list[str] = Field(default_factory=list)
    run_timeout_s: int = Field(default=300, ge=1, le=1800)
    require_rich_transcript: bool = False
    build: dict[str, str] = Field(default_factory=dict)

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        _check_url(value)
        return value

    @field_validator("auth_header")
    @classmethod
    def _is_header(cls, value: str | None) -> str | None:
        if value is not None and not _HEADER_NAME.fullmatch(value):
            raise ValueError("expected the name of an HTTP header")
        return value

    @field_validator("auth_value_ref")
    @classmethod
    def _is_reference(cls, value: str | None) -> str | None:
        if value is not None and not _REFERENCE.fullmatch(value):
            raise ValueError(
                "expected env:NAME or file:PATH, where the header's value is found; never the value"
            )
        return value

    @field_validator("actors")
    @classmethod
    def _are_paths(cls, value: list[str]) -> list[str]:
        for actor in value:
            if not _ACTOR.fullmatch(actor):
                raise ValueError(f"expected call paths such as planner/search, found {actor!r}")
        return value

    def registration(self) -> AgentRegistration:
        """The record that is published."""
        return AgentRegistration(
            agent_id=self.agent_id,
            name=self.name,
            kind=self.kind,
            endpoint=self.endpoint,
            auth_header=self.auth_header,
            auth_value_ref=self.auth_value_ref,
            tools=tuple(_tool(tool) for tool in self.tools),
            actors=tuple(self.actors),
            run_timeout_s=self.run_timeout_s,
            require_rich_transcript=self.require_rich_transcript,
            build=self.build,
        )


def read_registration(path: Path) -> AgentRegistration:
    """The registration in a file.

    Raises:
        InvalidDocument: with every problem found.
        CliError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8 text: byte {error.start}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise CliError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
    return parse_registration(text, str(path))


def parse_registration(text: str, file: str) -> AgentRegistration:
    """The registration in a YAML text, or a JSON one where the file's name ends in `.json`.

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
            return document.registration()
    problems = [Problem(p.path, p.message, p.file or file, p.line, p.column) for p in problems]
    raise InvalidDocument(
        sorted(dict.fromkeys(problems), key=lambda p: (p.line or 0, p.column or 0, p.path))
    )


def document_of(agent: AgentRegistration) -> dict[str, Any]:
    """The document from which `parse_registration` makes this registration again."""
    document: dict[str, Any] = {
        "agent_id": agent.agent_id,
        "name": agent.name,
        "kind": agent.kind,
        "endpoint": agent.endpoint,
        "auth_header": agent.auth_header,
        "auth_value_ref": agent.auth_value_ref,
        "tools": [_tool_document(tool) for tool in agent.tools],
        "actors": list(agent.actors),
        "run_timeout_s": agent.run_timeout_s,
        "require_rich_transcript": agent.require_rich_transcript,
        "build": dict(agent.build),
    }
    return {name: value for name, value in document.items() if value is not None}


def _tool_document(tool: ToolRegistration) -> dict[str, Any]:
    output = None if tool.output_schema is None else json.loads(tool.output_schema)
    document = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": json.loads(tool.input_schema),
        "output_schema": output,
        "mode": tool.mode,
        "target": tool.target,
    }
    return {name: value for name, value in document.items() if value is not None}


def _across_fields(root: Node) -> list[Problem]:
    """What is wrong between fields, found even when single fields are wrong too."""
    fields = root.value if isinstance(root.value, dict) else {}
    problems = []
    header, reference = fields.get("auth_header"), fields.get("auth_value_ref")
    if (header is None or header.value is None) != (reference is None or reference.value is None):
        node = header or reference or root
        problems.append(
            node.problem("auth_header", "expected auth_header and auth_value_ref, or neither")
        )
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
    return problems


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
            _check_url(target.value)
        except ValueError as error:
            return [target.problem(f"{path}.target", str(error))]
    return []


def _is_text(node: Node) -> bool:
    return isinstance(node.value, str)


def _check_url(value: str) -> None:
    """Raises ValueError without quoting the value, which may hold a password."""
    try:
        parts = urlsplit(value)
        host, has_user = parts.hostname, parts.username is not None
        _ = parts.port
    except ValueError:
        raise ValueError("expected a URL such as https://agent.example/dispatch") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("expected a URL such as https://agent.example/dispatch")
    if has_user:
        raise ValueError("expected a URL without user and password: secrets go by reference")


def _parse_json(text: str, file: str) -> Node:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise InvalidDocument(
            [Problem("", f"not JSON: {error.msg}", file, error.lineno, error.colno)]
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidDocument([Problem("", f"not JSON: {error}", file)]) from None
    if not isinstance(value, dict):
        raise InvalidDocument([Problem("", "expected an object at the top of the file", file)])
    return node_of(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        repeated = next(key for key, count in Counter(k for k, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {repeated!r} stands twice in one object")
    return found


def _tool(tool: ToolDocument) -> ToolRegistration:
    return ToolRegistration(
        name=tool.name,
        description=tool.description,
        input_schema=canonical_json(tool.input_schema),
        output_schema=None if tool.output_schema is None else canonical_json(tool.output_schema),
        mode=tool.mode,
        target=tool.target,
    )
