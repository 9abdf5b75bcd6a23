"""Agent registrations as people write them: the model of the document, in YAML, JSON or a request.

Secrets are given by reference only. What stands where a reference should is never shown again: it
is likely the secret itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import jsonschema_rs
from pydantic import BaseModel, ConfigDict, Field, field_validator

from schemas.loader import canonical_json
from schemas.model import IDENTIFIER, TOOL_NAME
from schemas.registry import (
    AgentRegistration,
    ChatSettings,
    CodeSource,
    RasaSettings,
    ToolRegistration,
)
from schemas.traces import ACTOR_PATH

_SCHEMA_ERRORS = (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError)
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")
_SECRET_NAME = re.compile(
    r"api[-_]?key|(access|api|auth)[-_]?token|auth[-_]?value|authorization|bearer|credential"
    r"|passw|secret|^token$",
    re.IGNORECASE,
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TAKEN_HEADERS = re.compile(
    r"x-pipelines-.*|content-.*|host|idempotency-key|connection|transfer-encoding|accept-encoding"
    r"|expect|upgrade|te|trailer",
    re.IGNORECASE,
)
_ACTOR = re.compile(ACTOR_PATH, re.ASCII)
_ENTRYPOINT = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def _reference(value: object) -> object:
    """Runs before the type is checked, whose message would quote a number or a list."""
    if value is None:
        return value
    if not isinstance(value, str) or not _REFERENCE.fullmatch(value):
        raise ValueError(
            "expected env:NAME or file:PATH, where the value is found; never the value"
        )
    if value.upper().startswith("ENV:WINDTUNNEL_"):
        raise ValueError("expected a variable of your own: WINDTUNNEL_ ones are Windtunnel's")
    return value


def _secrets(value: Any, path: str = "") -> Iterator[str]:
    """Where texts stand whose names say that they are secrets."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        here = f"{path}.{name}".removeprefix(".")
        if isinstance(inner, str) and _SECRET_NAME.search(str(name)):
            yield here
        yield from _secrets(inner, here)


def _check_no_secrets(value: Mapping[str, Any]) -> None:
    if found := next(_secrets(value), None):
        raise ValueError(f"expected no secret, found {found}: secrets go by reference")


def _header(value: str | None) -> str | None:
    if value is not None and not _HEADER_NAME.fullmatch(value):
        raise ValueError("expected the name of an HTTP header")
    if value is not None and _TAKEN_HEADERS.fullmatch(value):
        raise ValueError(f"expected a header of your own: {value} is part of the contract")
    return value


def check_url(value: str) -> None:
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
    if any(_SECRET_NAME.search(name) for name, _ in parse_qsl(parts.query)):
        raise ValueError("expected a URL without a secret in its query: secrets go by reference")


class ToolDocument(_Document):
    """One tool (R01)."""

    name: str = Field(pattern=TOOL_NAME)
    description: str = ""
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    mode: Literal["sandbox", "passthrough"] = "sandbox"
    target: str | None = None
    target_kind: Literal["http", "mcp"] = "http"
    target_tool: str | None = None
    target_auth_header: str | None = None
    target_auth_ref: str | None = None
    target_timeout_s: int = Field(default=30, ge=1, le=300)

    _references = field_validator("target_auth_ref", mode="before")(_reference)
    _headers = field_validator("target_auth_header")(_header)

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

    def registration(self) -> ToolRegistration:
        """The record that is published."""
        output = None if self.output_schema is None else canonical_json(self.output_schema)
        return ToolRegistration(
            **self.model_dump(exclude={"input_schema", "output_schema"}),
            input_schema=canonical_json(self.input_schema),
            output_schema=output,
        )


class ChatDocument(_Document):
    """A model behind an OpenAI-compatible chat endpoint, and what makes an agent of it."""

    model: str = Field(min_length=1)
    system_prompt: str = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    max_rounds: int = Field(default=16, ge=1, le=100)

    @field_validator("parameters")
    @classmethod
    def _are_free(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = sorted(set(value) & {"model", "messages", "tools", "stream", "n", "tool_choice"})
        if taken:
            raise ValueError(f"expected parameters such as temperature, found {', '.join(taken)}")
        _check_no_secrets(value)
        return value


class RasaDocument(_Document):
    """How a Rasa assistant is driven."""

    channel: str = Field(default="rest", pattern=IDENTIFIER)
    tracker: bool = True
    token_ref: str | None = None

    _references = field_validator("token_ref", mode="before")(_reference)


class GitDocument(_Document):
    """Source in a git repository."""

    url: str
    ref: str = Field(default="HEAD", pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}$")
    folder: str = ""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        check_url(value)
        return value


class PublishedDocument(_Document):
    """Source that was uploaded before, as a registration shows it."""

    source_hash: str = Field(pattern=r"^[0-9a-f]{32}$")
    origin: Literal["paste", "zip", "git"]
    origin_ref: str = ""
    files: int = Field(ge=1)
    parts: int = Field(ge=1)


class CodeDocument(_Document):
    """Source of an agent that runs in a sandbox here: one of the places it can come from.

    Attributes:
        paste: The text of `main.py`.
        zip: A zip archive in base64.
        path: A folder, a `.py` file or a zip archive beside the registration's file.
        git: A repository.
        published: What was uploaded before.
    """

    entrypoint: str = Field(default="main:run", pattern=_ENTRYPOINT)
    paste: str | None = None
    zip: str | None = Field(default=None, repr=False)
    path: str | None = None
    git: GitDocument | None = None
    published: PublishedDocument | None = None


class AgentDocument(_Document):
    """An agent under test (R18)."""

    agent_id: str = Field(pattern=IDENTIFIER)
    name: str = Field(pattern=IDENTIFIER)
    kind: Literal["http", "code", "openai", "rasa"] = "http"
    endpoint: str = ""
    auth_header: str | None = None
    auth_value_ref: str | None = None
    tools: list[ToolDocument] = Field(default_factory=list)
    actors: list[str] = Field(default_factory=list)
    run_timeout_s: int = Field(default=300, ge=1, le=1800)
    require_rich_transcript: bool = False
    build: dict[str, str] = Field(default_factory=dict)
    code: CodeDocument | None = None
    chat: ChatDocument | None = None
    rasa: RasaDocument | None = None

    _headers = field_validator("auth_header")(_header)
    _references = field_validator("auth_value_ref", mode="before")(_reference)

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if value:
            check_url(value)
        return value

    @field_validator("build")
    @classmethod
    def _is_open(cls, value: dict[str, str]) -> dict[str, str]:
        _check_no_secrets(value)
        return value

    @field_validator("actors")
    @classmethod
    def _are_paths(cls, value: list[str]) -> list[str]:
        for actor in value:
            if not _ACTOR.fullmatch(actor):
                raise ValueError(f"expected call paths such as planner/search, found {actor!r}")
        return value

    def registration(self, code: CodeSource | None = None) -> AgentRegistration:
        """The record that is published.

        Args:
            code: What became of the source of a code agent, once its archive is published.

        Raises:
            ValueError: a code agent whose source was not published.
        """
        if code is None and self.code is not None and self.code.published is not None:
            code = CodeSource(entrypoint=self.code.entrypoint, **self.code.published.model_dump())
        if self.kind == "code" and code is None:
            raise ValueError("the source of a code agent is published before its registration")
        chat = self.chat
        return AgentRegistration(
            agent_id=self.agent_id,
            name=self.name,
            kind=self.kind,
            endpoint=self.endpoint,
            auth_header=self.auth_header,
            auth_value_ref=self.auth_value_ref,
            tools=tuple(tool.registration() for tool in self.tools),
            actors=tuple(self.actors),
            run_timeout_s=self.run_timeout_s,
            require_rich_transcript=self.require_rich_transcript,
            build=self.build,
            code=code,
            chat=None
            if chat is None
            else ChatSettings(
                **chat.model_dump(exclude={"parameters"}),
                parameters=canonical_json(chat.parameters),
            ),
            rasa=None if self.rasa is None else RasaSettings(**self.rasa.model_dump()),
        )


def document_of(agent: AgentRegistration) -> dict[str, Any]:
    """The document that makes this registration again."""
    document: dict[str, Any] = {
        "agent_id": agent.agent_id,
        "name": agent.name,
        "kind": agent.kind,
        "endpoint": agent.endpoint or None,
        "auth_header": agent.auth_header,
        "auth_value_ref": agent.auth_value_ref,
        "tools": [_tool_document(tool) for tool in agent.tools],
        "actors": list(agent.actors),
        "run_timeout_s": agent.run_timeout_s,
        "require_rich_transcript": agent.require_rich_transcript,
        "build": dict(agent.build),
    }
    if agent.code is not None:
        code = agent.code
        names = ("source_hash", "origin", "origin_ref", "files", "parts")
        published = {name: getattr(code, name) for name in names}
        document["code"] = {"entrypoint": code.entrypoint, "published": published}
    if agent.chat is not None:
        chat = agent.chat
        document["chat"] = {
            "model": chat.model,
            "system_prompt": chat.system_prompt,
            "parameters": json.loads(chat.parameters),
            "max_rounds": chat.max_rounds,
        }
    if agent.rasa is not None:
        rasa = {"channel": agent.rasa.channel, "tracker": agent.rasa.tracker}
        reference = agent.rasa.token_ref
        document["rasa"] = rasa | ({} if reference is None else {"token_ref": reference})
    return {name: value for name, value in document.items() if value is not None}


def _tool_document(tool: ToolRegistration) -> dict[str, Any]:
    output = None if tool.output_schema is None else json.loads(tool.output_schema)
    document = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": json.loads(tool.input_schema),
        "output_schema": output,
        "mode": tool.mode,
    }
    if tool.target is not None:
        document |= {
            "target": tool.target,
            "target_kind": tool.target_kind,
            "target_tool": tool.target_tool,
            "target_auth_header": tool.target_auth_header,
            "target_auth_ref": tool.target_auth_ref,
            "target_timeout_s": tool.target_timeout_s,
        }
    return {name: value for name, value in document.items() if value is not None}
