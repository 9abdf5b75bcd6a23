"""A Rasa tracker's events as trace events, and a channel's replies as text. Pure.

The trace events' shapes are those of docs/trace-events.md. User messages are left out: they are in
the trajectory as user turns. So is what Rasa keeps for itself: its dialogue stack, and the slot in
which it keeps a message's metadata, where a run token stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

MAX_EVENTS = 500
"""Trace events of one turn; what is beyond is left out, and said so."""
MAX_REPLIES = 200
_MAX_EVENT_BYTES = 32 * 1024
_MAX_CUSTOM = 2000
_ACTOR = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,63}", re.ASCII)
_INTERNAL_SLOTS = frozenset({"session_started_metadata", "dialogue_stack", "flow_hashes"})
_FLOWS = frozenset({"flow_started", "flow_completed", "flow_cancelled", "flow_interrupted"})
_PLAIN = ("event", "timestamp", "metadata")


def trace_events(events: Sequence[Any]) -> tuple[list[dict[str, Any]], int]:
    """The trace events for tracker events, in their order, and how many were left out."""
    found: list[dict[str, Any]] = []
    left_out = 0
    for event in events:
        for trace in _traces(event):
            try:
                size = len(orjson.dumps(trace))
            except orjson.JSONEncodeError:  # deeper than it can be written again
                size = _MAX_EVENT_BYTES + 1
            if len(found) < MAX_EVENTS and size <= _MAX_EVENT_BYTES:
                found.append(trace)
            else:
                left_out += 1
    return found, left_out


def _traces(event: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return
    kind = event["event"]
    if kind in ("user", "user_featurization", ""):
        return
    if kind in _FLOWS and _is_name(event.get("flow_id")):
        state = {"event": kind, "flow_id": event["flow_id"]}
        if kind != "flow_started" and _is_name(event.get("step_id")):
            state["flow_step_id"] = event["step_id"]
        yield _state(state)
    elif kind == "action" and _is_name(event.get("name")):
        yield _state({"event": "action_executed", "name": event["name"]})
    elif kind == "slot" and _is_name(event.get("name")):
        if event["name"] not in _INTERNAL_SLOTS:
            yield _state(
                {"event": "slot_was_set", "name": event["name"], "value": event.get("value")}
            )
    elif kind == "bot":
        yield _state(_uttered(event))
    elif kind == "stack":
        yield from _clarifications(event.get("update"))
    elif kind == "agent_started" and _is_actor(event.get("agent_id")):
        yield {"type": "handoff", "payload": {"to": event["agent_id"], **_data(event, "agent_id")}}
    else:
        yield {"type": "custom", "payload": {"name": kind[:255], "data": _data(event)}}


def _uttered(event: Mapping[str, Any]) -> dict[str, Any]:
    metadata, data = _object(event.get("metadata")), _object(event.get("data"))
    state: dict[str, Any] = {"event": "bot_uttered"}
    if isinstance(event.get("text"), str):
        state["text"] = event["text"]
    for name, source in (("utter_name", "utter_action"), ("utter_source", "utter_source")):
        if _is_name(metadata.get(source)):
            state[name] = metadata[source]
    buttons = data.get("buttons")
    if isinstance(buttons, list) and buttons and all(isinstance(one, dict) for one in buttons):
        state["buttons"] = buttons
    return state


def _clarifications(update: Any) -> Iterator[dict[str, Any]]:
    """From a patch of the dialogue stack: the frames that ask which flow was meant."""
    try:
        patch = orjson.loads(update) if isinstance(update, str) else update
    except orjson.JSONDecodeError:
        return
    for operation in patch if isinstance(patch, list) else ():
        frame = _object(_object(operation).get("value"))
        names = frame.get("names")
        flows = [n for n in names if _is_name(n)] if isinstance(names, list) else []
        if frame.get("flow_id") == "pattern_clarification" and flows:
            yield _state({"event": "pattern_clarification", "flow_ids": flows})


def said_by_user(events: Sequence[Any]) -> list[tuple[int, str]]:
    """The user's messages in a tracker, with their indexes; commands such as /session_start are
    none."""
    found = []
    for index, event in enumerate(events):
        if isinstance(event, dict) and event.get("event") == "user":
            text = event.get("text")
            if isinstance(text, str) and not text.startswith("/session_start"):
                found.append((index, text.strip()))
    return found


def said_by_bot(events: Sequence[Any]) -> list[dict[str, Any]]:
    """What the assistant said in these events, as the channel would have replied."""
    return [
        {"text": event.get("text"), **_object(event.get("data"))}
        for event in events
        if isinstance(event, dict) and event.get("event") == "bot"
    ]


def rendered(reply: Mapping[str, Any]) -> str:
    """One reply as the text a user would see: what has no text is shown in brackets."""
    lines = []
    if isinstance(text := reply.get("text"), str) and text.strip():
        lines.append(text)
    for name in ("image", "attachment"):
        if value := reply.get(name):
            lines.append(f"[{name}: {value if isinstance(value, str) else _json(value)}]")
    for name in ("buttons", "quick_replies"):
        options = reply.get(name)
        titles = [_object(o).get("title") for o in options] if isinstance(options, list) else []
        shown = [title for title in titles if isinstance(title, str) and title]
        if shown:
            lines.append(f"[options: {' | '.join(shown)}]")
    for name in ("elements", "custom"):
        if value := reply.get(name):
            lines.append(f"[{name}: {_json(value)}]")
    return "\n".join(lines)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()[:_MAX_CUSTOM]
    except orjson.JSONEncodeError:
        return "..."


def _state(payload: dict[str, Any]) -> dict[str, Any]:
    return {"type": "state", "payload": payload}


def _data(event: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in (*_PLAIN, *taken)}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 255


def _is_actor(value: Any) -> bool:
    return isinstance(value, str) and _ACTOR.fullmatch(value) is not None
