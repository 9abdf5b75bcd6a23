"""Chat messages of the common formats, read for the tool calls in them.

This reading is lenient where the reproduced packages raise: arguments that are not JSON stay
text, and differ from everything but the same text. `packages/messages.py` reads as they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from services.judge.matching.calls import Call, decoded, shorten
from services.judge.matching.errors import UnreadableMessages

_ASSISTANT = frozenset({"assistant", "ai", "AIMessageChunk"})


def calls_of_messages(messages: object) -> tuple[Call, ...]:
    """The tool calls in chat messages, in order; `group` is the message's index.

    Args:
        messages: a list of messages, one message, an object with a list under `messages`, or
            None for an empty trajectory. Messages are OpenAI's or Anthropic's objects, or
            LangChain's in any of their forms: dicts with `type` or `role`, dumped ones
            (`{"type": "ai", "data": ...}`, `{"lc": 1, ...}`), and message objects. Calls are
            taken from `tool_calls` (`function` with `arguments` as text or object, or `name`
            and `args`), from `additional_kwargs`, and from content blocks `tool_use` and
            `function_call` that do not repeat one of those by its id.

    Raises:
        UnreadableMessages: something is no message, or a call has no name.
    """
    calls: list[Call] = []
    for index, message in enumerate(_listed(messages)):
        where = f"message {index + 1}"
        fields = fields_of(message, where)
        if fields.get("role", fields.get("type")) not in _ASSISTANT:
            continue
        for tool, arguments in _calls(fields, where):
            calls.append(Call(tool, arguments, label=where, group=index))
    return tuple(calls)


def _listed(messages: object) -> list[object]:
    if messages is None:
        return []
    if isinstance(messages, Mapping) and not {"role", "type"} & messages.keys():
        if "messages" not in messages:
            raise UnreadableMessages("an object has neither a role nor `messages`")
        messages = messages["messages"]
    if isinstance(messages, list | tuple):
        return list(messages)
    return [messages]


def dumped(message: object) -> object:
    """A message object of LangChain as the dict it dumps to; anything else as it is.

    Recognised by what it can do, so that nothing of LangChain has to be installed.
    """
    if isinstance(message, Mapping) or not hasattr(message, "model_dump"):
        return message
    return message.model_dump() if hasattr(message, "content") else message


def fields_of(message: object, where: str) -> Mapping[str, Any]:
    """The fields of a message in whatever wrapping it comes."""
    fields = dumped(message)
    if not isinstance(fields, Mapping):
        raise UnreadableMessages(f"{where} is no message: {shorten(repr(message), 80)}")
    if fields.get("type") == "constructor" and isinstance(fields.get("kwargs"), Mapping):
        kind = fields["id"][-1] if isinstance(fields.get("id"), list) and fields["id"] else ""
        kwargs: Mapping[str, Any] = fields["kwargs"]
        return {"type": str(kind).removesuffix("Chunk").removesuffix("Message").lower(), **kwargs}
    if "role" not in fields and isinstance(fields.get("data"), Mapping):
        return {**fields["data"], "type": fields.get("type")}
    if "role" not in fields and "type" not in fields:
        raise UnreadableMessages(f"{where} has neither a role nor a type")
    return fields


def _calls(fields: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    more = fields.get("additional_kwargs")
    listed = fields.get("tool_calls") or (
        more.get("tool_calls") if isinstance(more, Mapping) else None
    )
    ids: set[str] = set()
    for call in _each(listed, where):
        if isinstance(call.get("id"), str):
            ids.add(call["id"])
        function = call.get("function")
        if isinstance(function, Mapping):
            yield _named(function, where), _arguments(function.get("arguments"))
        else:
            yield _named(call, where), _arguments(call.get("args"))
    content = fields.get("content")
    for block in content if isinstance(content, list | tuple) else ():
        if not isinstance(block, Mapping):
            continue
        if block.get("type") == "tool_use" and block.get("id") not in ids:
            yield _named(block, where), _arguments(block.get("input"))
        elif block.get("type") == "function_call" and block.get("call_id") not in ids:
            yield _named(block, where), _arguments(block.get("arguments"))


def _each(listed: object, where: str) -> Iterator[Mapping[str, Any]]:
    if listed is None:
        return
    if not isinstance(listed, list | tuple):
        raise UnreadableMessages(f"{where}: tool_calls is no list")
    for call in listed:
        if not isinstance(call, Mapping):
            raise UnreadableMessages(f"{where}: a tool call is no object")
        yield call


def _named(call: Mapping[str, Any], where: str) -> str:
    name = call.get("name")
    if not isinstance(name, str) or not name:
        raise UnreadableMessages(f"{where}: a tool call has no name")
    return name


def _arguments(value: Any) -> Any:
    """Arguments as a value. Some models send nothing for a call without arguments."""
    if value is None or value == "":
        return {}
    return decoded(value) if isinstance(value, str) else value
