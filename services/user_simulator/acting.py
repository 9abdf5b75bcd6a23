"""What a user does with tools of its own, and how it tells of it. Pure.

An agent asks for something ("please turn airplane mode off"), the user does it, sees what comes
of it, and says so. What is due follows from the history alone: every action of the brief that the
agent's last answer asks for, in the brief's order, each once for each answer that asks for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from schemas.briefs import UserBrief
from services.user_simulator.phrases import Kind
from services.user_simulator.phrasing import Voice, spoken
from services.user_simulator.simulator import AgentSaid, History, Talk, UserAct, UserDid

MAX_ACTS = 20
"""So often a user acts before saying something again; a simulator that goes on has lost count."""
MAX_ARGUMENT_CHARS = 64_000
MAX_TOLD_CHARS = 600
"""So much of a tool's answer is told; nobody reads out more."""


def asked_for(brief: UserBrief, reply: str) -> tuple[int, ...]:
    """Which of the brief's actions an answer of the agent asks for, by their numbers."""
    return tuple(
        number
        for number, action in enumerate(brief.actions)
        if any(pattern.found_in(reply) for pattern in action.when)
    )


def done_since(history: History) -> tuple[UserDid, ...]:
    """What the user has done since something was last said."""
    done: list[UserDid] = []
    for entry in reversed(history):
        if not isinstance(entry, UserDid):
            break
        done.append(entry)
    return tuple(reversed(done))


def conversation_alone(history: History) -> Talk:
    """What was said, without what the user did in between."""
    return tuple(entry for entry in history if not isinstance(entry, UserDid))


def due_act(brief: UserBrief, history: History) -> UserAct | None:
    """What the user does next because the agent's last answer asks for it; None if it is all done.

    Raises:
        UnknownFact: an argument names a fact that the user does not have.
    """
    done = len(done_since(history))
    before = history[: len(history) - done]
    last = before[-1] if before else None
    if not isinstance(last, AgentSaid):
        return None
    due = asked_for(brief, last.text)
    if done >= len(due):
        return None
    action = brief.actions[due[done]]
    arguments = _put_in(dict(action.arguments), Voice(brief, 1, 1))
    return UserAct(action.tool, json.dumps(arguments, ensure_ascii=False))


def reports(brief: UserBrief, history: History, voice: Voice) -> Iterator[str]:
    """How the user tells the agent what came of each thing it was asked to do.

    Raises:
        UnknownFact: a text names a fact that the user does not have.
    """
    done = done_since(history)
    last = history[-len(done) - 1] if done else None
    due = asked_for(brief, last.text) if isinstance(last, AgentSaid) else ()
    for number, (did, action) in enumerate(zip(done, due, strict=False)):
        text = told(did)
        if failed(did):
            yield voice.report(Kind.DID_NOT, (), text, number)
        else:
            yield voice.report(Kind.DID, brief.actions[action].say, text, number)


def failed(did: UserDid) -> bool:
    """Whether it did not work, as far as the answer says so."""
    value = answer(did)
    if isinstance(value, str):
        return did.refused or value.lstrip().lower().startswith("error")
    return did.refused or (isinstance(value, Mapping) and set(value) == {"error"})


def answer(did: UserDid) -> Any:
    """The tool's answer: a JSON value, or its text."""
    if did.is_text:
        return did.response
    try:
        return json.loads(did.response)
    except ValueError:
        return did.response


def told(did: UserDid) -> str:
    """A tool's answer as people say it: an error's own message, a value, names and values."""
    value = answer(did)
    error = value.get("error") if isinstance(value, Mapping) else None
    if isinstance(error, Mapping) and isinstance(error.get("message"), str):
        value = error["message"]
    text = " ".join(_said(value).split())
    return text if len(text) <= MAX_TOLD_CHARS else text[: MAX_TOLD_CHARS - 1] + "\u2026"


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str | int | float | bool):
        return spoken(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_said(item)}" for name, item in value.items())
    return ", ".join(map(_said, value))


def _put_in(value: JsonValue, voice: Voice) -> JsonValue:
    """The value with `{fact}` names put in; a text that is nothing else gets the fact's type."""
    if isinstance(value, str):
        return voice.valued(value)
    if isinstance(value, list):
        return [_put_in(item, voice) for item in value]
    if isinstance(value, dict):
        return {name: _put_in(item, voice) for name, item in value.items()}
    return value


def impossible(brief: UserBrief, history: History, act: UserAct) -> str | None:
    """Why the user cannot do this, in a sentence; None if it can."""
    if act.tool not in {tool.name for tool in brief.tools}:
        return f"uses a tool that the user does not have: {act.tool!r}"
    try:
        arguments = json.loads(act.arguments)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return f"uses {act.tool} with arguments that are no JSON object"
    if len(act.arguments) > MAX_ARGUMENT_CHARS:
        return f"uses {act.tool} with more than {MAX_ARGUMENT_CHARS} characters of arguments"
    if len(done_since(history)) >= MAX_ACTS:
        return f"does more than {MAX_ACTS} things without a word"
    return None


def said_by_tools(history: History) -> Iterator[str]:
    """What the user has read on its own tools, and may repeat."""
    for entry in history:
        if isinstance(entry, UserDid):
            yield entry.response
            yield told(entry)


def report_texts(brief: UserBrief) -> Iterator[str]:
    """The scenario's own words for telling, but for what a tool says and for facts."""
    for action in brief.actions:
        for say in action.say:
            yield from re.split(r"\{[^{}]*\}", say)
