"""Ending at the wrong time, or never, is found."""

from __future__ import annotations

import pytest

from schemas.briefs import UserBrief
from schemas.user import Persona
from services.user_simulator.simulator import AgentSaid, History, UserMove, UserSaid
from services.user_simulator.validity import (
    TURNS_AFTER_ALL_IS_DONE,
    TURNS_AFTER_PATIENCE,
    violation,
)
from tests.support.users import REFUND, RETURN, brief, conversation

pytestmark = pytest.mark.req("V02")

TALKED: History = (UserSaid(1, "Hi"), AgentSaid(1, "Hello, which order is it about?"))
DONE: History = (UserSaid(1, "Hi"), AgentSaid(1, "Your return has been created."))
NOWHERE: History = (*TALKED, UserSaid(1, "Hm"), AgentSaid(1, "So?"))


def of(text: str, ending: str | None = None, history: History = TALKED) -> str | None:
    return violation(brief(conversation()), history, UserMove(text, ending=ending))  # type: ignore[arg-type]


def test_ending_before_anything_was_said() -> None:
    assert "before anything" in (of("Bye", "gave_up", history=()) or "")
    next_one: History = (*TALKED, UserSaid(1, "Bye", closing=True))
    user = brief(conversation(), conversation())
    move = UserMove("", ending="goal_met")
    assert "before anything" in (violation(user, next_one, move) or "")
    assert of("", "gave_up", history=NOWHERE) is None
    assert of("Bye", "goal_met", history=DONE) is None


def test_ending_at_the_wrong_conversation() -> None:
    two = brief(conversation(), conversation())
    assert "conversations are left" in (violation(two, DONE, UserMove("", ending="goal_met")) or "")
    assert violation(two, DONE, UserMove("", ending="conversation_over")) is None
    assert "does not exist" in (of("", "conversation_over", history=DONE) or "")


def test_ending_too_early() -> None:
    early = "ends too early: is content"
    assert early in (of("Great, bye!", "goal_met") or "")
    two = brief(conversation(), conversation())
    assert early in (violation(two, TALKED, UserMove("Bye", ending="conversation_over")) or "")
    half = brief(conversation(RETURN, REFUND))
    assert early in (violation(half, DONE, UserMove("Bye", ending="goal_met")) or "")
    asked: History = (UserSaid(1, "Hi"), AgentSaid(1, "What is your order number?"))
    assert "gives up although the agent gets on" in (of("Bye", "gave_up", history=asked) or "")
    refused: History = (UserSaid(1, "Hi"), AgentSaid(1, "I'm sorry, I can't do that."))
    assert of("Bye", "gave_up", history=refused) is None
    hasty = brief(conversation(), patience=1)
    assert violation(hasty, asked, UserMove("Bye", ending="gave_up")) is None


def test_giving_up_with_everything_in_hand() -> None:
    assert "heard all it came for" in (of("Bye", "gave_up", history=DONE) or "")


def test_never_ending() -> None:
    user = brief(conversation(), patience=2)
    texts = [f"And what about {n}" for n in ("this", "that", "those", "these")]
    history = DONE
    for number, text in enumerate(texts, 1):
        reason = violation(user, history, UserMove(text))
        assert (reason is not None) == (number > TURNS_AFTER_ALL_IS_DONE), number
        history = (*history, UserSaid(1, text), AgentSaid(1, "I see."))
    assert reason is not None
    assert "never ends" in reason


def test_going_on_although_it_gets_nowhere() -> None:
    user = brief(conversation(), patience=2)
    history: History = ()
    for number in range(20):
        text = f"{'please ' * number}help"
        if reason := violation(user, history, UserMove(text)):
            break
        history = (*history, UserSaid(1, text), AgentSaid(1, "I do not understand."))
    assert "gets nowhere" in (reason or "")
    # Two answers of its own patience, those of grace, and its patience once more.
    assert number == 2 + TURNS_AFTER_PATIENCE + 2 + 1


def test_a_user_in_words_only_has_no_goal_to_be_held_to() -> None:
    user = UserBrief(narrative="You are upset.", persona=Persona(name="plain"), seed=1)
    assert violation(user, TALKED, UserMove("Great, bye!", ending="goal_met")) is None
