"""Messages brought into the one form that both packages compare, as they do it.

Both hand every message to LangChain, which parses, checks and rewrites it, and both do that
twice for `strict`. What matters for a result is kept here: roles, tool calls, and what makes it
raise. `openai_message` gives the same roles and calls for its own output, but may refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from services.judge.matching.messages import dumped
from services.judge.matching.packages.blocks import content_and_calls


class Refused(Exception):
    """The packages raise here; the message says about what."""


ERRORS = (Refused, ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)
"""What reading a message that the packages raise on raises here."""

_ROLES = {
    "human": "user", "user": "user", "ai": "assistant", "assistant": "assistant",
    "system": "system", "developer": "developer", "function": "function", "tool": "tool",
}  # fmt: skip
_CLASSES = {
    "Human": "human",
    "AI": "ai",
    "System": "system",
    "Function": "function",
    "Tool": "tool",
}


def openai_messages(messages: object) -> list[dict[str, Any]]:
    """Messages as OpenAI's: role, name, content, tool_calls (with JSON text), ids.

    Raises:
        any of ERRORS: the packages raise on these messages.
    """
    if messages is None:
        return []
    if isinstance(messages, dict):
        if "role" in messages:
            messages = [messages]
        elif "messages" in messages:
            messages = messages["messages"]
        else:
            raise Refused("an object has neither `role` nor `messages`")
    return [openai_message(m) for m in (messages if isinstance(messages, list) else [messages])]


def openai_message(message: Any) -> dict[str, Any]:
    """One message as OpenAI's. Of what LangChain makes of it, the first message counts."""
    fields = dumped(message)
    if fields is not message and isinstance(fields, Mapping):
        return _rewritten(_object_fields(fields), fields.get("id"))
    if isinstance(message, str):
        raise Refused("a message is a text")
    fields = dict(message)
    if fields.get("role") in ("ai", "assistant") and fields.get("tool_calls"):
        fields["tool_calls"] = [{**c, "id": c.get("id", "")} for c in fields["tool_calls"]]
    if fields.get("role") == "tool" and fields.get("tool_call_id") is None:
        fields["tool_call_id"] = ""
    if fields.get("content") is None:
        fields["content"] = ""
    return _rewritten(_unwrapped(fields), fields.get("id"))


def _object_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(fields.get("type"))
    if kind.endswith("MessageChunk"):
        kind = _CLASSES.get(kind.removesuffix("MessageChunk"), kind)
    return {**fields, "type": kind}


def _unwrapped(fields: dict[str, Any]) -> dict[str, Any]:
    """LangChain's serialised form opened; no other wrapping is."""
    named, kwargs = fields.get("id"), fields.get("kwargs")
    if fields.get("lc") != 1 or fields.get("type") != "constructor":
        return fields
    if not isinstance(named, list) or not named or not isinstance(kwargs, dict):
        return fields
    kind = _CLASSES.get(str(named[-1]).removesuffix("Chunk").removesuffix("Message"))
    # The keyword arguments contain the type again, and that is the one that counts.
    return fields if kind is None else _unwrapped({"type": kind, **kwargs})


def _rewritten(fields: dict[str, Any], message_id: Any) -> dict[str, Any]:
    fields = dict(fields)
    kind = fields.pop("role") if "role" in fields else fields.pop("type")
    content = fields.pop("content") or ""
    named = {key: fields.pop(key, None) for key in ("name", "tool_call_id", "tool_calls", "id")}
    fields.pop("response_metadata", None)
    fields.update(fields.pop("additional_kwargs", {}))
    calls = None if named["tool_calls"] is None else [_parsed(c) for c in named["tool_calls"]]
    role = _ROLES[kind]
    if role == "system":
        role = fields.get("__openai_role__", "system")
        _check(isinstance(role, str), "the system's role is no text")
    _check(named["name"] is None or isinstance(named["name"], str), "a name is no text")
    _check(role != "function" or named["name"] is not None, "a function message has no name")
    _check_id(named["id"])
    rewritten: dict[str, Any] = {"role": role}
    if named["name"]:
        rewritten["name"] = named["name"]
    if role == "tool":
        content = _tool_content(content)
        rewritten["tool_call_id"] = _tool_call_id(named["tool_call_id"])
        _check(fields.get("status") in (None, "success", "error"), "a tool's status is unknown")
    _check_content(content)
    if role == "assistant":
        calls = [_checked(call) for call in calls or _from_extras(fields.get("tool_calls"))]
    written, more, results = content_and_calls(content, calls)
    if role == "assistant":
        more = [_written(call) for call in calls or ()] + more
    if more:
        rewritten["tool_calls"] = more
    if content and not written and results:
        # Nothing but tool results: LangChain splits it into tool messages, the first is kept.
        rewritten = _rewritten({"type": "tool", **results[0]}, None)
    for result in results:
        _rewritten({"type": "tool", **result}, None)
    rewritten.setdefault("content", written)
    if message_id is not None and rewritten.get("id") is None:
        rewritten["id"] = message_id
    return rewritten


def _parsed(call: Any) -> Any:
    """A call in OpenAI's form as LangChain's; control characters in JSON texts are let pass."""
    if "function" not in call:
        return call
    function = call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, str):
        arguments = json.loads(arguments, strict=False)
    return {"name": function["name"], "args": arguments, "id": call["id"], "type": "tool_call"}


def _from_extras(raw: Any) -> list[dict[str, Any]]:
    """Calls under `additional_kwargs`: those with broken JSON are dropped, odd ones drop all."""
    calls = []
    try:
        for call in raw or ():
            if "function" not in call:
                continue
            name = call["function"]["name"] or ""
            try:
                arguments = json.loads(call["function"]["arguments"]) or {}
            except json.JSONDecodeError:
                continue
            calls.append({"name": name, "args": arguments, "id": call.get("id")})
    except Exception:
        return []  # as LangChain does, whatever it was
    return calls


def _checked(call: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in call.items() if key not in ("type", "extras")}
    _check(given.keys() == {"name", "args", "id"}, "a tool call has other fields than it should")
    _check(isinstance(given["name"], str), "a tool's name is no text")
    _check(isinstance(given["args"], dict), "a tool call's arguments are no object")
    _check(all(isinstance(key, str) for key in given["args"]), "an argument's name is no text")
    _check(given["id"] is None or isinstance(given["id"], str), "a tool call's id is no text")
    return given


def _written(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(call["args"], ensure_ascii=False)
    function = {"name": call["name"], "arguments": arguments}
    return {"type": "function", "id": call["id"], "function": function}


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise Refused(what)


def _check_id(value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    _check(value is None or isinstance(value, str) or number, "a message's id is no text")


def _check_content(content: Any) -> None:
    blocks = isinstance(content, list) and all(isinstance(b, str | dict) for b in content)
    _check(isinstance(content, str) or blocks, "content is neither text nor a list of blocks")


def _tool_content(content: Any) -> Any:
    if isinstance(content, tuple | list):
        return [block if isinstance(block, str | dict) else str(block) for block in content]
    return content if isinstance(content, str) else str(content)


def _tool_call_id(value: Any) -> str:
    if isinstance(value, int | float):
        return str(value)
    _check(isinstance(value, str), "a tool message has no tool_call_id")
    return str(value)
