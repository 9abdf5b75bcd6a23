"""What an agent answers to a turn: one model that validates it and gives its JSON Schema.

`final_response` is required and non-empty. `messages` and `metadata` are optional and lenient:
what is malformed is dropped to null, with a soft warning saying why, and the turn still counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from schemas.trajectory import Usage


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class FunctionCall(_Lenient):
    """The inner part of the OpenAI nested form."""

    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)


class FlatToolCall(_Lenient):
    """A tool call in the flat form."""

    id: str
    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] | str = Field(default_factory=dict)


class NestedToolCall(_Lenient):
    """A tool call as OpenAI Chat Completions nests it."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(_Lenient):
    """One rich message."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[JsonValue] | None = None
    tool_call_id: str | None = None
    tool_calls: list[NestedToolCall | FlatToolCall] | None = None
    thinking: list[JsonValue] | None = None

    @model_validator(mode="after")
    def _tool_messages_answer(self) -> Message:
        if self.role == "tool" and not self.tool_call_id:
            raise ValueError("a tool message needs tool_call_id")
        return self


class Metadata(_Lenient):
    """First-class keys; any others are kept."""

    model: str | None = None
    system_prompt_id: str | None = None
    total_input_tokens: Annotated[int, Field(ge=0)] | None = None
    total_output_tokens: Annotated[int, Field(ge=0)] | None = None
    agent_runtime_ms: Annotated[float, Field(ge=0)] | None = None
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    task_complete: bool | None = None


class AgentResponse(_Lenient):
    """The whole answer."""

    final_response: str = Field(min_length=1, pattern=r"\S")
    messages: list[Message] | None = None
    metadata: Metadata | None = None


@dataclass(frozen=True, slots=True)
class ParsedResponse:
    """An answer after leniency: what is usable, and what was dropped."""

    final_response: str
    messages: list[Any] | None
    metadata: dict[str, Any] | None
    soft_warnings: tuple[str, ...]
    usage: Usage | None
    ended: bool


class ResponseRefused(Exception):
    """The answer has no usable `final_response`; `code` says what is wrong."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        super().__init__(detail)


def parse_response(body: Any, *, require_rich_transcript: bool = False) -> ParsedResponse:
    """The usable part of a decoded answer.

    Raises:
        ResponseRefused: not an object, no non-empty `final_response`, or, with the guard on, no
            gradeable assistant message left.
    """
    if not isinstance(body, dict):
        raise ResponseRefused("response_not_object", f"expected an object, got {_kind(body)}")
    final = body.get("final_response")
    if not isinstance(final, str) or not final.strip():
        raise ResponseRefused(
            "final_response_missing",
            f"final_response must be a non-empty string, got {_kind(final)}",
        )
    warnings: list[str] = []
    messages = body.get("messages")
    if messages is not None and (problem := _messages_problem(messages)):
        warnings.append(f"messages dropped: {problem}")
        messages = None
    metadata = body.get("metadata")
    parsed: Metadata | None = None
    if metadata is not None:
        try:
            parsed = Metadata.model_validate(metadata, strict=True)
        except ValidationError as error:
            warnings.append(f"metadata dropped: {_first(error)}")
            metadata = None
    if require_rich_transcript and not _gradeable(messages):
        raise ResponseRefused(
            "no_gradeable_message",
            "a gradeable rich transcript is required and no assistant message with content is "
            f"left{'; ' + warnings[0] if warnings else ''}",
        )
    return ParsedResponse(
        final_response=final,
        messages=messages,
        metadata=metadata,
        soft_warnings=tuple(warnings),
        usage=_usage(parsed) if parsed else None,
        ended=bool(parsed and parsed.task_complete),
    )


def json_schema() -> dict[str, Any]:
    """The JSON Schema that is served at /schemas/agent-response.json."""
    schema = AgentResponse.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _messages_problem(messages: Any) -> str | None:
    if not isinstance(messages, list):
        return f"expected an array, got {_kind(messages)}"
    called: set[str] = set()
    for index, item in enumerate(messages):
        try:
            message = Message.model_validate(item)
        except ValidationError as error:
            return f"[{index}].{_first(error)}"
        called.update(call.id for call in message.tool_calls or ())
        if message.role == "tool" and message.tool_call_id not in called:
            return f"[{index}].tool_call_id: {message.tool_call_id!r} answers no earlier tool call"
    return None


def _gradeable(messages: Any) -> bool:
    return any(m.get("role") == "assistant" and m.get("content") for m in messages or ())


def _usage(metadata: Metadata) -> Usage | None:
    said = (metadata.total_input_tokens, metadata.total_output_tokens, metadata.cost_usd)
    if metadata.model is None and said == (None, None, None):
        return None
    return Usage(
        model=metadata.model or "",
        input_tokens=metadata.total_input_tokens or 0,
        output_tokens=metadata.total_output_tokens or 0,
        cost_usd=metadata.cost_usd or 0.0,
    )


def _first(error: ValidationError) -> str:
    item = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, item['loc']))}: {item['msg']}"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)
