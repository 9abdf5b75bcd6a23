"""The agenda-based user puts the agent right, volunteers facts, and says when patience ends."""

from __future__ import annotations

import pytest

from schemas.user import UserGoal
from services.user_simulator.agenda import plan
from services.user_simulator.phrases import BANKS, Kind
from tests.support.users import EMAIL, ORDER, REFUND, STYLES, after, brief, conversation, dialogue

pytestmark = pytest.mark.req("V02")

WHAT = "Sorry, I do not understand you."
REFUSAL = "I'm sorry, I can't do that without verifying you first."


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("mistake", "value"),
    [
        ("Your order number is ORD-99999, right?", ORDER),
        ("I can't find order number ORD-99999.", ORDER),
        ("Is your order number ORD-99999?", ORDER),
        ("Shall I send back ORD-99999?", ORDER),
        ("I have your email as other@example.org. Is that correct?", EMAIL),
        ("I will write to your new email: other@example.org.", "jo.new@example.org"),
    ],
)
def test_what_the_agent_got_wrong_is_corrected(mistake: str, value: str, style: str) -> None:
    move = after(brief(style=style), mistake)
    assert value in move.text
    assert move.ending is None
    assert not move.text.lower().startswith(("yes", "um, yes", "yep"))


@pytest.mark.parametrize(
    "statement",
    [
        "It looks like ORD-12345.",
        "Your order number is something like ORD-12345, I suppose. For example ORD-12346.",
        "Your order number is not ORD-12345.",
        "I have moved order number ORD-20417 to the list with ORD-12345.",
        "Shall I swap ORD-20417 for ORD-12345?",
        "Shall I go ahead under case REF-12345-X?",
        "Your reason is broken, I see.",
    ],
)
def test_what_is_no_mistake_is_not_corrected(statement: str) -> None:
    facts = ("20417", "jo.baker")
    text = after(brief(), statement).text
    assert not any(fact in text for fact in facts)


def test_an_example_in_a_question_is_no_mistake() -> None:
    text = after(brief(), "What is your order number, for example ORD-12345?").text
    assert ORDER in text
    assert not text.startswith(("No", "Wrong", "Not quite"))


def test_a_mistake_about_what_was_asked_for_is_answered_with_the_request() -> None:
    goal = UserGoal(say=("Refund ORD-1007",), done_when=("refunded",))
    user = brief(conversation(goal), facts={})
    assert "ORD-1007" in after(user, "Shall I refund ORD-1001?").text
    assert after(user, "Shall I refund ORD-1007?").text.lower().startswith("yes")


def test_nothing_is_agreed_to_before_it_is_put_right() -> None:
    text = after(brief(), "Your order number is ORD-99999. Shall I go ahead?").text
    assert ORDER in text
    assert "yes" not in text.lower()


def test_the_first_mistake_costs_no_patience_and_the_next_ones_do() -> None:
    wrong = "Your order number is ORD-99999, right?"
    moves = dialogue(brief(patience=2), *[wrong] * 5)
    assert [move.ending for move in moves] == [None, None, None, "gave_up"]


@pytest.mark.parametrize("consents", [True, False])
@pytest.mark.parametrize("style", STYLES)
def test_what_the_agent_got_right_is_confirmed_whatever_the_user_consents_to(
    style: str, consents: bool
) -> None:
    user = brief(conversation(consents=consents), style=style)
    for check in ("Your order number is ORD-20417, right?", "Is your order number ORD-20417?"):
        text = after(user, check).text.lower()
        assert "yes" in text or "correct" in text or "yep" in text, text
        assert not text.startswith("no")


@pytest.mark.parametrize("style", STYLES)
def test_facts_are_volunteered_by_whoever_does_so(style: str) -> None:
    told = [plan(brief(style=style, seed=seed, volunteers=1.0), ()).text for seed in range(5)]
    assert all(ORDER in text and EMAIL in text for text in told)
    kept = [plan(brief(style=style, seed=seed), ()).text for seed in range(20)]
    assert not any(ORDER in text or EMAIL in text for text in kept)


def test_a_share_of_the_facts_is_volunteered_by_the_seed() -> None:
    told = [plan(brief(seed=seed, volunteers=0.5), ()).text for seed in range(40)]
    assert 5 < sum(ORDER in text for text in told) < 35
    assert told == [plan(brief(seed=seed, volunteers=0.5), ()).text for seed in range(40)]


def test_what_the_request_carries_is_not_volunteered_again() -> None:
    text = plan(brief(conversation(REFUND), volunteers=1.0), ()).text
    assert text.count(ORDER) == 1


def test_what_was_volunteered_is_still_told_when_asked() -> None:
    user = brief(volunteers=1.0, patience=1)
    move = after(user, "What is your order number?")
    assert ORDER in move.text
    assert move.ending is None


@pytest.mark.parametrize("style", STYLES)
def test_patience_that_runs_out_is_announced(style: str) -> None:
    moves = dialogue(brief(style=style, patience=4), *[WHAT] * 4)
    announced = [
        any(phrase in move.text for phrase in BANKS[style][Kind.IMPATIENT]) for move in moves
    ]
    assert announced == [False, False, False, True, False]
    assert moves[-1].ending == "gave_up"


def test_pushes_are_said_unadorned_by_the_impatient() -> None:
    user = brief(conversation(pushes=("I am in a hurry!",)), patience=3)
    moves = dialogue(user, WHAT, WHAT, REFUSAL)
    assert moves[3].text == "I am in a hurry!"
