"""Answering a call: limits, validation, rules, the world, injection. Pure but for the world's code.

Nothing here changes a session's state: the event that comes out does, when it is folded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from schemas.briefs import ToolSpec
from schemas.faults import Failure
from schemas.selection import Moment
from schemas.trajectory import AGENT, USER, Injection, Usage
from schemas.world_time import elapsed_s
from services.tool_proxy import injection, rules
from services.tool_proxy.errors import error_body
from services.tool_proxy.jsons import JsonObject, as_body, canonical, is_text
from services.tool_proxy.made_up import made_up
from services.tool_proxy.session import MAX_STATE_BYTES, Posting, SessionState, Tool
from services.tool_proxy.validation import SchemaUnusable, violations
from services.tool_proxy.world import ArgumentsRefused, Context, ToolError, WorldTool

MAX_BODY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call as it was received."""

    tool: str
    raw: str
    arguments: JsonObject
    posting: Posting
    turn: int
    conversation: int
    actor: str | None = None
    idempotency_key: str | None = None
    requestor: str = AGENT
    parent: int | None = None
    """Id of the agent's span that made it, if the agent says."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call is answered with, before it is recorded."""

    response: str
    source: str
    response_is_text: bool = False
    error_code: str | None = None
    rule_index: int | None = None
    injection: Injection | None = None
    validation: str | None = None
    delay_ms: int = 0
    after: bytes | None = None
    """The world's state afterwards; None where there is no world or nothing was executed."""
    fault: str = ""
    """For the operator's log: what the world's code raised."""
    usage: Usage | None = None
    """What a model consumed that answered."""


@dataclass(frozen=True, slots=True)
class Question:
    """What only a model can answer, and the world's time when it is asked."""

    tool: Tool
    now: datetime


@dataclass(frozen=True, slots=True)
class Made:
    """What a model has answered; without a value, `fault` says why there is none."""

    value: Any = None
    fault: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Forward:
    """What only the real tool can answer, and which failure strikes its answer, if any."""

    spec: ToolSpec
    failure: int | None = None


def takes_time(state: SessionState, call: Call) -> bool:
    """Whether answering may run a world author's code, or make something up."""
    world, setup = state.world, state.brief.world
    if call.requestor == USER:
        own = world.user_tools() if world is not None else ()
        return call.tool in state.brief.user_tools and call.tool in own
    tool = state.tools.get(call.tool)
    if tool is None or tool.is_real:
        return False
    if world is not None and world.find(call.tool) is not None:
        return True
    return setup is not None and setup.answers == "schema"


def refused(code: str, *, fault: str = "", **details: Any) -> Outcome:
    """A recorded refusal."""
    body = error_body(code, **details).decode()
    return Outcome(response=body, source="error", error_code=code, fault=fault)


def execute(
    state: SessionState, call: Call, *, under_way: int = 0, made: Made | None = None
) -> Outcome | Forward | Question:
    """The answer to a call that is neither a repetition nor superseded, or who is to give it.

    `under_way`: how many calls of the session are at real tools, and not in its state yet.
    `made`: what the model has answered, once it was asked.
    """
    if state.calls + under_way >= state.brief.max_calls:
        return refused("tool_call_limit")
    tool = state.tools.get(call.tool)
    if tool is None:
        return refused("tool_unknown")
    try:
        if wrong := violations(tool.input_schema, call.arguments):
            return refused("arguments_invalid", errors=[v._asdict() for v in wrong])
        if tool.is_real:
            return _forward(state, call, tool)
        if state.fault is not None:
            return refused(state.fault, fault=state.fault_detail)
        outcome = _selected(state, call, tool, made)
    except _Unanswered:
        return Question(tool, _now(state, call))
    except SchemaUnusable as error:
        return refused("tool_schema_invalid", fault=str(error))
    except ArgumentsRefused as error:
        wrong_here = {"path": error.path, "rule": error.rule, "message": error.message}
        return refused("arguments_invalid", errors=[wrong_here])
    return refused("response_too_large") if body_bytes(outcome) > MAX_BODY_BYTES else outcome


def simulated(state: SessionState, call: Call) -> Outcome:
    """What the world answers of itself, whatever the scenario's rules and failures are.

    Raises:
        ArgumentsRefused: the arguments do not fit the tool.
    """
    base = _base(state, call, None, None)
    if isinstance(base, Outcome):
        return base
    body = as_body(base.value)
    return Outcome(
        response=body, response_is_text=is_text(body), source="odyssey", after=base.after
    )  # fmt: skip


def body_bytes(outcome: Outcome) -> int:
    """An upper bound of the reply's size: the response as it will be written, and its envelope."""
    response = outcome.response
    size = len(orjson.dumps(response) if outcome.response_is_text else response.encode())
    return size + len(outcome.validation or "") * 4 + 512


def _forward(state: SessionState, call: Call, tool: Tool) -> Outcome | Forward:
    """A real tool is only called where nothing comes in its stead."""
    brief = state.brief
    selection = rules.select(
        brief,
        state.matched,
        state.struck,
        call.tool,
        call.arguments,
        _moment(state, call),
        real=True,
    )
    if selection.failure is None:
        return Forward(tool.spec)
    failure = rules.striking(brief, state.matched, selection.failure)
    if failure.kind in rules.EXECUTING:
        return Forward(tool.spec, selection.failure)
    if failure.kind == "malformed":
        # What the tool would have answered is not known without its effects; any JSON will do.
        struck = injection.malformed(call.arguments)
    else:
        struck = injection.replacing(failure, call.tool, _some_field(call, tool))
    return injected(state, selection.failure, failure, struck)


def _selected(state: SessionState, call: Call, tool: Tool, made: Made | None) -> Outcome:
    brief = state.brief
    selection = rules.select(
        brief, state.matched, state.struck, call.tool, call.arguments, _moment(state, call)
    )
    if selection.failure is None:
        return _plain(_base(state, call, selection.rule, made), tool)
    failure = rules.striking(brief, state.matched, selection.failure)
    if failure.kind in rules.EXECUTING:
        base = _base(state, call, selection.rule, made)
        if isinstance(base, Outcome):
            return base
        struck = None
        if failure.kind == "slow" or not is_tool_error(base.value):
            struck = injection.altering(failure, base.value)
        if struck is None:
            return _plain(base, tool)
        return injected(state, selection.failure, failure, struck, after=base.after)
    if failure.kind == "malformed":
        # What would have been answered, but on a copy that is thrown away.
        base = _base(state, call, selection.rule, made)
        if isinstance(base, Outcome):
            return base
        struck = injection.malformed(base.value)
    else:
        struck = injection.replacing(failure, call.tool, _some_field(call, tool))
    return injected(state, selection.failure, failure, struck)


@dataclass(frozen=True, slots=True)
class _Base:
    value: Any
    rule_index: int | None = None
    after: bytes | None = None


class _Unanswered(Exception):
    """The model has to be asked first."""


def _base(state: SessionState, call: Call, rule: int | None, made: Made | None) -> _Base | Outcome:
    """What a rule or whoever simulates the tool answers; an Outcome where that fails.

    Raises:
        _Unanswered: a model is to say it, and has not.
    """
    brief = state.brief
    if rule is not None:
        return _Base(brief.rules[rule - len(brief.failures)].respond, rule_index=rule)
    found = state.world.find(call.tool) if state.world is not None else None
    if found is not None and state.current is not None:
        return _of_world(state, call, found, state.current)
    tool, answers = state.tools.get(call.tool), brief.world.answers if brief.world else "world"
    if tool is None or answers == "world":
        return refused("tool_unavailable", fault="the world has no such tool")
    if answers == "model":
        if made is None:
            raise _Unanswered
        return refused("answer_failed", fault=made.fault) if made.fault else _Base(made.value)
    if tool.output_schema is None:
        return refused("tool_unavailable", fault="the tool is registered without an output schema")
    value = made_up(
        tool.output_schema, tool=call.tool, arguments=call.arguments, seed=brief.seed,
        now=_now(state, call),
    )  # fmt: skip
    return _Base(value)


def _now(state: SessionState, call: Call) -> datetime:
    """The world's time when a call is made. The user's calls take none of it."""
    passed = elapsed_s(state.brief, call.conversation, call.turn, state.calls + 1)
    return state.starts_at + timedelta(seconds=passed)


def _of_world(state: SessionState, call: Call, tool: WorldTool, current: bytes) -> _Base | Outcome:
    by_user = call.requestor == USER
    drawn = f"user call:{state.user_calls + 1}" if by_user else f"call:{state.calls + 1}"
    context = Context(
        state=orjson.loads(current),
        now=_now(state, call),
        random=random.Random(f"{state.brief.seed}:{drawn}"),
        call=state.calls + state.user_calls + 1,
    )
    assert state.world is not None
    try:
        value = state.world.call(tool, context, call.raw.encode())
        after = canonical(context.state)
        if not isinstance(context.state, dict) or len(after) > MAX_STATE_BYTES:
            return refused("world_failed", fault="the state must stay an object of at most 2 MiB")
    except ArgumentsRefused:
        raise
    except ToolError as error:
        body = {"error": {**error.details, "code": error.code, "message": error.message}}
        try:
            return _Base(orjson.loads(orjson.dumps(body)))
        except TypeError as not_json:
            return refused("world_failed", fault=f"ToolError details: {not_json}")
    except Exception as error:
        # A world author's mistake may raise anything; the session is spoilt, the service is not.
        return refused("world_failed", fault=f"{type(error).__name__}: {error}")
    return _Base(value, after=after)


def _plain(base: _Base | Outcome, tool: Tool) -> Outcome:
    if isinstance(base, Outcome):
        return base
    wrong = []
    if tool.output_schema is not None and not is_tool_error(base.value):
        wrong = violations(tool.output_schema, base.value)
    result: JsonObject = {"valid": not wrong}
    if wrong:
        result["errors"] = [violation._asdict() for violation in wrong]
    body = as_body(base.value)
    return Outcome(
        response=body,
        response_is_text=is_text(body),
        source="odyssey",
        rule_index=base.rule_index,
        validation=orjson.dumps(result).decode(),
        after=base.after,
    )


def injected(
    state: SessionState,
    index: int,
    failure: Failure,
    struck: injection.Struck,
    *,
    after: bytes | None = None,
) -> Outcome:
    body = as_body(struck.value)
    return Outcome(
        response=body,
        response_is_text=is_text(body),
        source="injected",
        rule_index=index,
        injection=Injection(
            rule_id=failure.id,
            kind=failure.kind,
            occurrence=state.struck[index] + 1,
            detail=struck.detail,
        ),
        delay_ms=failure.delay_ms,
        after=after,
    )


def _moment(state: SessionState, call: Call) -> Moment:
    return Moment(call.conversation, call.turn, state.calls + 1)


def is_tool_error(value: Any) -> bool:
    """A tool's own error is no answer, so the output schema says nothing about it."""
    error = value.get("error") if isinstance(value, dict) and len(value) == 1 else None
    return isinstance(error, dict) and "code" in error and "message" in error


def _some_field(call: Call, tool: Tool) -> str:
    if call.arguments:
        return next(iter(call.arguments))
    properties = tool.spec.input_schema.get("properties")
    return next(iter(properties), "body") if isinstance(properties, dict) else "body"
