"""R13-R15: the parser and the published schema agree, and no answer breaks what records it."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.agent_response import (
    MAX_DEPTH,
    ParsedResponse,
    ResponseRefused,
    json_schema,
    parse_response,
)
from schemas.codec import Codec
from schemas.trajectory import TrajectoryEvent
from services.dispatcher.answers import answered, fitting
from services.runtime.agents.decoding import NotJson, decode

VALIDATOR = jsonschema_rs.validator_for(json_schema())

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
visible = st.builds(lambda a, b: a + "x" + b, texts, texts)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts | st.floats(
    allow_nan=False, allow_infinity=False
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def sometimes(strategy: st.SearchStrategy[Any], other: st.SearchStrategy[Any] = values) -> Any:
    """Mostly what it should be."""
    return st.integers(0, 9).flatmap(lambda n: other if n == 0 else strategy)


def record(required: dict[str, Any], optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries(required, optional=optional)


ids = st.sampled_from(["c1", "c2"])
arguments = sometimes(st.dictionaries(texts, values, max_size=2) | texts)
flat = record({"id": sometimes(ids), "name": sometimes(visible)}, {"arguments": arguments})
function = record({"name": sometimes(visible)}, {"arguments": arguments})
nested = record(
    {"id": sometimes(ids), "function": sometimes(function)},
    {"type": sometimes(st.just("function"))},
)
message = record(
    {"role": sometimes(st.sampled_from(["system", "user", "assistant", "tool"]), texts)},
    {
        "content": sometimes(texts | st.lists(values, max_size=2) | st.none()),
        "tool_call_id": sometimes(ids | st.none()),
        "tool_calls": sometimes(st.lists(flat | nested, max_size=2) | st.none()),
        "thinking": sometimes(st.lists(values, max_size=2) | st.none()),
        "own": values,
    },
)
tokens = sometimes(
    st.integers(-1, 10**6) | st.just(3.0) | st.none() | st.sampled_from([2**53, True, "3", 3.5])
)
metadata = record(
    {},
    {
        "model": sometimes(texts | st.none()),
        "system_prompt_id": sometimes(texts),
        "total_input_tokens": tokens,
        "total_output_tokens": tokens,
        "agent_runtime_ms": sometimes(st.floats(0, 1e6) | st.integers(-1, 100)),
        "cost_usd": sometimes(st.floats(0, 10)),
        "task_complete": sometimes(st.booleans()),
        "own": values,
    },
)
responses = record(
    {"final_response": sometimes(visible | texts)},
    {
        "messages": sometimes(st.lists(sometimes(message), max_size=3) | st.none()),
        "metadata": sometimes(metadata | st.none()),
        "own": values,
    },
)


def clean(body: Any) -> bool:
    """Whether the parser takes an answer as it is."""
    try:
        parsed = parse_response(body)
    except ResponseRefused:
        return False
    return not any("dropped" in warning for warning in parsed.soft_warnings)


def answers_no_call(body: Any) -> bool:
    """The one thing among these that no JSON Schema can say."""
    try:
        warnings = parse_response(body).soft_warnings
    except ResponseRefused:
        return False
    return any("answers no earlier tool call" in warning for warning in warnings)


@pytest.mark.req("R13", "R14", "R15")
@settings(max_examples=500, deadline=None)
@given(responses | values)
def test_the_parser_takes_whole_what_the_schema_allows(body: Any) -> None:
    before = deepcopy(body)
    assert clean(body) or answers_no_call(body) or not VALIDATOR.is_valid(body)
    assert VALIDATOR.is_valid(body) or not clean(body)
    assert body == before


@pytest.mark.req("R14")
@settings(max_examples=200, deadline=None)
@given(responses)
def test_whatever_is_taken_can_be_recorded(body: Any) -> None:
    try:
        parsed = parse_response(decode(orjson.dumps(body)).value)
    except ResponseRefused:
        return
    assert recorded(parsed).agent_turn == answered(parsed)


def event_of(parsed: ParsedResponse) -> TrajectoryEvent:
    return TrajectoryEvent(
        event_id="s:a1", session_id="s", run_id="r", kind="agent_turn", at_ms=0,
        agent_turn=answered(parsed),
    )  # fmt: skip


def recorded(parsed: ParsedResponse) -> TrajectoryEvent:
    codec = Codec()
    return codec.decode(TrajectoryEvent, codec.encode(event_of(parsed)))


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.req("R14")
@pytest.mark.parametrize("levels", [MAX_DEPTH - 3, MAX_DEPTH, 300, 900])
@pytest.mark.parametrize("place", ["thinking", "content", "own"])
def test_deep_messages_and_metadata_are_dropped(levels: int, place: str) -> None:
    body = {
        "final_response": "x",
        "messages": [{"role": "assistant", place: deep(levels)}],
        "metadata": {"own": deep(levels)},
    }
    parsed = parse_response(decode(json.dumps(body).encode()).value)
    kept = levels == MAX_DEPTH - 3
    assert (parsed.messages is not None) == (parsed.metadata is not None) == kept
    assert len(parsed.soft_warnings) == (0 if kept else 2)
    recorded(parsed)


@pytest.mark.req("R14")
def test_malformed_argument_texts_are_kept_and_noted() -> None:
    calls = [
        {"id": "c1", "name": "f", "arguments": "{nope"},
        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "[1]"}},
        {"id": "c3", "name": "f", "arguments": '{"a": 1}'},
    ]
    body = {"final_response": "x", "messages": [{"role": "assistant", "tool_calls": calls}]}
    parsed = parse_response(body)
    assert parsed.messages == body["messages"]
    assert len(parsed.soft_warnings) == 1
    assert "2 tool calls" in parsed.soft_warnings[0]


@pytest.mark.req("R14")
def test_only_an_assistants_earlier_call_can_be_answered() -> None:
    call = {"role": "assistant", "tool_calls": [{"id": "c1", "name": "f"}]}
    answer = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    for messages, kept in (
        ([call, answer, answer], True),
        ([answer, call], False),
        ([{**call, "role": "user"}, answer], False),
        ([call, {**answer, "tool_call_id": "c2"}], False),
        ([call, {"role": "tool", "content": "x"}], False),
        ([call, {**answer, "tool_call_id": ""}], False),
    ):
        parsed = parse_response({"final_response": "x", "messages": messages})
        assert (parsed.messages is not None) == kept, messages


@pytest.mark.req("R13")
@pytest.mark.parametrize(
    ("content", "gradeable"),
    [
        ("text", True),
        (" \n", False),
        ("", False),
        (None, False),
        ([], False),
        ([{"type": "image_url", "image_url": {"url": "x"}}], False),
        ([{"type": "text", "text": " "}], False),
        ([{"type": "output_text", "text": "x"}], True),
        (["x"], True),
        ([{"type": "refusal", "refusal": "no"}], True),
    ],
)
def test_the_guard_wants_an_assistant_message_that_says_something(
    content: Any, gradeable: bool
) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": content}]
    body = {"final_response": "x", "messages": messages}
    assert parse_response(body).messages == messages
    if gradeable:
        parse_response(body, require_rich_transcript=True)
    else:
        with pytest.raises(ResponseRefused) as caught:
            parse_response(body, require_rich_transcript=True)
        assert caught.value.code == "no_gradeable_message"


def read(text: str | bytes) -> tuple[Any, tuple[str, ...]]:
    decoded = decode(text if isinstance(text, bytes) else text.encode())
    return decoded.value, decoded.notes


def test_decoding_takes_what_json_libraries_really_write() -> None:
    assert read('"\\ud83d\\ude00"') == ("\U0001f600", ())
    value, notes = read(
        '{"a": "cut \\ud83d", "\\ude00": "\\\\ud83d", "b": "\\ud83d\\ud83d\\ude00"}'
    )
    assert value == {"a": "cut \ufffd", "\ufffd": "\\ud83d", "b": "\ufffd\U0001f600"}
    assert len(notes) == 1
    value, notes = read('{"a": 1, "a": 2, "b": 18446744073709551615, "c": 18446744073709551616}')
    assert value == {"a": 2, "b": 2**64 - 1, "c": float(2**64)}
    assert isinstance(value["c"], float)
    assert len(notes) == 2
    assert read(b"\xef\xbb\xbf1") == (1, ())


@pytest.mark.parametrize(
    "text",
    ["NaN", "[-Infinity]", "1e999", "-" + "9" * 400, "9" * 5000, "[" * 100_000, "", "{'a': 1}"],
)
def test_decoding_refuses_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJson):
        read(text)


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=20), st.text(max_size=20))
def test_what_is_decoded_can_be_written_again(key: str, text: str) -> None:
    # json.dumps writes lone surrogates, as JavaScript does.
    value, _ = read(json.dumps({key: [text]}))
    assert orjson.loads(orjson.dumps(value)) == value


@pytest.mark.req("R13")
def test_an_answer_too_large_for_a_record_is_cut_part_by_part() -> None:
    codec = Codec()

    def fit(body: dict[str, Any], guarded: bool = False) -> Any:
        event = fitting(
            event_of(parse_response(body)), lambda one: len(codec.encode(one)), 10_000, guarded
        )
        assert len(codec.encode(event)) <= 10_000
        return event.agent_turn

    long = "x" * 9_000
    messages = [{"role": "assistant", "content": long}]
    small = fit({"final_response": long})
    assert (small.final_response, small.soft_warnings) == (long, ())
    body = {"final_response": long, "messages": messages, "metadata": {"model": "m"}}
    assert fit(body).messages is None
    assert fit(body).metadata == '{"model":"m"}'
    assert "messages dropped" in fit(body).soft_warnings[0]
    assert fit(body | {"metadata": {"own": long}}).metadata is None
    assert fit(body, guarded=True).error_code == "no_gradeable_message"
    huge = fit({"final_response": long * 2, "metadata": {"total_input_tokens": 3}})
    assert (huge.outcome, huge.error_code) == ("error", "response_too_large")
    assert huge.usage.input_tokens == 3
