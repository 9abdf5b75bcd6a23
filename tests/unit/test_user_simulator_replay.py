"""A recording is said again while it fits, and left gracefully when it does not."""

from __future__ import annotations

import asyncio

import pytest

from schemas.briefs import UserBrief
from schemas.trajectory import AgentTurn, TrajectoryEvent, UserTurn
from schemas.user import Persona
from services.user_simulator.replay import (
    Recording,
    ReplaySimulator,
    briefed,
    recording_of,
    replayed,
)
from services.user_simulator.simulator import AgentSaid, History, UserMove, UserSaid
from services.user_simulator.validity import violation
from tests.support.users import brief, conversation

pytestmark = pytest.mark.req("V02", "V04")

ENTRIES: History = (
    UserSaid(1, "hey so my kettle leaks, money back pls"),
    AgentSaid(1, "I am sorry to hear that. What is your order number?"),
    UserSaid(1, "its ORD-4711"),
    AgentSaid(1, "Thank you. Shall I go ahead with the refund?"),
    UserSaid(1, "yeah do it"),
    AgentSaid(1, "A refund of 49.90 EUR has been issued. Anything else?"),
    UserSaid(1, "nope cheers", closing=True),
)
RECORDING = Recording(ENTRIES, "goal_met")
BARE = UserBrief(persona=Persona(name="plain", patience=3), seed=3)


def talk(*answers: str, recording: Recording = RECORDING, user: UserBrief = BARE) -> list[UserMove]:
    """All of the user's moves against these answers; each is one that a user could make."""
    history, moves, left = History(), list[UserMove](), list(answers)
    while True:
        move = replayed(user, recording, history)
        assert violation(briefed(user, recording), history, move) is None, move
        moves.append(move)
        number = history[-1].conversation if history else 1
        if history and isinstance(history[-1], UserSaid):
            number += 1
        history = (*history, UserSaid(number, move.text, move.ending is not None))
        if move.ending in ("goal_met", "gave_up"):
            return moves
        if move.ending is None:
            if not left:
                return moves
            history = (*history, AgentSaid(number, left.pop(0)))


def recorded(entries: History = ENTRIES) -> list[str]:
    return [entry.text for entry in entries if isinstance(entry, UserSaid)]


def test_the_same_agent_gets_the_same_conversation() -> None:
    moves = talk(*[e.text for e in ENTRIES if isinstance(e, AgentSaid)])
    assert [move.text for move in moves] == recorded()
    assert moves[-1].ending == "goal_met"


def test_other_words_for_the_same_are_no_divergence() -> None:
    moves = talk(
        "Oh no! Could you give me the order number, please?",
        "Thanks. Shall I proceed with the refund then?",
        "A refund of 52.00 EUR has been issued. Is there anything else?",
    )
    assert [move.text for move in moves] == recorded()


def test_another_question_is_answered_by_the_agenda_from_the_recordings_facts() -> None:
    moves = talk(
        "What is your date of birth?",
        "I see. What is your order number?",
        "A refund of 49.90 EUR has been issued.",
    )
    assert moves[1].text not in recorded()
    assert "know" in moves[1].text or "have" in moves[1].text
    assert "ORD-4711" in moves[2].text
    assert moves[2].text != "its ORD-4711"
    assert moves[3].ending == "goal_met"


def test_a_fact_already_told_is_told_again_after_a_divergence() -> None:
    moves = talk("What is your order number?", "Sorry, what is your order number?")
    assert moves[1].text == "its ORD-4711"
    assert "ORD-4711" in moves[2].text
    assert moves[2].text != moves[1].text


def test_a_mistaken_agent_is_corrected_instead_of_confirmed() -> None:
    moves = talk("What is your order number?", "Your order number is ORD-1234. Shall I go ahead?")
    assert moves[2].text != "yeah do it"
    assert "ORD-4711" in moves[2].text


def test_a_refusal_where_there_was_none_is_given_up_on() -> None:
    assert talk("I'm sorry, I can't do that.")[-1].ending == "gave_up"


def test_an_agent_that_gets_nowhere_is_left_within_its_patience() -> None:
    moves = talk(*["Hm, I do not understand you."] * 10)
    assert len(moves) == 1 + BARE.persona.patience
    assert moves[-1].ending == "gave_up"


def test_a_recording_that_breaks_off_is_carried_on() -> None:
    cut = Recording(ENTRIES[:4])
    moves = talk("What is your order number?", "Shall I go ahead with the refund?", recording=cut)
    assert moves[1].text == "its ORD-4711"
    assert moves[2].text.lower().startswith("yes")
    # Nobody heard how it would have been done, so the user never is content.
    assert talk(*["A refund of 49.90 EUR has been issued."] * 9, recording=cut)[-1].ending == (
        "gave_up"
    )


def test_a_brief_with_goals_keeps_them() -> None:
    user = brief(conversation())
    assert briefed(user, RECORDING) is user
    moves = talk("Hm.", "Your return has been created.", user=user)
    assert "headphones" in moves[1].text
    assert moves[-1].ending == "goal_met"


def test_several_conversations_are_replayed_in_turn() -> None:
    first = (*ENTRIES[:5], AgentSaid(1, "Your refund has been booked."), ENTRIES[-1])
    second: History = (
        UserSaid(2, "where is it"),
        AgentSaid(2, "It was paid out yesterday."),
        UserSaid(2, "ok", closing=True),
    )
    both = Recording((*first, *second), "goal_met")
    answers = [e.text for e in both.entries if isinstance(e, AgentSaid)]
    moves = talk(*answers, recording=both)
    assert [move.text for move in moves] == recorded(both.entries)
    assert [move.ending for move in moves if move.ending] == ["conversation_over", "goal_met"]


def test_a_recording_is_taken_from_a_trajectory() -> None:
    events = []
    for number, entry in enumerate(ENTRIES):
        body: dict[str, object] = (
            {"user_turn": UserTurn(text=entry.text, ending="goal_met" if entry.closing else None)}
            if isinstance(entry, UserSaid)
            else {"agent_turn": AgentTurn(outcome="ok", final_response=entry.text)}
        )
        events.append(
            TrajectoryEvent(
                event_id=f"s:{number}", session_id="s", run_id="r", kind=next(iter(body)),
                conversation=1, turn=number // 2 + 1, at_ms=0, **body,  # type: ignore[arg-type]
            )
        )  # fmt: skip
    assert recording_of(events) == RECORDING
    broken = [*events[:3], TrajectoryEvent(
        event_id="s:x", session_id="s", run_id="r", kind="agent_turn", conversation=1, turn=2,
        at_ms=0, agent_turn=AgentTurn(outcome="error", final_response=""),
    ), *events[4:]]  # fmt: skip
    assert recording_of(broken) == Recording(ENTRIES[:3])


def test_the_simulator_plays_it_and_names_itself() -> None:
    player = ReplaySimulator(RECORDING)
    assert asyncio.run(player.next_turn(BARE, ())).text == ENTRIES[0].text
    assert player.pin().startswith("replay/1, agenda/")
