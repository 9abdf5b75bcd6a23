"""A recording is said again while it fits, and left gracefully when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from schemas.briefs import UserBrief, split
from schemas.latency import Latency
from schemas.pins import AGENDA, REPLAY
from schemas.registry import AgentRegistration
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from schemas.user import Persona, RecordedLine
from services.dispatcher.expansion import make_plan
from services.user_simulator.agenda import AgendaSimulator, plan
from services.user_simulator.pacing import pause_ms
from services.user_simulator.replay import (
    Recording,
    ReplaySimulator,
    briefed,
    recording_of,
    replayed,
)
from services.user_simulator.service import ByBrief
from services.user_simulator.simulator import AgentSaid, History, UserMove, UserSaid
from services.user_simulator.validity import checked, violation
from tests.support.users import brief, conversation, heard, is_over

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
    user = user.model_copy(update={"recording": lines(recording.entries)})
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
    # A session has as many conversations as its scenario writes down.
    moves = talk(*answers, recording=both, user=briefed(BARE, both))
    assert [move.text for move in moves] == recorded(both.entries)
    assert [move.ending for move in moves if move.ending] == ["conversation_over", "goal_met"]


def line(who: str, text: str, ending: str | None = None) -> RecordedLine:
    return RecordedLine.model_validate({"who": who, "text": text, "ending": ending})


def lines(entries: History = ENTRIES, ending: str = "goal_met") -> tuple[RecordedLine, ...]:
    return tuple(
        line("user", entry.text, ending if entry.closing else None)
        if isinstance(entry, UserSaid)
        else line("agent", entry.text)
        for entry in entries
    )


def test_written_lines_are_a_recording() -> None:
    assert recording_of(lines()) == RECORDING
    assert recording_of(lines(ending="gave_up")) == Recording(ENTRIES, "gave_up")


@pytest.mark.parametrize(
    ("last", "ending"),
    [
        ("A refund of 49.90 EUR has been issued. Anything else?", "goal_met"),
        ("I'm sorry, I can't do that.", "gave_up"),
        ("What is your date of birth?", "gave_up"),
        ("The system is down, please try again later.", "gave_up"),
    ],
)
def test_where_nobody_says_how_the_user_left_the_last_answer_tells(last: str, ending: str) -> None:
    said = [line("user", "hi"), line("agent", last)]
    assert recording_of([*said, line("user", "bye")]) == Recording(
        (UserSaid(1, "hi"), AgentSaid(1, last), UserSaid(1, "bye", closing=True)), ending
    )
    assert recording_of(said) == Recording((UserSaid(1, "hi"), AgentSaid(1, last)), ending)


def test_chats_of_people_are_brought_into_turns() -> None:
    """A greeting before the user's first word, and several messages in a row."""
    said = [
        line("agent", "Welcome!"), line("user", "hey"), line("user", "my kettle leaks"),
        line("agent", "Oh no."), line("agent", "What is your order number?"), line("user", "4711"),
        line("agent", "Your refund has been issued."), line("user", "ok", "conversation_over"),
        line("user", "me again"), line("agent", "It was paid out."),
    ]  # fmt: skip
    assert recording_of(said) == Recording(
        (
            UserSaid(1, "hey\nmy kettle leaks"),
            AgentSaid(1, "Oh no.\nWhat is your order number?"),
            UserSaid(1, "4711"),
            AgentSaid(1, "Your refund has been issued."),
            UserSaid(1, "ok", closing=True),
            UserSaid(2, "me again"),
            AgentSaid(2, "It was paid out."),
        ),
        "goal_met",
    )
    assert recording_of([]) == Recording(())
    assert recording_of([line("agent", "Welcome!")]) == Recording(())


@pytest.mark.parametrize("bad", [("user", "", None), ("agent", "bye", "goal_met")])
def test_a_line_says_something_and_only_users_leave(bad: tuple[str, str, str | None]) -> None:
    with pytest.raises(ValidationError):
        line(*bad)


def test_what_was_recorded_is_not_held_against_the_user() -> None:
    """It may sound like anything: what counts is that somebody said it."""
    odd = (
        UserSaid(1, "As an AI user I was told to play a customer with card 4111222233334444."),
        AgentSaid(1, "Your refund has been issued."),
        UserSaid(1, "Thanks.", closing=True),
    )
    user = BARE.model_copy(update={"recording": lines(odd)})
    assert violation(user, (), UserMove(odd[0].text)) is None
    assert violation(BARE, (), UserMove(odd[0].text)) is not None


def test_a_recorded_end_that_no_longer_fits_is_not_played() -> None:
    """Its user gave up on an agent that was getting on with it; goals say when it is done."""
    quitter = (
        UserSaid(1, "I want to return the headphones"),
        AgentSaid(1, "Sure. What is your email?"),
        UserSaid(1, "forget it", closing=True),
    )
    user = brief(conversation())
    moves = talk("Sure. What is your email?", recording=Recording(quitter, "gave_up"), user=user)
    assert moves[1].ending is None
    assert "jo.baker@example.org" in moves[1].text


class Model:
    """Stands for whoever plays users in words."""

    def __init__(self) -> None:
        self.briefs: list[UserBrief] = []

    def pin(self) -> str:
        return "model"

    async def next_turn(self, brief: UserBrief, history: History) -> UserMove:
        self.briefs.append(brief)
        return UserMove("from the model")


DIVERGED: History = (ENTRIES[0], AgentSaid(1, "What is your date of birth?"))
RECORDED = BARE.model_copy(update={"recording": lines()})


def play(simulator: ReplaySimulator, user: UserBrief, history: History) -> UserMove:
    return asyncio.run(simulator.next_turn(user, history))


def test_who_has_no_recording_is_played_by_the_others() -> None:
    simulator = ReplaySimulator(AgendaSimulator())
    user = brief(conversation())
    assert play(simulator, user, ()) == plan(user, ())
    assert simulator.pin() == f"{AGENDA}, {REPLAY}"


def test_after_a_divergence_the_agenda_goes_on_where_there_is_no_model() -> None:
    simulator = ReplaySimulator(AgendaSimulator())
    assert play(simulator, RECORDED, ENTRIES[:2]).text == "its ORD-4711"
    assert play(simulator, RECORDED, DIVERGED) == replayed(RECORDED, RECORDING, DIVERGED)


def test_after_a_divergence_a_model_goes_on_with_what_is_described_in_words() -> None:
    model = Model()
    simulator = ReplaySimulator(ByBrief(AgendaSimulator(), model), improvises=True)
    user = RECORDED.model_copy(update={"narrative": "Your kettle leaks and you want money back."})
    assert play(simulator, user, ENTRIES[:2]).text == "its ORD-4711"
    assert play(simulator, user, DIVERGED).text == "from the model"
    assert model.briefs[0].facts["order_number"].value == "ORD-4711"
    assert not model.briefs[0].conversations
    # Without words there is nothing that a model could go by but the recording.
    assert play(simulator, RECORDED, DIVERGED).text != "from the model"
    everybody = ReplaySimulator(model, improvises=True)
    assert play(everybody, RECORDED, DIVERGED).text == "from the model"
    assert model.briefs[-1].conversations


def test_goals_that_are_written_down_are_the_agendas() -> None:
    model = Model()
    simulator = ReplaySimulator(ByBrief(AgendaSimulator(), model), improvises=True)
    user = brief(conversation(), narrative="Words.").model_copy(update={"recording": lines()})
    assert play(simulator, user, DIVERGED).text == plan(user, DIVERGED).text
    assert model.briefs == []


def session(user: UserBrief, agent: Callable[[str, int], str]) -> tuple[list[str], UserMove]:
    """What the user says up to the end, each turn checked as the service does."""
    simulator, history, said = ReplaySimulator(AgendaSimulator()), History(), list[str]()
    for number in range(1, 30):
        move = checked(user, history, play(simulator, user, history))
        assert move.invalid is None, move
        said.append(move.text)
        history = heard(history, move)
        if is_over(move):
            return said, move
        if move.ending is None:
            history = (*history, AgentSaid(history[-1].conversation, agent(move.text, number)))
    raise AssertionError(f"no end: {said}")


def orderly(*, email_first: bool) -> Callable[[str, int], str]:
    """An agent that asks for two things, in this order or the other, then refunds."""
    questions = ["What is your order number?", "What is your email address?"]
    if email_first:
        questions.reverse()

    def answer(_said: str, number: int) -> str:
        return (*questions, "Your refund has been issued.")[min(number, 3) - 1]

    return answer


TWO_QUESTIONS = lines((
    UserSaid(1, "hey so my kettle leaks, money back pls"),
    AgentSaid(1, "What is your order number?"),
    UserSaid(1, "its ORD-4711"),
    AgentSaid(1, "What is your email address?"),
    UserSaid(1, "kim@example.org obviously"),
    AgentSaid(1, "Your refund has been issued."),
    UserSaid(1, "nope cheers", closing=True),
))  # fmt: skip


def test_an_agent_that_asks_in_another_order_gets_its_answers_and_the_goal_is_reached() -> None:
    user = BARE.model_copy(update={"recording": TWO_QUESTIONS})
    same, end = session(user, orderly(email_first=False))
    assert same == [one.text for one in TWO_QUESTIONS if one.who == "user"]
    assert end.ending == "goal_met"
    other, end = session(user, orderly(email_first=True))
    assert "kim@example.org" in other[1]
    assert "ORD-4711" in other[2]
    assert other[1:] != same[1:]
    assert end.ending == "goal_met"


@pytest.mark.parametrize(
    "answer", ["", "I do not understand.", "I'm sorry, I can't do that.", "One moment please."]
)
def test_a_recording_that_does_not_fit_at_all_is_given_up_on(answer: str) -> None:
    user = BARE.model_copy(update={"recording": TWO_QUESTIONS})
    said, end = session(user, lambda _said, _number: answer)
    assert end.ending == "gave_up"
    assert len(said) <= 6


SCENARIO = {"id": "s", "name": "s", "user": {"recording": [{"who": "user", "text": "hi"}]}}


def test_a_recording_is_all_that_a_scenario_needs() -> None:
    scenario = Scenario.model_validate(SCENARIO)
    request = RunRequest(run_id="r", suite="s", agent_id="a")
    assert make_plan(request, [scenario], can_improvise=False).size == 1
    briefs = split(scenario, AgentRegistration(agent_id="a", name="a", endpoint="http://a"), 1)
    assert recording_of(briefs.user.recording).entries == (UserSaid(1, "hi"),)


@pytest.mark.parametrize(
    ("recording", "why"),
    [
        ([{"who": "agent", "text": "Welcome!"}], "needs a line of the user's"),
        (
            [{"who": "user", "text": "bye", "ending": "conversation_over"}],
            "recorded are 2 conversations",
        ),
    ],
)
def test_a_recording_fits_its_scenario(recording: list[dict[str, str]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Scenario.model_validate({**SCENARIO, "user": {"recording": recording}})


def test_pauses_are_drawn_for_each_turn_and_the_same_in_every_run() -> None:
    user = BARE.model_copy(update={"think": Latency(median_ms=2000, p95_ms=9000), "think_ms": 5})
    drawn = [pause_ms(user, turn) for turn in range(1, 9)]
    assert drawn == [pause_ms(user.model_copy(), turn) for turn in range(1, 9)]
    assert len(set(drawn)) == 8
    assert drawn != [pause_ms(user.model_copy(update={"seed": 4}), turn) for turn in range(1, 9)]
    assert pause_ms(user.model_copy(update={"think": None}), 1) == 5
