"""Assertions judged over sessions built by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from schemas.scores import DimensionScore
from services.judge.assertions.rating import Question, Rating, ResponseJudge
from services.judge.evaluators import assertions
from services.judge.trajectory import read
from tests.support.trajectories import Session, brief

TRACKER: dict[str, Any] = {"event": "action_executed", "name": "action_listen"}
"""What every Rasa tracker has, and by which one is known."""


class Rater:
    """A response judge that answers by a function of the question, and rates no quality."""

    model = "scripted/1"
    pin = "judge/0 scripted/1"
    quality: tuple[str, ...] = ()

    def __init__(self, score: Callable[[Question], float | None] | float | None) -> None:
        self.score = score if callable(score) else lambda _: score
        self.asked: list[Question] = []

    async def rate(self, question: Question) -> Rating:
        self.asked.append(question)
        return Rating(self.score(question), "as scripted")


def states(*payloads: dict[str, Any], reply: str = "It is late.") -> Session:
    """One turn in which the agent reports these state events and answers."""
    session = Session().user("Where is my order?")
    for payload in payloads:
        session.trace("state", payload)
    return session.agent(reply)


def judged(session: Session, *entries: Any, judge: ResponseJudge | None = None) -> DimensionScore:
    """The gate `assertions` of a session, of entries that the loader would refuse as well."""
    sound = brief()
    goals = sound.goals.model_copy(update={"assertions": entries})
    unchecked = sound.model_copy(update={"goals": goals})
    scored = assertions.evaluate_all(read(session.end()), unchecked, judge)
    (gate,) = asyncio.run(scored)
    return gate


def flow(event: str, flow_id: str, **more: Any) -> dict[str, Any]:
    return {"event": f"flow_{event}", "flow_id": flow_id, **more}


def action(name: str) -> dict[str, Any]:
    return {"event": "action_executed", "name": name}


def slot(name: str, value: Any) -> dict[str, Any]:
    return {"event": "slot_was_set", "name": name, "value": value}


def uttered(**fields: Any) -> dict[str, Any]:
    return {"event": "bot_uttered", **fields}


def clarified(*flow_ids: str) -> dict[str, Any]:
    return {"event": "pattern_clarification", "flow_ids": list(flow_ids)}
