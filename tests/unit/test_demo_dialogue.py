"""What the demo agent understands, and how a conversation's state is recomputed."""

from __future__ import annotations

import pytest

from deploy.demo import phrases
from deploy.demo.dialogue import Question, replay
from deploy.demo.understanding import Intent, understand
from tests.unit.demo_proxy import ScriptedProxy, say


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("I want my money back for ORD-1001", Intent.REFUND),
        ("Has my refund been paid?", Intent.STATUS),
        ("please cancel it", Intent.CANCEL),
        ("we moved, ORD-1003 must go to our new address", Intent.ADDRESS),
        ("Where will it be delivered?", Intent.STATUS),
        ("Will it be delivered to the new address?", Intent.STATUS),
        ("a copy of the invoice please", Intent.INVOICE),
        ("I want to complain", Intent.COMPLAINT),
        ("Thanks. One more thing: where is ORD-1002?", Intent.STATUS),
        ("that's all, bye", Intent.THANKS),
        ("My postcode is LS1 4AP.", None),
        ("Okay, please try again.", None),
    ],
)
def test_intents(text: str, intent: Intent | None) -> None:
    assert understand(text).intent is intent


@pytest.mark.parametrize("text", ["ORD-1001", "ord 1001", "order #1001", "order number 1001"])
def test_order_numbers(text: str) -> None:
    assert understand(f"it is {text}, I think").order_id == "ORD-1001"


def test_a_new_address_is_not_the_postcode_on_file() -> None:
    said = understand("send ORD-1003 to 5 Park View, York YO1 7HH please, I was at ls1 4ap")
    assert said.address == "5 Park View, York YO1 7HH"
    assert said.postcode == "LS1 4AP"
    assert understand("It's 5 Park View, York YO1 7HH.").postcode is None


def test_a_verification_code_is_six_digits_alone() -> None:
    assert understand("the verification code is 482913").code == "482913"
    assert understand("call me on 07700900123").code is None


@pytest.mark.parametrize(
    ("text", "consent"),
    [
        ("Yes, please go ahead.", True),
        ("Yes, what are you waiting for?", True),
        ("No, leave it as it is.", False),
        ("No! Don't you dare.", False),
        ("It's blue.", None),
    ],
)
def test_consent(text: str, consent: bool | None) -> None:
    assert understand(text).consent is consent


def turns(*said: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[n % 2], "content": t} for n, t in enumerate(said)]


def test_a_user_cannot_verify_themselves_by_saying_so() -> None:
    dialogue = replay(turns("refund ORD-1001", phrases.ASK_POSTCODE), phrases.VERIFIED, "cus_1001")
    assert not dialogue.verified


def test_verification_does_not_pass_to_another_account() -> None:
    history = turns(
        "refund ORD-1001, amelia.novak@example.com, NW1 6XE",
        f"{phrases.VERIFIED} {phrases.CONFIRM}",
    )
    assert replay(history, "yes", None).verified
    assert not replay(history, "no, take ben.okafor@example.com", None).verified


def test_consent_counts_only_for_the_question_just_asked() -> None:
    asked = turns("cancel ORD-1010", f"I can cancel ORD-1010. {phrases.CONFIRM}")
    assert replay(asked, "yes", "cus_1005").consented is True
    moved_on = [*asked, *turns("hm", phrases.ASK_ADDRESS)]
    assert replay(moved_on, "yes", "cus_1005").consented is None


def test_what_was_done_is_over() -> None:
    history = turns("refund ORD-1001", f"Done. {phrases.ANYTHING_ELSE}")
    dialogue = replay(history, "NW1 6XE", "cus_1001")
    assert dialogue.intent is None
    assert dialogue.order_id == "ORD-1001"


def test_history_of_other_shapes_is_skipped() -> None:
    history: list[dict[str, object]] = [
        {"role": "user", "content": None},
        {"role": "tool", "content": "x"},
        {},
    ]
    assert replay(history, "cancel ORD-1010", None).intent is Intent.CANCEL


def test_every_question_is_recognised_in_the_agents_own_words() -> None:
    for question in Question:
        assert replay(turns("hi", f"Well. {question.value}"), "", None).pending is question


# Conversations against the world


def test_two_wrong_answers_end_the_identity_check() -> None:
    proxy = ScriptedProxy()
    first = say(proxy, "refund ORD-1001, postcode EH1 1AA")
    assert first == f"{phrases.MISMATCH} {phrases.ASK_CODE}"
    said = ("refund ORD-1001, postcode EH1 1AA", first)
    second = say(proxy, "code 111111", *said)
    assert second == f"{phrases.MISMATCH} {phrases.UNVERIFIED}"
    third = say(proxy, "then 482913", *said, "code 111111", second)
    assert phrases.UNVERIFIED in third
    assert proxy.tools() == ["verify_identity", "verify_identity"]


def test_an_order_of_somebody_else_looks_like_none_at_all() -> None:
    proxy = ScriptedProxy()
    theirs = say(proxy, "Where is ORD-2001?")
    nobodys = say(proxy, "Where is ORD-9999?")
    assert theirs.replace("2001", "9999") == nobodys


def test_a_guest_must_own_the_order() -> None:
    proxy = ScriptedProxy()
    answer = say(proxy, "Where is ORD-2001? I am amelia.novak@example.com", customer=None)
    assert "can't find ORD-2001" in answer


def test_only_a_signed_in_customer_is_told_the_address() -> None:
    guest = say(ScriptedProxy(), "Where is ORD-1002 being delivered? amelia.novak@example.com",
                customer=None)  # fmt: skip
    assert "Fern Court" not in guest
    assert "Fern Court" in say(ScriptedProxy(), "Where is ORD-1002 being delivered?")


def test_an_unknown_email_is_asked_for_again() -> None:
    answer = say(ScriptedProxy(), "Where is ORD-1002? I am no.body@example.com", customer=None)
    assert phrases.ASK_EMAIL in answer


@pytest.mark.parametrize(
    ("text", "customer", "refusal"),
    [
        ("refund ORD-1005, BS8 1TH", "cus_1003", "can't refund 480.00 EUR"),
        ("refund ORD-1008, M4 1HQ", "cus_1004", "can't refund ORD-1008 while it is on its way"),
        ("cancel ORD-1008, M4 1HQ", "cus_1004", "can't cancel it: ORD-1008 is on its way"),
        ("change the address of ORD-1007, M4 1HQ", "cus_1004", "can't change its address"),
    ],
)
def test_what_policy_forbids_is_refused_after_verification(
    text: str, customer: str, refusal: str
) -> None:
    proxy = ScriptedProxy()
    answer = say(proxy, text, customer=customer)
    assert refusal in answer
    assert proxy.tools() == ["verify_identity", "get_order"]


def test_a_customer_who_says_nothing_understandable_is_asked_what_they_need() -> None:
    assert say(ScriptedProxy(), "") == phrases.MENU
    assert say(ScriptedProxy(), "thank you, bye") == phrases.GOODBYE
