"""Chat messages of every form that the trajectory-matching packages know, and odd ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from tests.support.matching_strategies import ARGUMENTS, CALLS, NAMES


def _weighted(weights: dict[str, int]) -> list[str]:
    return [value for value, weight in weights.items() for _ in range(weight)]


@st.composite
def odd_messages(draw: Any) -> Any:
    """Messages in every form the packages know, and in some that they refuse."""
    messages = [draw(_odd_message()) for _ in range(draw(st.integers(0, 3)))]
    wrapped = draw(st.sampled_from(["list"] * 30 + ["dict", "one", "none", "tuple", "nothing"]))
    if wrapped == "dict":
        return {"messages": messages}
    if wrapped == "one":
        return messages[0] if messages else None
    if wrapped == "tuple":
        return tuple(messages)
    return {"none": None, "nothing": {}}.get(wrapped, messages)


_RARE_VALUES = st.sampled_from([float("nan"), float("inf"), 10**20, "ü\ud800", {"a": {"b": 1}}])
_RARE_ARGUMENTS = ARGUMENTS | st.dictionaries(st.just("x"), _RARE_VALUES, min_size=1)
_IDS = st.sampled_from(["c1", "c2", "c3"] * 5 + [None, 7])
_TEXTS = st.sampled_from(["{}", '{"x": 1}', "{", "", "[1]", "[]", "1", "null", '{"x": "\n"}'])
ROLES = ["assistant", "ai", "user", "human", "tool", "system", "developer", "function", "chat"]
_ROLES = st.sampled_from(["assistant"] * 12 + ROLES[1:])


ODD_CALLS: list[Any] = [
    {}, "get", 7, {"function": {}}, {"function": 7}, {"name": "get", "args": "x"},
]  # fmt: skip


@st.composite
def _odd_call(draw: Any) -> Any:
    name, arguments = draw(NAMES), draw(_RARE_ARGUMENTS)
    kind = draw(
        st.sampled_from(["text"] * 10 + ["object", "object", "broken", "lc", "lc", "lc", "odd"])
    )
    if kind == "odd":
        return draw(st.sampled_from(ODD_CALLS))
    if kind == "lc":
        call = {"name": name, "args": arguments}
        extra: Any = draw(st.sampled_from([{}, {}, {}, {}, {"type": "tool_call"}, {"index": 0}]))
        call |= extra
    else:
        given = {"text": json.dumps(arguments), "object": arguments, "broken": draw(_TEXTS)}[kind]
        call = {"type": "function", "function": {"name": name, "arguments": given}}
    if draw(st.sampled_from([True] * 6 + [False])):
        call["id"] = draw(_IDS)
    return call


def odd_blocks(name: str, arguments: Any, call_id: str) -> list[Any]:
    """Content blocks of every kind that has a part in matching, sound and broken."""
    return [
        "text", {"type": "text", "text": "text"}, {"type": "text"}, {"foo": 1}, {"type": "foo"},
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments},
        {"type": "tool_use", "id": call_id, "name": name, "input": arguments},
        {"type": "tool_use", "id": call_id, "name": name, "input": [1]},
        {"type": "tool_use", "name": name, "input": arguments},
        {"type": "function_call", "call_id": call_id, "name": name,
         "arguments": json.dumps(arguments)},
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments},
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{"},
        {"type": "function_call", "call_id": call_id},
        {"type": "tool_result", "tool_use_id": "c1", "content": "ok"},
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text"}]},
        {"type": "tool_result", "tool_use_id": "c1", "content": None},
        {"type": "tool_result", "content": "ok"},
        {"type": "image_url", "image_url": {"url": "u"}}, {"type": "image_url"},
        {"json": {"a": 1}}, {"type": "json"}, {"type": "thinking", "thinking": "hm"}, 7,
    ]  # fmt: skip


@st.composite
def _odd_block(draw: Any) -> Any:
    call_id = draw(st.sampled_from(["c1", "c2", "c3"]))
    return draw(st.sampled_from(odd_blocks(draw(NAMES), draw(_RARE_ARGUMENTS), call_id)))


@st.composite
def _odd_message(draw: Any) -> Any:
    kind = draw(
        st.sampled_from(
            ["dict"] * 20 + ["type", "constructor", "object", "object", "object", "odd"]
        )
    )
    if kind == "object":
        return draw(_object())
    if kind == "odd":
        odd = [{}, {"content": ""}, "Hello.", 7, {"type": "ai", "data": {"content": ""}},
               [("role", "user"), ("content", "Hello.")]]  # fmt: skip
        return draw(st.sampled_from(odd))
    message: dict[str, Any] = {"role": draw(_ROLES)}
    if draw(st.integers(0, 3)) == 0:
        blocks = st.lists(_odd_block(), min_size=1, max_size=3)
        message["content"] = draw(st.one_of(st.sampled_from(CONTENTS), blocks, blocks))
    calls = st.lists(_odd_call(), max_size=3)
    if message["role"] in ("assistant", "ai") or draw(st.integers(0, 5)) == 0:
        given = draw(st.sampled_from(["calls"] * 6 + ["none", "extras", "both", "not"]))
        if given in ("calls", "both"):
            message["tool_calls"] = draw(calls)
        if given == "none":
            message["tool_calls"] = None
        if given in ("extras", "both"):
            message["additional_kwargs"] = {"tool_calls": draw(calls)}
    for key, values in FIELDS.items():
        if draw(st.integers(0, 19)) == 0:
            message[key] = draw(st.sampled_from(values))
    if message["role"] == "function" and draw(st.integers(0, 4)):
        message["name"] = "get"
    if kind == "type":
        message["type"] = message.pop("role")
    if kind == "constructor":
        classes = {"assistant": "AIMessage", "ai": "AIMessageChunk", "user": "HumanMessage"}
        name = classes.get(message.pop("role"), "ToolMessage")
        own_type: Any = draw(st.sampled_from([{}, {"type": "ai"}]))
        named = {"lc": 1, "type": "constructor", "id": ["langchain", name]}
        return {**named, "kwargs": {**message, **own_type}}
    return message


CONTENTS = ["", "Hello.", None, 0, 3, [], {"a": 1}, ("a", 1), [1], ["a", "b"]]
FIELDS: dict[str, list[Any]] = {
    "name": ["get", "", None, 7],
    "id": ["m1", None, 7, True, ["m1"]],
    "tool_call_id": ["c1", None, 7, True, ["c1"]],
    "status": ["success", "error", "lost"],
    "__openai_role__": ["developer", "user", 7],
    "type": ["ai", "foo"],
}


@st.composite
def _object(draw: Any) -> Any:
    calls = [
        {"name": name, "args": arguments, "id": draw(st.sampled_from(["c1", None]))}
        for name, arguments in draw(st.lists(CALLS, max_size=2))
    ]
    messages = [
        HumanMessage("Hello."),
        SystemMessage("Be kind."),
        ToolMessage("ok", tool_call_id="c1"),
    ]
    return draw(st.sampled_from([AIMessage("", tool_calls=calls), *messages]))


def single_oddities() -> Iterator[list[Any]]:
    """One message each, of every role, with one thing about it that may be odd."""
    sound = {"id": "c", "function": {"name": "get", "arguments": "{}"}}
    texts = ["{}", "{", "", "[1]", "[]", "1", "null", '{"x": "\n"}', {"x": 1}, {1: 2}, [1], None]
    functions = [{"name": "get", "arguments": text} for text in texts]
    functions += [{"name": name, "arguments": "{}"} for name in (None, 7, "")]
    calls = ODD_CALLS + [{"id": "c", "function": function} for function in functions]
    calls += [{"function": functions[0]}, {"id": None, "function": functions[0]}]
    calls += [{"id": 7, "function": functions[0]}, {**sound, "index": 0}]
    calls += [{"name": "get", "args": args, "id": "c"} for args in ({}, {"x": {1: 2}}, [1], None)]
    calls += [{"name": "get", "args": {}}, {"name": "get", "args": {}, "id": "c", "index": 0}]
    calls += [{"name": "get", "args": {}, "id": "c", "extras": 0}]
    for role in ROLES:
        base = {"role": role, "content": "", "name": "get"}
        typed = {"type": role, "content": "", "name": "get", "tool_call_id": "c"}
        for known in (base, typed):
            yield [known]
            yield from ([{**known, "content": content}] for content in CONTENTS)
            yield from ([{**known, key: v}] for key, values in FIELDS.items() for v in values)
            for call in calls:
                yield [{**known, "tool_calls": [call]}]
                yield [{**known, "additional_kwargs": {"tool_calls": [call, sound]}}]
            for given in (None, [], (sound,), sound, "get", 7):
                yield [{**known, "tool_calls": given}]
                yield [{**known, "additional_kwargs": {"tool_calls": given}}]
            for block in odd_blocks("get", {"x": 1}, "c"):
                yield [{**known, "content": [block]}]
                yield [{**known, "content": [block], "tool_calls": [sound]}]
                yield [{**known, "content": [{"type": "image_url", "image_url": ""}, block]}]
        for absent in ("name", "content"):
            yield [{key: value for key, value in base.items() if key != absent}]
        yield [{key: value for key, value in typed.items() if key != "tool_call_id"}]
