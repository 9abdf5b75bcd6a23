"""What the agenda-based user does in each situation, both ways."""

from __future__ import annotations

import asyncio

import pytest

from schemas.briefs import UserBrief
from schemas.user import Fact, Persona, UserGoal
from services.user_simulator.agenda import AgendaSimulator, plan
from services.user_simulator.simulator import AgentSaid, UserSaid
from tests.support.users import (
    EMAIL,
    ORDER,
    REFUND,
    RETURN,
    STYLES,
    after,
    brief,
    conversation,
    dialogue,
)

pytestmark = pytest.mark.req("V02")

DONE = "Your return has been created."
WHAT = "Sorry, I do not understand you."
GO_AHEAD = "Shall I go ahead with the return?"
REFUSAL = "I'm sorry, I can't do that without verifying you first."
OUTAGE = "I apologise, the order system is temporarily down. Please try again in a few minutes."


@pytest.mark.parametrize("style", STYLES)
def test_opens_with_the_first_goal_in_the_authors_words(style: str) -> None:
    move = plan(brief(conversation(RETURN, REFUND), style=style), ())
    assert any(say in move.text for say in RETURN.say)
    assert "money back" not in move.text
    assert (move.ending, move.invalid) == (None, None)


def test_fact_names_in_a_goal_are_filled_in() -> None:
    assert f"order {ORDER}?" in plan(brief(conversation(REFUND)), ()).text


def test_a_goal_that_names_an_unknown_fact_is_invalid_and_says_which() -> None:
    goal = UserGoal(say=("Cancel {booking}",), done_when=("ok",))
    move = plan(brief(conversation(goal)), ())
    assert move.invalid is not None
    assert "{booking}" in move.invalid
    assert move.text == ""


def test_braces_that_are_no_fact_name_are_left_alone() -> None:
    text = 'Run this: {"role": "system"} and {} too'
    goal = UserGoal(say=(text,), done_when=("ok",))
    assert text in plan(brief(conversation(goal)), ()).text


@pytest.mark.parametrize(
    "question",
    [
        "What is your order number?",
        "Please provide the order ID.",
        "Could you give me your order-id",
        "I will need your Order ID to look this up.",
        "Sure. To find it, please send me:\n- order number",
    ],
)
@pytest.mark.parametrize("style", STYLES)
def test_a_fact_is_told_when_it_is_asked_for(question: str, style: str) -> None:
    move = after(brief(style=style), question)
    assert ORDER in move.text
    assert EMAIL not in move.text


@pytest.mark.parametrize(
    "statement",
    [
        "I have looked at your order number.",
        "Thanks for providing your email, I am on it.",
        "You do not need to provide your order number.",
        "Never share your email with anybody!",
        "Please confirm, but never give your email or order number to anybody.",
        "I do not need your email, tell me when you are ready.",
        "Shall I send the receipt to your email?",
    ],
)
def test_a_fact_that_is_only_mentioned_is_not_told(statement: str) -> None:
    text = after(brief(), statement).text
    assert ORDER not in text
    assert EMAIL not in text


def test_several_facts_are_told_at_once() -> None:
    text = after(brief(), "Please tell me your order number and your email address.").text
    assert ORDER in text
    assert EMAIL in text
    assert "jo.new" not in text


def test_the_longer_name_is_meant_where_one_contains_the_other() -> None:
    text = after(brief(), "What is your new email?").text
    assert "jo.new@example.org" in text
    assert EMAIL not in text


def test_an_ask_pattern_and_the_facts_own_words_are_used() -> None:
    assert after(brief(), "Why do you want to return it?").text == "The left side is cracked."
    assert "cracked" not in after(brief(), "I wonder why people return things.").text


def test_the_order_in_which_facts_are_told_varies() -> None:
    ask = "Please provide your order number and your email."
    firsts = {
        after(brief(seed=seed), ask).text.index(ORDER)
        < after(brief(seed=seed), ask).text.index(EMAIL)
        for seed in range(20)
    }
    assert firsts == {True, False}


def test_a_fact_asked_again_is_told_again_in_other_words() -> None:
    ask = "What is your order number?"
    _, first, second = dialogue(brief(), ask, ask)
    assert ORDER in first.text
    assert ORDER in second.text
    assert first.text != second.text


def test_truth_values_are_said_as_people_say_them() -> None:
    text = after(brief(), "Is there a gift wrap?").text
    assert "yes" in text
    assert "True" not in text


@pytest.mark.parametrize("style", STYLES)
def test_what_the_user_does_not_know_is_said_to_be_unknown(style: str) -> None:
    text = after(brief(style=style), "What is your date of birth?").text
    assert any(words in text.lower() for words in ("know", "don't have", "no idea", "no info"))
    assert ORDER not in text


@pytest.mark.parametrize(
    "question",
    [
        GO_AHEAD,
        "Headphones for 40 euros. Is that correct?",
        "Do you want me to send a label?",
        "Would you like me to book it?",
        "May I proceed?",
        "I will book a courier. Please confirm.",
    ],
)
@pytest.mark.parametrize("style", STYLES)
def test_go_ahead_questions_get_the_scenarios_answer(question: str, style: str) -> None:
    yes = after(brief(conversation(), style=style), question).text
    no = after(brief(conversation(consents=False), style=style), question).text
    assert "yes" in yes.lower() or "yep" in yes.lower()
    assert no.lower().startswith(("no", "oh no"))


def test_a_question_for_a_fact_and_a_go_ahead_are_both_answered() -> None:
    text = after(brief(), "What is your order number? And shall I go ahead?").text
    assert text.lower().startswith("yes")
    assert ORDER in text


@pytest.mark.parametrize(
    "refusal",
    [
        REFUSAL,
        "I am unable to do so.",
        "We are not able to refund this.",
        "This is possible only after verification.",
        "That cannot be refunded.",
        "I won't be able to help with this.",
    ],
)
def test_a_refusal_is_met_by_the_pushes_and_then_the_user_gives_up(refusal: str) -> None:
    user = brief(conversation(pushes=("I am in a hurry!", "My husband is {order_id}.")))
    _, first, second, third = dialogue(user, refusal, refusal, refusal)
    assert first.text == "I am in a hurry!"
    assert second.text == f"My husband is {ORDER}."
    assert third.ending == "gave_up"


def test_what_is_no_refusal_is_not_pushed_against() -> None:
    user = brief(conversation(pushes=("I am in a hurry!",)))
    for reply in (
        "You can't miss the label, it is yellow.",
        "If you cannot print it, show the code.",
        "I can do that.",
    ):
        move = after(user, reply)
        assert move.text != "I am in a hurry!", reply
        assert move.ending is None


def test_a_refusal_without_pushes_ends_it() -> None:
    assert after(brief(), REFUSAL).ending == "gave_up"


def test_a_fact_that_was_asked_for_goes_before_pushing() -> None:
    user = brief(conversation(pushes=("I am in a hurry!",)))
    move = after(user, "I can't do that yet. Please provide your email.")
    assert EMAIL in move.text
    assert "hurry" not in move.text


def test_pushes_do_not_depend_on_patience() -> None:
    pushes = tuple(f"push {n}" for n in range(5))
    moves = dialogue(brief(conversation(pushes=pushes), patience=1), *[REFUSAL] * 6)
    assert [move.text for move in moves[1:6]] == list(pushes)
    assert moves[6].ending == "gave_up"


def test_goals_come_one_after_the_other_and_then_it_is_met() -> None:
    moves = dialogue(brief(conversation(RETURN, REFUND)), DONE, "You get it within 5 days.")
    assert "money back" in moves[1].text
    assert moves[1].ending is None
    assert moves[2].ending == "goal_met"


def test_only_the_goal_at_hand_is_taken_as_done() -> None:
    move = after(brief(conversation(RETURN, REFUND)), "Refunds come within 5 days.")
    assert move.ending is None
    assert any(say in move.text for say in RETURN.say)


def test_a_goal_that_is_not_done_is_not_met() -> None:
    assert after(brief(), "I will create your return.").ending is None


@pytest.mark.parametrize("style", STYLES)
def test_done_and_anything_else_ends_properly(style: str) -> None:
    move = after(brief(style=style), f"{DONE} Is there anything else I can help you with?")
    assert move.ending == "goal_met"


def test_anything_else_before_it_is_done_brings_the_goal_up_again() -> None:
    move = after(brief(), "Is there anything else I can help you with?")
    assert move.ending is None
    assert any(say in move.text for say in RETURN.say)


@pytest.mark.req("V14")
def test_conversations_follow_each_other() -> None:
    user = brief(conversation(RETURN), conversation(REFUND, after="3d"))
    moves = dialogue(user, DONE, "Within 5 days.")
    assert [move.ending for move in moves] == [None, "conversation_over", None, "goal_met"]
    assert "money back" in moves[2].text


def test_a_new_conversation_starts_afresh() -> None:
    ask = "What is your email?"
    user = brief(conversation(RETURN), conversation(REFUND), patience=1)
    moves = dialogue(user, ask, DONE, ask)
    assert EMAIL in moves[-1].text
    assert moves[-1].ending is None


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_patience_runs_out_after_so_many_turns_without_progress(patience: int) -> None:
    moves = dialogue(brief(patience=patience), *[WHAT] * (patience + 3))
    assert [move.ending for move in moves] == [None] * patience + ["gave_up"]


def test_progress_restores_patience() -> None:
    moves = dialogue(brief(patience=2), WHAT, "What is your email?", WHAT, GO_AHEAD, WHAT, WHAT)
    assert [move.ending for move in moves] == [None] * 6 + ["gave_up"]


def test_the_same_question_again_is_no_progress() -> None:
    for question in ("What is your email?", GO_AHEAD):
        moves = dialogue(brief(patience=2), *[question] * 5)
        assert len(moves) == 4, question
        assert moves[-1].ending == "gave_up"


@pytest.mark.parametrize("style", STYLES)
def test_a_temporary_problem_is_waited_for_a_bounded_number_of_times(style: str) -> None:
    user = brief(style=style, patience=3)
    moves = dialogue(user, OUTAGE, OUTAGE, OUTAGE)
    for move in moves[1:3]:
        assert "try" in move.text.lower() or "retry" in move.text.lower()
    assert moves[3].ending == "gave_up"


@pytest.mark.parametrize(
    "reply",
    [
        OUTAGE,
        "I couldn't reach the order system just now. Should I try again?",
        "Sorry, our system is not responding.",
        "There was an error. Let's try that again.",
    ],
)
def test_a_temporary_problem_is_not_a_refusal(reply: str) -> None:
    user = brief(conversation(pushes=("I am in a hurry!",)))
    move = after(user, reply)
    assert "hurry" not in move.text
    assert "try" in move.text


def test_a_mistake_of_the_users_is_no_temporary_problem() -> None:
    move = after(brief(), "That order number has 9 digits. Please check it and try again.")
    assert "try" not in move.text


def test_being_asked_to_hold_on_is_accepted_for_a_while() -> None:
    moves = dialogue(brief(patience=2), *["One moment please."] * 6)
    assert [move.ending for move in moves] == [None, None, None, None, "gave_up"]
    assert "headphones" not in moves[1].text
    assert "headphones" in moves[3].text


def test_a_user_described_in_words_only_takes_a_model() -> None:
    user = UserBrief(narrative="You want a refund.", persona=Persona(name="plain"), seed=1)
    move = asyncio.run(AgendaSimulator().next_turn(user, ()))
    assert move.invalid is not None
    assert "model" in move.invalid


def test_out_of_turn_is_an_error() -> None:
    with pytest.raises(ValueError, match="not the user's turn"):
        plan(brief(), (UserSaid(1, "Hello"),))
    with pytest.raises(ValueError, match="all are over"):
        plan(brief(), (UserSaid(1, "Hi"), AgentSaid(1, DONE), UserSaid(1, "Bye", closing=True)))


def test_a_choice_that_names_the_value_is_answered() -> None:
    facts = {"reason": Fact(value="damaged")}
    text = after(brief(facts=facts), "What is the reason: damaged, too small, or other?").text
    assert "damaged" in text
