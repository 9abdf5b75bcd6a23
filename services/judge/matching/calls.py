"""Tool calls, as trajectory matching sees them: a tool, its arguments, and where it was called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from schemas.trajectory import (
    AGENT,
    AGENT_TURN,
    SESSION_ENDED,
    TOOL_CALLED,
    USER_TURN,
    TrajectoryEvent,
)
from services.judge.matching.errors import UnreadableMessages


@dataclass(frozen=True)
class Call:
    """One tool call of a trajectory or of a reference.

    `arguments` is the decoded JSON value, an object as a rule; text that is no JSON stays text.
    `label` says where the call stands, for people and citations: a step such as `t3`, or a
    message. Neighbouring calls with the same `group` were requested together, in one message;
    in a reference that means that their order among themselves does not matter.
    """

    tool: str
    arguments: Any
    label: str = ""
    group: int | None = None

    @cached_property
    def canonical(self) -> str:
        """Equal for arguments that are the same JSON, different otherwise.

        Raises:
            UnreadableMessages: the arguments are no JSON value.
        """
        return canonical(self.arguments)

    @cached_property
    def parts(self) -> Mapping[str, str] | None:
        """Every argument's canonical text by its name; None when the arguments are no object."""
        if not isinstance(self.arguments, Mapping):
            return None
        return {str(name): canonical(value) for name, value in self.arguments.items()}

    def __str__(self) -> str:
        if isinstance(self.arguments, Mapping):
            inside = ", ".join(f"{name}={show(value)}" for name, value in self.arguments.items())
        else:
            inside = show(self.arguments)
        return f"{self.tool}({shorten(inside, 160)})"


def canonical(value: Any) -> str:
    """Equal texts for values that are the same JSON: 1 is 1.0, true is not 1, NaN is NaN.

    Raises:
        UnreadableMessages: it is no JSON value, or nested too deeply.
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableMessages(f"{shorten(repr(type(value)), 60)}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def decoded(text: str) -> Any:
    """The JSON value of a text, or the text itself where it is none."""
    try:
        value = json.loads(text)
        canonical(value)
    except (ValueError, RecursionError, UnreadableMessages):
        return text
    return value


def show(value: Any) -> str:
    """A value as short JSON, for reasons that people read."""
    return shorten(json.dumps(value, ensure_ascii=False, default=repr), 80)


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def calls_of_events(events: Iterable[TrajectoryEvent]) -> tuple[Call, ...]:
    """The agent's tool calls that the proxy recorded in one session, in the order of the log.

    Every attempt counts, refused and failed ones included; give only some of the events to look
    at some of the calls. Labels are steps (`t3`), so that they can be cited.
    """
    return tuple(
        Call(event.tool_called.tool, decoded(event.tool_called.arguments), label=event.step)
        for event in _counted(events)
        if event.kind == TOOL_CALLED and event.tool_called and event.tool_called.requestor == AGENT
    )


def messages_of_events(events: Iterable[TrajectoryEvent]) -> list[dict[str, Any]]:
    """One session as OpenAI messages, which is what the reproduced packages compare.

    A recorded call becomes an assistant message with that call and a tool message with its
    response; which calls the agent had requested together is not in the log.
    """
    messages: list[dict[str, Any]] = []
    for event in _counted(events):
        if event.kind == USER_TURN and event.user_turn and event.user_turn.text:
            messages.append({"role": "user", "content": event.user_turn.text})
        elif event.kind == AGENT_TURN and event.agent_turn and event.agent_turn.outcome == "ok":
            messages.append({"role": "assistant", "content": event.agent_turn.final_response})
        elif event.kind == TOOL_CALLED and event.tool_called:
            if event.tool_called.requestor != AGENT:
                continue
            body = event.tool_called
            messages.append(_calling(body.tool, body.arguments, event.step))
            messages.append({"role": "tool", "tool_call_id": event.step, "content": body.response})
    return messages


def messages_of_calls(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Calls as OpenAI assistant messages, one a call.

    Raises:
        UnreadableMessages: arguments are no JSON value.
    """
    return [
        _calling(call.tool, call.canonical, call.label or f"call {number}")
        for number, call in enumerate(calls, 1)
    ]


def _calling(tool: str, arguments: str, call_id: str) -> dict[str, Any]:
    function = {"name": tool, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _counted(events: Iterable[TrajectoryEvent]) -> Iterator[TrajectoryEvent]:
    """Of events with one id the first, up to the session's end: what every reader counts."""
    seen: set[str] = set()
    for event in events:
        if event.event_id in seen:
            continue
        seen.add(event.event_id)
        yield event
        if event.kind == SESSION_ENDED:
            return
