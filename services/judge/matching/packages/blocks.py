"""Content blocks, as far as they decide what the packages compare or raise on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_NEEDED = {
    "text": ("text",),
    "image_url": ("image_url",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("content", "tool_use_id"),
    "json": ("json",),
}


def content_and_calls(
    content: str | list[Any], calls: list[Any] | None
) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """A message's content, the tool calls and the tool results that its blocks add.

    Args:
        content: text, or blocks.
        calls: the message's tool calls, whose ids blocks do not repeat; None: it has no such
            field, and asking for it raises.

    Raises:
        KeyError: a block lacks what its type needs.
        TypeError: a call in a message that cannot have any.
    """
    if not content or isinstance(content, str):
        return content or "", [], []
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": b} if isinstance(b, str) else b for b in content
    ]
    if all(block.get("type") == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks), [], []
    written: list[Mapping[str, Any]] = []
    more: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if isinstance(kind, str) and not block.keys() >= set(_NEEDED.get(kind, ())):
            raise KeyError(f"a block of type {kind} lacks one of {_NEEDED[kind]}")
        if kind == "tool_use":
            if not _has(calls, block["id"]):
                more.append(_call(block["id"], block["name"], _dumped(block["input"])))
        elif kind == "function_call":
            if not _has(calls, block.get("call_id")):
                more.append(_call(block["call_id"], block["name"], block["arguments"]))
            written.append(block)
        elif kind == "tool_result":
            results.append({"content": block["content"], "tool_call_id": block["tool_use_id"]})
        elif kind == "json" or "json" in block:
            written.append({"type": "text", "text": json.dumps(block["json"])})
        elif "image" in block:
            written.append({"type": "image_url"})
        elif "guard_content" in block:
            written.append({"type": "text", "text": str(block["guard_content"]["text"])})
        else:
            written.append(block)
    # Only now, and only up to the first that is no text, LangChain looks at the types again.
    if any(block["type"] != "text" for block in written):
        return written, more, results
    return "\n".join(block["text"] for block in written), more, results


def _has(calls: list[Any] | None, call_id: Any) -> bool:
    if calls is None:
        raise TypeError("a call in a message that has no tool calls")
    return any(call["id"] == call_id for call in calls)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "id": call_id, "function": function}
