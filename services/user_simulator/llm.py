"""A user played by a language model."""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from schemas.briefs import UserBrief
from schemas.pins import model_pin
from schemas.trajectory import Usage
from services.runtime.ids import digest
from services.runtime.models import Model, ModelUnusable
from services.user_simulator.acting import done_since
from services.user_simulator.phrasing import UnknownFact
from services.user_simulator.prompt import ActingReply, Reply, messages, repair, response_format
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    History,
    UserAct,
    UserMove,
    current_conversation,
    next_number,
)

MAX_REPAIRS = 2


class LlmSimulator:
    """Plays any user, also one that is described in words only."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def pin(self) -> str:
        settings = self._model.settings
        return model_pin(settings.model, settings.temperature)

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        try:
            context = messages(brief, history)
        except UnknownFact as error:
            return UserMove("", invalid=f"the scenario's text cannot be said: {error}")
        number = next_number(history)
        drawn = [brief.seed, number, *([acts] if (acts := len(done_since(history))) else [])]
        seed = int.from_bytes(digest("user model", *drawn, size=4), "big") >> 1
        structure = response_format(brief)
        usage = Usage(model=self._model.settings.model)
        keys = tuple(structure["json_schema"]["schema"]["required"])
        problem = ""
        for _ in range(1 + MAX_REPAIRS):
            try:
                answer = await self._model.ask(context, structure, seed)
            except ModelUnusable as error:
                return UserMove(
                    "", invalid=f"the user's model gave no answer: {error}", usage=usage
                )
            usage = _added(usage, answer.usage)
            if answer.refused:
                return UserMove("", invalid="the user's model declined to play", usage=usage)
            reply = _parsed(answer.text, brief)
            if isinstance(reply, UserAct):
                return UserMove("", act=reply, usage=usage)
            if isinstance(reply, Reply):
                ending = None
                if reply.status == "give_up":
                    ending = GAVE_UP
                elif reply.status == "goal_met":
                    more = current_conversation(history) < len(brief.conversations)
                    ending = CONVERSATION_OVER if more else GOAL_MET
                return UserMove(reply.message.strip(), ending=ending, usage=usage)
            problem = reply
            self._model.count("malformed")
            context = [*context, *repair(answer.text, problem, keys)]
        return UserMove(
            "", usage=usage,
            invalid=f"the user's model keeps breaking its output contract: {problem}",
        )  # fmt: skip


def _parsed(content: str, brief: UserBrief) -> Reply | UserAct | str:
    """The reply, or what the user does instead of one, or what is wrong with it."""
    shape = ActingReply if brief.tools else Reply
    try:
        reply = shape.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    if isinstance(reply, ActingReply):
        try:
            act = reply.act
        except ValueError as error:
            return str(error)
        if act is not None and act.tool not in {tool.name for tool in brief.tools}:
            return f"tool: there is no {act.tool}"
        if act is not None:
            return act
    if not reply.message.strip() and reply.status == "continue":
        return "message: empty, although status is continue"
    return reply


def _added(one: Usage, other: Usage) -> Usage:
    return replace(
        one,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost_usd=one.cost_usd + other.cost_usd,
    )
