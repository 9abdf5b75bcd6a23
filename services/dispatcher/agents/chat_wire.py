"""The chat completions protocol, as far as an agent needs it: what is sent, what may come back.

Pure. Servers differ in details, so what is harmless is taken: a missing call id, arguments as an
object, content in parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.registry import AgentRegistration, ChatSettings, ToolRegistration
from services.runtime.agents.exchange import AgentFailed

MAX_CALLS_A_ROUND = 64
_MAX_TOKENS = 2**40


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the model. `arguments` is None where they are no JSON object."""

    id: str
    name: str
    arguments_text: str
    arguments: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of the model. Exactly one of text and calls is there to be used."""

    model: str
    text: str
    calls: tuple[ToolCall, ...]
    refused: bool
    cut_off: bool
    input_tokens: int | None
    output_tokens: int | None


def opening(settings: ChatSettings, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages before the model's first answer: prompt, conversation so far, instruction.

    A task's input is part of the prompt: a chat endpoint has no other place for it.
    """
    task = body["input"]
    prompt = settings.system_prompt
    if task.get("input"):
        state = orjson.dumps(task["input"]).decode()
        prompt = f"{prompt}\n\nInput:\n{state}".strip()
    history = body.get("session", {}).get("history", ())
    return [
        *([{"role": "system", "content": prompt}] if prompt else []),
        *({"role": said["role"], "content": said["content"]} for said in history),
        {"role": "user", "content": task["user_instruction"]},
    ]


def payload(agent: AgentRegistration, messages: Sequence[Mapping[str, Any]]) -> bytes:
    """The body of one request."""
    settings = agent.chat or ChatSettings(model="")
    tools = [_function(tool) for tool in agent.tools]
    return orjson.dumps(
        {
            "model": settings.model,
            "messages": messages,
            **({"tools": tools} if tools else {}),
            **json.loads(settings.parameters),
        }
    )


def _function(tool: ToolRegistration) -> dict[str, Any]:
    function = {"name": tool.name, "parameters": json.loads(tool.input_schema)}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def completion(value: Any, round_number: int) -> Completion:
    """A decoded answer, checked.

    Raises:
        AgentFailed: model_response_malformed, too_many_tool_calls, content_filtered,
            model_cut_off, model_empty_answer.
    """
    choices = value.get("choices") if isinstance(value, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(value, dict) or not isinstance(choice, dict) or not isinstance(message, dict):
        raise _malformed("no message in choices[0]")
    reason = choice.get("finish_reason")
    calls = _calls(message.get("tool_calls"), round_number)
    text = _text(message.get("content"))
    refusal = message.get("refusal")
    refused = not text and isinstance(refusal, str) and bool(refusal.strip())
    if refused:
        text = str(refusal)
    if calls and reason == "length":
        raise AgentFailed("error", "model_cut_off", "tool calls were cut off at the token limit")
    if not calls and not text.strip():
        if reason == "content_filter":
            raise AgentFailed("error", "content_filtered", "the provider's filter left no answer")
        if reason == "length":
            raise AgentFailed("error", "model_cut_off", "the token limit left no answer")
        raise AgentFailed(
            "error", "model_empty_answer", f"no content, finish_reason {reason!r:.40}"
        )
    model = value.get("model")
    usage = value.get("usage")
    return Completion(
        model=model[:200] if isinstance(model, str) else "",
        text=text,
        calls=calls,
        refused=refused,
        cut_off=reason == "length",
        input_tokens=_tokens(usage, "prompt_tokens"),
        output_tokens=_tokens(usage, "completion_tokens"),
    )


def assistant_message(answer: Completion) -> dict[str, Any]:
    """The answer as a message: for the next request, and for the transcript."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for call in answer.calls
        ]
    return message


def _calls(value: Any, round_number: int) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _malformed("tool_calls is no array")
    if len(value) > MAX_CALLS_A_ROUND:
        raise AgentFailed(
            "error",
            "too_many_tool_calls",
            f"{len(value)} tool calls at once, at most {MAX_CALLS_A_ROUND} are made",
        )
    return tuple(_call(item, f"call_{round_number}_{n}") for n, item in enumerate(value, 1))


def _call(value: Any, default_id: str) -> ToolCall:
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not name:
        raise _malformed("a tool call without function.name")
    given = function.get("arguments")
    text = given if isinstance(given, str) else orjson.dumps(given or {}).decode()
    call_id = value.get("id")
    return ToolCall(
        id=call_id if isinstance(call_id, str) and call_id else default_id,
        name=name,
        arguments_text=text,
        arguments=_arguments(text),
    )


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        # Some models leave arguments empty where there are none.
        value = orjson.loads(text) if text.strip() else {}
        orjson.dumps(value)  # deeper than it can be written again
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return value if isinstance(value, dict) else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _tokens(usage: Any, name: str) -> int | None:
    count = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= _MAX_TOKENS:
        return None
    return count


def _malformed(what: str) -> AgentFailed:
    return AgentFailed("error", "model_response_malformed", what)
