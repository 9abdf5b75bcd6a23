"""What an agent answers to a turn: one model that validates it and gives its JSON Schema.

`final_response` is required and non-empty. `messages` and `metadata` are optional and lenient:
what is malformed is dropped to null, with a soft warning saying why, and the turn still counts.

Three things are checked that no JSON Schema can say: a tool message answers a call of an assistant
message before it, nothing is nested more than 100 deep, and the whole fits into a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from schemas.trajectory import Usage

MAX_DEPTH = 100
"""Objects and arrays in one another, in `messages` and in `metadata`."""
MAX_MESSAGES = 10_000
MAX_TOKENS = 2**53 - 1
_MAX_WARNING = 300
# White space and control characters, spelt out: languages differ in what \s means.
_BLANK = "\0- \x7f-\xa0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
_VISIBLE = re.compile(f"[^{_BLANK}]")


def _whole(value: Any) -> Any:
    """3.0 is an integer in JSON; in Python it is not."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS), BeforeValidator(_whole)]


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


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

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"role": {"const": "tool"}}, "required": ["role"]},
            "then": {
                "properties": {"tool_call_id": {"type": "string", "minLength": 1}},
                "required": ["tool_call_id"],
            },
        }
    )

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
    total_input_tokens: Tokens | None = None
    total_output_tokens: Tokens | None = None
    agent_runtime_ms: Annotated[float, Field(ge=0)] | None = None
    cost_usd: Annotated[float, Field(ge=0)] | None = None
    task_complete: bool | None = None


class AgentResponse(_Lenient):
    """The whole answer."""

    final_response: str = Field(min_length=1, pattern=_VISIBLE.pattern)
    messages: Annotated[list[Message], Field(max_length=MAX_MESSAGES)] | None = None
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
    if not isinstance(final, str) or not _VISIBLE.search(final):
        raise ResponseRefused(
            "final_response_missing",
            f"final_response must be a non-empty string, got {_kind(final)}",
        )
    warnings: list[str] = []
    messages = body.get("messages")
    if messages is not None and (problem := _messages_problem(messages)):
        warnings.append(f"messages dropped: {problem}"[:_MAX_WARNING])
        messages = None
    if count := sum(map(_is_no_object, _argument_texts(messages))):
        calls = "one tool call" if count == 1 else f"{count} tool calls"
        warnings.append(f"the arguments of {calls} in messages are no JSON object; kept as text")
    metadata = body.get("metadata")
    parsed: Metadata | None = None
    if metadata is not None:
        try:
            if _too_deep(metadata):
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
            parsed = Metadata.model_validate(metadata)
        except ValidationError as error:
            warnings.append(f"metadata dropped: {_first(error)}"[:_MAX_WARNING])
            metadata = None
        except ValueError as error:
            warnings.append(f"metadata dropped: {error}")
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
    if len(messages) > MAX_MESSAGES:
        return f"{len(messages)} messages, at most {MAX_MESSAGES} are taken"
    if _too_deep(messages):
        return f"nested more than {MAX_DEPTH} deep"
    called: set[str] = set()
    for index, item in enumerate(messages):
        try:
            message = Message.model_validate(item)
        except ValidationError as error:
            return f"[{index}].{_first(error)}"
        if message.role == "assistant":
            called.update(call.id for call in message.tool_calls or ())
        if message.role == "tool" and message.tool_call_id not in called:
            return f"[{index}].tool_call_id answers no earlier tool call"
    return None


def _too_deep(value: Any) -> bool:
    """Whether a value is nested deeper than MAX_DEPTH. Not recursive: it is meant for such."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        insides = (some.values() if isinstance(some, dict) else some for some in level)
        level = [one for inside in insides for one in inside if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _argument_texts(messages: list[Any] | None) -> Iterator[str]:
    """The arguments of tool calls that are given as JSON texts, which a model may get wrong."""
    for message in messages or ():
        for call in message.get("tool_calls") or ():
            inner = call if "name" in call else call.get("function", {})
            if isinstance(arguments := inner.get("arguments"), str):
                yield arguments


def _is_no_object(text: str) -> bool:
    try:
        return not isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return True


def _gradeable(messages: Any) -> bool:
    """Whether an assistant message is left that says something."""
    return any(m["role"] == "assistant" and _says(m.get("content")) for m in messages or ())


def _says(content: Any) -> bool:
    if isinstance(content, str):
        return bool(_VISIBLE.search(content))
    parts = content if isinstance(content, list) else ()
    texts = (p.get("text", p.get("refusal")) if isinstance(p, dict) else p for p in parts)
    return any(isinstance(text, str) and _VISIBLE.search(text) for text in texts)


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
    item = error.errors(include_input=False, include_url=False, include_context=False)[0]
    return f"{'.'.join(map(str, item['loc']))}: {item['msg']}"


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)
