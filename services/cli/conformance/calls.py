"""What an agent's requests to its proxy say about the contract."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from schemas.model import TOOL_NAME
from services.cli.conformance.contract import PROBE_TOOL
from services.cli.conformance.findings import (
    Finding,
    failed,
    not_applicable,
    of_calls,
    passed,
    several,
)
from services.cli.conformance.posting import Turn
from services.cli.conformance.recording import Seen

CALLS_A_MINUTE = 60
_WRAPPERS = frozenset(
    ("args", "arguments", "body", "data", "input", "kwargs", "params", "parameters", "payload",
     "tool_input")
)  # fmt: skip
_NAMING = frozenset(("name", "tool", "tool_name", "id", "type", "tool_call_id"))
_BODY_CODES = ("body_invalid", "body_timeout", "body_encoding_unsupported")


def call_path(turns: Sequence[Turn], strays: Sequence[Seen]) -> Finding:
    """Every request went to /tools/{name} or /trace of its turn's proxy, as a POST."""
    wrong = [one for turn in turns for one in turn.run.seen if _elsewhere(one)]
    wrong += [one for one in strays if one.tool != PROBE_TOOL]
    if wrong:
        return failed("call_path", several(f"{one.method} {one.path}" for one in wrong))
    return of_calls("call_path", turns, lambda _: "")


def _elsewhere(seen: Seen) -> bool:
    return seen.kind == "other" or seen.code == "method_not_allowed"


def call_auth(turns: Sequence[Turn]) -> Finding:
    """Every call carried exactly the token of its run. Crossed tokens are another check's."""

    def wrong(seen: Seen) -> str:
        if seen.code != "token_invalid":
            return ""
        named = {name for name, _ in seen.headers} & {"authorization", "x-pipelines-run-token"}
        if not named:
            return f"{seen.tool}: neither Authorization nor X-Pipelines-Run-Token"
        return f"{seen.tool}: not the turn's token in {' and '.join(sorted(named))}"

    return of_calls("call_auth", turns, wrong)


def call_body(turns: Sequence[Turn], schemas: Mapping[str, Any]) -> Finding:
    """Every call's body was a JSON object, and not one with the arguments in it."""

    def wrong(seen: Seen) -> str:
        if seen.code in _BODY_CODES:
            return f"{seen.tool}: {seen.details.get('problem', seen.code)}"
        wrapper = wrapped_in(seen, schemas)
        return f"{seen.tool}: the arguments are wrapped in {wrapper!r}" if wrapper else ""

    return of_calls("call_body", turns, wrong)


def wrapped_in(seen: Seen, schemas: Mapping[str, Any]) -> str:
    """The key under which the arguments stand; empty where they stand at the top, as they should.

    `schemas`: the tools' input schemas by name; what they declare is an argument.
    """
    keys = set(seen.arguments or ())
    declared = set((schemas.get(seen.tool) or {}).get("properties") or ())
    found = [
        key
        for key in keys & _WRAPPERS - declared
        if isinstance((seen.arguments or {})[key], dict | str)
    ]
    if len(found) == 1 and keys - {found[0]} <= _NAMING - declared:
        value = (seen.arguments or {})[found[0]]
        if isinstance(value, dict) or _is_json_object(value):
            return found[0]
    return ""


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def tool_known(turns: Sequence[Turn], tools_given: bool) -> Finding:
    """Every tool's name is well-formed and, where the list is given, on it."""

    def wrong(seen: Seen) -> str:
        if seen.code == "tool_unknown":
            return f"{seen.tool} is not registered"
        return "" if re.fullmatch(TOOL_NAME, seen.tool) else f"{seen.tool!r} is no tool name"

    finding = of_calls("tool_known", turns, wrong)
    if finding.outcome == "passed" and not tools_given:
        return passed("tool_known", f"{finding.seen}; names well-formed, no tools list to compare")
    return finding


def arguments_valid(turns: Sequence[Turn], schemas: Mapping[str, Any] | None) -> Finding:
    """Every call's arguments match the registered schema."""
    if schemas is None:
        return not_applicable("arguments_valid", "no tools list was given")

    def wrong(seen: Seen) -> str:
        if seen.code != "arguments_invalid" or seen.scripted or wrapped_in(seen, schemas):
            return ""
        first = seen.details["errors"][0]
        return f"{seen.tool}{first['path']}: {first['message']}"

    return of_calls("arguments_valid", turns, wrong)


def call_size(turns: Sequence[Turn]) -> Finding:
    return of_calls(
        "call_size", turns, lambda one: one.tool if one.code == "body_too_large" else ""
    )


def call_rate(turns: Sequence[Turn]) -> Finding:
    """No run had more than 60 requests in any 60 seconds."""
    worst, tool = 0, ""
    for turn in turns:
        times = sorted(one.at for one in turn.run.calls)
        for index, at in enumerate(times):
            within = sum(1 for later in times[index:] if later < at + 60)
            if within > worst:
                worst, tool = within, turn.run.calls[0].tool
    if not worst:
        return not_applicable("call_rate", "no tool call was made")
    if worst > CALLS_A_MINUTE:
        return failed("call_rate", f"{worst} calls within a minute of one turn, first {tool}")
    return passed("call_rate", f"at most {worst} calls within a minute of one turn")


def actor(turns: Sequence[Turn]) -> Finding:
    seen = [one for turn in turns for one in turn.run.seen if one.actor is not None]
    wrong = [repr(one.actor) for one in seen if one.code == "actor_id_invalid"]
    if wrong:
        return failed("actor", several(wrong))
    if not seen:
        return not_applicable("actor", "the header is not used: a single agent")
    return passed("actor", several(str(one.actor) for one in seen))


def trace(turns: Sequence[Turn]) -> Finding:
    sent = [one for turn in turns for one in turn.run.seen if one.kind == "trace"]
    wrong = [
        f"{one.code}: {one.details.get('problem', '')}"
        for one in sent
        if one.code in ("trace_invalid", *_BODY_CODES)
    ]
    if wrong:
        return failed("trace", several(wrong))
    if not sent:
        return not_applicable("trace", "no trace event was sent")
    return passed("trace", f"{len(sent)} trace events")
