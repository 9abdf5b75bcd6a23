"""A user played by a language model."""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from schemas.briefs import UserBrief
from schemas.pins import model_pin
from schemas.trajectory import Usage
from services.runtime.ids import digest
from services.runtime.models import Model, ModelUnusable
from services.user_simulator.phrasing import UnknownFact
from services.user_simulator.prompt import RESPONSE_FORMAT, Reply, messages, repair
from services.user_simulator.simulator import (
    CONVERSATION_OVER,
    GAVE_UP,
    GOAL_MET,
    History,
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
        seed = int.from_bytes(digest("user model", brief.seed, number, size=4), "big") >> 1
        usage = Usage(model=self._model.settings.model)
        problem = ""
        for _ in range(1 + MAX_REPAIRS):
            try:
                answer = await self._model.ask(context, RESPONSE_FORMAT, seed)
            except ModelUnusable as error:
                return UserMove(
                    "", invalid=f"the user's model gave no answer: {error}", usage=usage
                )
            usage = _added(usage, answer.usage)
            if answer.refused:
                return UserMove("", invalid="the user's model declined to play", usage=usage)
            reply = _parsed(answer.text)
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
            context = [*context, *repair(answer.text, problem)]
        return UserMove(
            "", usage=usage,
            invalid=f"the user's model keeps breaking its output contract: {problem}",
        )  # fmt: skip


def _parsed(content: str) -> Reply | str:
    """The reply, or what is wrong with it."""
    try:
        reply = Reply.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
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
