"""What holds for the agenda-based user whatever the agent says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.briefs import UserBrief
from schemas.pins import AGENDA
from services.user_simulator import phrases
from services.user_simulator.agenda import plan
from services.user_simulator.phrases import BANKS, Kind
from services.user_simulator.phrasing import spoken
from services.user_simulator.simulator import AgentSaid, History, UserSaid
from services.user_simulator.validity import violation
from tests.support.users import (
    FACTS,
    REFUND,
    RETURN,
    STYLES,
    bound,
    brief,
    conversation,
    heard,
    is_over,
    play,
)

SENTENCES = (
    "Hello!",
    "What is your order number?",
    "Please provide your email and the order ID.",
    "Why do you want to return it?",
    "Is there a gift wrap?",
    "What is your date of birth?",
    "Shall I go ahead?",
    "Your order number is ORD-99999, is that right?",
    "Your email is jo.baker@example.org, correct?",
    "Shall I send back ORD-55555?",
    "Is that correct?",
    "I can't do that.",
    "I'm sorry, the system is temporarily down, please try again.",
    "One moment please.",
    "I do not understand.",
    "Is there anything else I can help you with?",
    "Your return has been created.",
    "You get it within 5 days.",
    "",
)
replies = st.lists(
    st.one_of(st.lists(st.sampled_from(SENTENCES), max_size=3).map(" ".join), st.text(max_size=40)),
    max_size=25,
)
users = st.builds(
    lambda style, patience, seed, consents, pushes: brief(
        conversation(RETURN, REFUND, consents=consents, pushes=pushes),
        conversation(RETURN, after="2d"),
        style=style,
        patience=patience,
        seed=seed,
    ),
    st.sampled_from(STYLES),
    st.integers(1, 6),
    st.integers(0, 2**63 - 1),
    st.booleans(),
    st.lists(st.sampled_from(["Do it now!", "I am the owner."]), max_size=3).map(tuple),
)


def hasty(patience: int) -> UserBrief:
    """Wants two things, of which an agent may tell the second before it is asked."""
    return brief(
        conversation(RETURN, REFUND), conversation(RETURN, after="2d"), patience=patience, seed=0
    )


def against(user: UserBrief, answers: list[str]) -> tuple[History, list[History]]:
    """The history of a session, and every history in which it was the user's turn."""
    history: History = ()
    asked = []
    left = list(answers)
    while True:
        asked.append(history)
        move = plan(user, history)
        history = heard(history, move)
        if is_over(move) or (move.ending is None and not left):
            return history, asked
        if move.ending is None:
            history = (*history, AgentSaid(history[-1].conversation, left.pop(0)))


@pytest.mark.req("V04", "V02")
@given(users, replies)
@settings(max_examples=100, deadline=None)
def test_the_same_brief_and_history_give_the_same_move(user: UserBrief, answers: list[str]) -> None:
    copy = UserBrief.model_validate_json(user.model_dump_json())
    history, asked = against(user, answers)
    for position in asked:
        assert plan(user, position) == plan(copy, position)
    assert history == against(copy, answers)[0]


@pytest.mark.req("V02")
@given(users, replies)
@example(hasty(1), ["Your return has been created. You get it within 5 days.", ""])
@example(hasty(6), ["Your return has been created. You get it within 5 days.", *["Hm."] * 5])
@example(hasty(3), ["You get it within 5 days.", "Your return has been created.", *["Hm."] * 3])
@settings(max_examples=100, deadline=None)
def test_no_move_of_the_agenda_is_ever_invalid(user: UserBrief, answers: list[str]) -> None:
    for position in against(user, answers)[1]:
        move = plan(user, position)
        assert move.invalid is None
        assert violation(user, position, move) is None, move


@pytest.mark.req("V02")
@given(users, replies)
@settings(max_examples=100, deadline=None)
def test_a_fact_is_never_told_before_it_was_named(user: UserBrief, answers: list[str]) -> None:
    """Independent of the rules: no word of the agent names it, and no goal text carries it."""
    words = {
        "email": "email", "new_email": "new email", "reason": "why", "gift_wrap": "gift",
    }  # fmt: skip
    history, _ = against(user, answers)
    said_by_agent = ""
    for entry in history:
        if isinstance(entry, AgentSaid):
            said_by_agent += " " + entry.text.lower()
            continue
        for name, word in words.items():
            value = spoken(FACTS[name].value)
            if len(value) > 3 and value in entry.text:
                assert word in said_by_agent, (name, entry.text)


@pytest.mark.req("V02")
@given(users, replies)
@settings(max_examples=100, deadline=None)
def test_a_session_ends_whatever_mixture_is_answered(user: UserBrief, answers: list[str]) -> None:
    script = answers or [""]
    play(user, lambda _said, number: script[number % len(script)], bound(user))


AGENTS: dict[str, Callable[[str, int], str]] = {
    "silent": lambda _said, _n: "",
    "looping": lambda _said, _n: "I don't understand.",
    "over-asking": lambda _said, _n: "Please provide your email, order number and date of birth.",
    "inventive over-asking": lambda _said, n: f"What is your field {'x' * n}?",
    "refusing": lambda _said, _n: "I'm sorry, I can't do that.",
    "over-confirming": lambda _said, n: f"Shall I go ahead with step {n}?",
    "stalling": lambda _said, _n: "One moment please.",
    "down": lambda _said, _n: "The system is temporarily unavailable, please try again later.",
    "echoing": lambda said, _n: said,
    "contradicting": lambda _said, _n: "Your order number is ORD-99999. Shall I go ahead?",
    "inventive contradicting": lambda _said, n: f"Your order number is ORD-{n:05}, right?",
    "hostile": lambda _said, _n: "You are wasting my time. Figure it out yourself.",
}


@pytest.mark.req("V02")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("patience", [1, 3, 20])
@pytest.mark.parametrize("agent", AGENTS)
def test_useless_agents_are_left_within_the_bounds_of_patience(
    style: str, patience: int, agent: str
) -> None:
    user = brief(conversation(RETURN, pushes=("Do it now!",)), style=style, patience=patience)
    history, last = play(user, AGENTS[agent], bound(user))
    assert last.ending == "gave_up"
    position: History = ()
    for entry in history:
        if isinstance(entry, UserSaid):
            assert violation(user, position, plan(user, position)) is None
        position = (*position, entry)


@pytest.mark.req("V04")
@pytest.mark.parametrize("style", STYLES)
def test_openings_differ_between_seeds(style: str) -> None:
    openings = {plan(brief(style=style, seed=seed), ()).text for seed in range(30)}
    assert len(openings) >= 8


@pytest.mark.req("V04")
def test_styles_differ() -> None:
    for seed in range(5):
        assert len({plan(brief(style=s, seed=seed), ()).text for s in STYLES}) == len(STYLES)


@pytest.mark.req("V04")
@pytest.mark.parametrize("kind", [k for k in Kind if k is not Kind.TAIL])
@pytest.mark.parametrize("style", STYLES)
def test_there_are_several_ways_to_say_everything(style: str, kind: Kind) -> None:
    phrases_of_kind = BANKS[style][kind]
    assert len(set(phrases_of_kind)) == len(phrases_of_kind) >= 3


@pytest.mark.req("V08")
def test_no_phrase_tells_that_nobody_is_there() -> None:
    for bank in BANKS.values():
        for phrase in (p for kind in bank.values() for p in kind):
            for word in ("simulat", "test", "scenario", "persona", "eval", "pretend", "agenda"):
                assert word not in phrase.lower(), phrase


@pytest.mark.req("V10")
def test_what_users_say_is_pinned() -> None:
    """A change of phrases or behaviour makes runs incomparable: raise the pin with it."""
    state = hashlib.sha256(
        json.dumps({s: {k: bank[k] for k in Kind} for s, bank in BANKS.items()}).encode()
    )
    for style in STYLES:
        for seed in range(3):
            user = brief(
                conversation(RETURN, REFUND, pushes=("Do it now!",)), conversation(RETURN),
                style=style, seed=seed, patience=5,
            )  # fmt: skip
            for entry in against(user, [*SENTENCES, *SENTENCES])[0]:
                state.update(entry.text.encode())
    assert phrases.__doc__ is not None
    assert "schemas.pins.AGENDA" in phrases.__doc__
    assert (AGENDA, state.hexdigest()[:16]) == ("agenda/3", "2f31de4d645eed77")
