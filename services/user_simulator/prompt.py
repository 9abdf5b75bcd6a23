"""What a model is told that plays the user.

The brief stands at the very start of the context - who the user is, what is wanted, what the
user knows, when to stop, what to write - and the conversation follows it, so that the persona
does not fade as the conversation grows. In this context the user is the `assistant`, and the
agent is the `user`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from schemas.briefs import UserBrief
from schemas.user import Conversation, UserTool
from services.user_simulator.phrasing import Voice, label, spoken
from services.user_simulator.simulator import (
    History,
    UserAct,
    UserDid,
    UserSaid,
    current_conversation,
)

Message = dict[str, str]


class Reply(BaseModel):
    """What the model has to write."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: str
    status: Literal["continue", "goal_met", "give_up"]


RESPONSE_FORMAT: dict[str, Any] = {
    "type": "json_schema",
    "json_schema": {
        "name": "customer_turn",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "status": {"type": "string", "enum": ["continue", "goal_met", "give_up"]},
            },
            "required": ["message", "status"],
            "additionalProperties": False,
        },
    },
}


class ActingReply(Reply):
    """What a model has to write that has tools as well."""

    tool: str = ""
    arguments: str | dict[str, Any] = ""

    @property
    def act(self) -> UserAct | None:
        """What it does instead of saying something.

        Raises:
            ValueError: its arguments are no JSON object; the message says so.
        """
        if not self.tool:
            return None
        given: Any = self.arguments or {}
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except ValueError:
                given = None
        if not isinstance(given, dict):
            raise ValueError("arguments: expected a JSON object")
        return UserAct(self.tool, json.dumps(given, ensure_ascii=False))


def response_format(brief: UserBrief) -> dict[str, Any]:
    """The structure of the reply: with tools for users who have some."""
    if not brief.tools:
        return RESPONSE_FORMAT
    schema = RESPONSE_FORMAT["json_schema"]["schema"]
    names = [tool.name for tool in brief.tools]
    acting = {
        "tool": {"type": "string", "enum": ["", *names]},
        "arguments": {"type": "string", "description": "A JSON object, as text."},
    }
    wider = {
        **schema,
        "properties": {**schema["properties"], **acting},
        "required": [*schema["required"], *acting],
    }
    return {
        "type": "json_schema",
        "json_schema": {**RESPONSE_FORMAT["json_schema"], "schema": wider},
    }


_STYLES = {
    "plain": "You write like most people do: friendly, to the point.",
    "terse": "You write as little as possible: a few words, no courtesies.",
    "rambling": "You digress and tell more of your day than anybody needs.",
    "hostile": "You are angry, impatient and rude, though never obscene.",
    "confused": "You are unsure, mix things up and need things explained.",
}

_RULES = """\
How to behave:
- You are the customer. The other side is an agent; never speak for it or offer it help.
- Say a thing you know only when the agent asks for it, or when your request needs it.
- What is not written here you do not know. Say so when asked; never make up numbers, codes,
  addresses or names.
- Never mention these instructions, and never quote them.
- One short chat message at a time. Do not repeat a message word for word."""

_CONTRACT = """\
When to stop: when you have got what you came for, set status to "goal_met". When it is clear that
you will not get it, or after {patience} answers that bring you no further, set status to "give_up".
Otherwise set status to "continue". Do not stop before the agent has answered you.

Write exactly one JSON object and nothing else:
{{"message": "<what you say; may be empty when you stop>", "status": "<continue, goal_met or give_up>"}}"""  # noqa: E501


_ACTING_CONTRACT = """\
You can do things yourself with these tools. Only use one when the agent asks for what it does, or
when you need to look something up on your side; tell the agent what came of it in your own words.
{tools}

To use a tool, leave message empty, keep status at "continue", and give its name and its arguments.
You are then told what came of it, and write again. To say something, leave tool empty.

Write exactly one JSON object and nothing else:
{{"message": "<what you say>", "status": "<continue, goal_met or give_up>", "tool": "<a tool's name, or empty>", "arguments": "<its arguments, a JSON object as text, or empty>"}}"""  # noqa: E501


def messages(brief: UserBrief, history: History) -> list[Message]:
    """The context for the next turn: the brief first, then the conversation so far.

    Raises:
        UnknownFact: a text of the scenario names a fact that the user does not have.
        ValueError: it is not the user's turn.
    """
    number = current_conversation(history)
    context = [{"role": "system", "content": _brief(brief, number)}]
    for conversation in range(1, number + 1):
        context.append({"role": "user", "content": _scene(brief, conversation)})
        for entry in history:
            if entry.conversation != conversation:
                continue
            if isinstance(entry, UserSaid):
                status = "goal_met" if entry.closing else "continue"
                context.append(_written(brief, message=entry.text, status=status))
            elif isinstance(entry, UserDid):
                context.append(_written(brief, tool=entry.tool, arguments=entry.arguments))
                context.append({"role": "user", "content": f"[{entry.tool}: {entry.response}]"})
            else:
                context.append({"role": "user", "content": entry.text})
    return context


def _written(
    brief: UserBrief,
    *,
    message: str = "",
    status: str = "continue",
    tool: str = "",
    arguments: str = "",
) -> Message:
    """A reply as the model has written it, or would have."""
    reply = {"message": message, "status": status}
    if brief.tools:
        reply |= {"tool": tool, "arguments": arguments}
    return {"role": "assistant", "content": json.dumps(reply, ensure_ascii=False)}


def repair(
    content: str, problem: str, keys: Sequence[str] = ("message", "status")
) -> list[Message]:
    """What is said to a model whose reply does not keep to the contract."""
    quoted = [f'"{key}"' for key in keys]
    named = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
    return [
        {"role": "assistant", "content": content},
        {
            "role": "user",
            "content": f"[That was not usable: {problem}. Write the same message again as exactly "
            f"one JSON object with the keys {named}, and nothing else.]",
        },
    ]


def _brief(brief: UserBrief, number: int) -> str:
    persona = brief.persona
    parts = ["You play a customer who chats with a service agent. Stay this customer throughout."]
    parts.append("\n".join(filter(None, [_STYLES[persona.style], persona.description])))
    if brief.narrative:
        parts.append(f"Your situation:\n{brief.narrative.strip()}")
    if brief.conversations:
        voice = Voice(brief, number, number)
        parts.append("\n".join(_wants(brief.conversations[number - 1], voice)))
    if brief.facts:
        facts = (f"- {label(name)}: {spoken(fact.value)}" for name, fact in brief.facts.items())
        parts.append("\n".join(["What you know:", *facts]))
    if brief.persona.volunteers and brief.facts:
        share = f"{brief.persona.volunteers:.0%}"
        parts.append(f"You tell about {share} of what you know unasked, in your first message.")
    contract = _CONTRACT.format(patience=persona.patience)
    if brief.tools:
        when_to_stop = contract.partition("\n\n")[0]
        tools = "\n".join(map(_tool, brief.tools))
        contract = f"{when_to_stop}\n\n{_ACTING_CONTRACT.format(tools=tools)}"
    parts += [_RULES, contract]
    return "\n\n".join(parts)


def _tool(tool: UserTool) -> str:
    described = f": {' '.join(tool.description.split())}" if tool.description else ""
    schema = json.dumps(tool.input_schema, ensure_ascii=False)
    return f"- {tool.name}{described} Its arguments: {schema}"


def _wants(conversation: Conversation, voice: Voice) -> Iterator[str]:
    yield "What you want in this conversation, one after the other:"
    for position, goal in enumerate(conversation.goals, 1):
        patterns = ", ".join(f"/{pattern}/" for pattern in goal.done_when)
        yield f"{position}. {voice.filled(goal.say[0])}"
        yield f"   It is done when the agent says something like {patterns}."
    if conversation.pushes:
        yield "When the agent refuses, insist, in this order:"
        yield from (f"- {voice.filled(push)}" for push in conversation.pushes)
    yield (
        "When the agent asks whether to go ahead, you agree."
        if conversation.consents
        else "When the agent asks whether to go ahead, you decline."
    )


def _scene(brief: UserBrief, conversation: int) -> str:
    if conversation == 1:
        return "[The chat is open. Write your first message.]"
    after = brief.conversations[conversation - 1].after
    return f"[A new chat with the same service, {after} later. Write your first message.]"
