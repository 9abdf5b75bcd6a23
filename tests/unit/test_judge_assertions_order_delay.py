"""The order that is late: the scenario language's own example, over a session that shows it all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from schemas.briefs import judge_brief
from schemas.loader import parse_scenario
from schemas.scores import DimensionScore, SessionScored
from services.judge.assertions.rating import Question, Rating
from services.judge.core import judge_session
from services.judge.evaluators.criteria import Judgement
from services.judge.evaluators.quality import QualityRating
from services.judge.trajectory import Trajectory
from tests.support.assertions import TRACKER, action, clarified, flow, slot, uttered
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("S01", "S05")

FILE = Path(__file__).parents[1] / "support" / "scenarios" / "order_delay.yml"
DETAILS = "utter_order_status_details"
Turn = tuple[str, list[dict[str, Any]], str]

IDENTITY: Turn = (
    "Where is my order?",
    [
        action("action_session_start"), slot("authenticated", None), slot("order_id", "ORD-9981"),
        clarified("check_order_status", "cancel_order"), flow("started", "verify_identity"),
        action("action_verify_account"), slot("authenticated", True),
        flow("completed", "verify_identity"), TRACKER,
    ],
    "Your order, then.",
)  # fmt: skip
STATUS: Turn = (
    "So why is it late?",
    [
        flow("started", "check_order_status"), action("action_check_order_status"),
        uttered(utter_name="utter_order_delayed", text="It is delayed."),
        uttered(utter_source=DETAILS, text="It left the depot a day late.",
                search_results="ORD-9981 left the depot on Tuesday, a day late."),
        flow("started", "verify_identity"), flow("cancelled", "verify_identity"),
        flow("completed", "check_order_status"), TRACKER,
    ],
    "It is delayed.\nIt left the depot a day late.",
)  # fmt: skip


class Model:
    """Passes every criterion and scores what it is told."""

    model = "scripted/1"
    pin = "judge/0 scripted/1"
    quality = ()

    def __init__(self, relevance: float = 0.8, groundedness: float = 1.0) -> None:
        self.relevance, self.groundedness = relevance, groundedness

    async def judge(
        self, criteria: Sequence[str], trajectory: Trajectory, outcome: str
    ) -> Sequence[Judgement]:
        return [Judgement(passed=True, rationale="It does.", citations=("a2",)) for _ in criteria]

    async def rate_quality(
        self, scales: Mapping[str, str], trajectory: Trajectory, outcome: str
    ) -> Mapping[str, QualityRating]:
        return {}

    async def rate(self, question: Question) -> Rating:
        about_user = question.source is None
        return Rating(self.relevance if about_user else self.groundedness, "Scripted.")


def without(**keys: Any) -> tuple[Turn, ...]:
    """The two turns, less the events that have these keys."""

    def kept(event: dict[str, Any]) -> bool:
        return not all(event.get(key) == value for key, value in keys.items())

    return tuple((said, [e for e in told if kept(e)], reply) for said, told, reply in
                 (IDENTITY, STATUS))  # fmt: skip


def plus(*events: dict[str, Any]) -> tuple[Turn, ...]:
    said, told, reply = STATUS
    return IDENTITY, (said, [*told, *events], reply)


def judged(turns: tuple[Turn, ...], model: Model | None) -> tuple[SessionScored, DimensionScore]:
    scenario = parse_scenario(FILE.read_text(), FILE.name)
    session = Session(scenario_id=scenario.id)
    for said, told, reply in turns:
        session.user(said)
        for event in told:
            session.trace("state", event)
        session.agent(reply)
    result = asyncio.run(judge_session(session.end(), judge_brief(scenario), 1, model))
    return result, next(one for one in result.dimensions if one.dimension == "assertions")


def test_it_passes_when_everything_is_as_it_should_be() -> None:
    result, gate = judged((IDENTITY, STATUS), Model())
    assert (result.passed, gate.passed, gate.value) == (True, True, 1.0), gate.reason
    assert gate.reason.startswith("12 assertions (holds: 12). ")


CHANGES: dict[str, tuple[tuple[Turn, ...], Model, set[str]]] = {
    "flow_started": (
        without(event="flow_started", flow_id="check_order_status"), Model(),
        {"flow_started", "sequencing"},
    ),
    "flow_completed": (
        without(event="flow_completed", flow_id="check_order_status"), Model(),
        {"flow_completed", "sequencing"},
    ),
    "flow_cancelled": (without(event="flow_cancelled"), Model(), {"flow_cancelled"}),
    "action_executed": (without(name="action_check_order_status"), Model(), {"action_executed"}),
    "slot_was_set": (without(name="order_id"), Model(), {"slot_was_set"}),
    "slot_was_not_set": (plus(slot("transfer_amount", 5)), Model(), {"slot_was_not_set"}),
    "bot_uttered": (without(utter_name="utter_order_delayed"), Model(), {"bot_uttered"}),
    "bot_did_not_utter": (
        plus(uttered(utter_name="utter_dont_know", text="Who knows?")), Model(),
        {"bot_did_not_utter"},
    ),
    "pattern_clarification_contains": (
        without(event="pattern_clarification"), Model(), {"pattern_clarification_contains"},
    ),
    "generative_response_is_relevant": (
        (IDENTITY, STATUS), Model(relevance=0.4), {"generative_response_is_relevant"},
    ),
    "generative_response_is_grounded": (
        (IDENTITY, STATUS), Model(groundedness=0.25), {"generative_response_is_grounded"},
    ),
    "sequencing": ((STATUS, IDENTITY), Model(), {"sequencing"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_each_type_fails_by_itself_and_fails_the_session(kind: str) -> None:
    turns, model, expected = CHANGES[kind]
    result, gate = judged(turns, model)
    failing = {kind for kind in CHANGES if f") {kind} fails: " in gate.reason}
    assert (result.passed, gate.passed, failing) == (False, False, expected), gate.reason
    assert gate.value == (12 - len(expected)) / 12


def test_without_a_model_only_the_two_that_need_one_are_open() -> None:
    result, gate = judged((IDENTITY, STATUS), None)
    assert (result.passed, gate.status) == (None, "unscored")
    assert gate.reason.startswith("12 assertions (unscored: 2, holds: 10). ")


def test_an_agent_that_reports_nothing_of_this_is_not_passed_by_it() -> None:
    turns: tuple[Turn, ...] = tuple((said, [], reply) for said, _, reply in (IDENTITY, STATUS))
    result, gate = judged(turns, Model())
    assert (result.passed, gate.status, gate.value) == (None, "unscored", None)
    assert gate.reason.startswith("12 assertions (not applicable: 12). ")
