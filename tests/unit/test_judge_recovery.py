"""Recovery from injected failures, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.scores import DimensionScore
from services.judge.core import score
from services.judge.evaluators.failure_recovery import INFORMING, claims_success
from services.judge.trajectory import read
from tests.support.trajectories import FAILING, Session, brief

pytestmark = pytest.mark.req("V09")

CHANGE = [{"op": "replace", "path": "/n", "value": 1}]
SORRY = "I'm sorry, our refund system is temporarily unavailable. Please try again later."


def recovery(session: Session, by: str = "either", says: tuple[str, ...] = ()) -> DimensionScore:
    fields: dict[str, Any] = {"recovery": {"by": by, "says": says}}
    scores = score(read(session.end()), brief(**fields))
    return next(one for one in scores if one.dimension == "failure_recovery")


def struck(kind: str = "outage") -> Session:
    return Session(world={"n": 0}).user().call("refund", {"id": "7"}, injected=kind)


@pytest.mark.parametrize("kind", FAILING)
def test_a_later_success_is_recovery(kind: str) -> None:
    result = recovery(struck(kind).call("refund", {"id": "7"}).agent())
    assert (result.passed, result.value, result.citations) == (True, 1.0, ("t1", "t2"))


@pytest.mark.parametrize("kind", FAILING)
def test_giving_up_silently_is_not(kind: str) -> None:
    result = recovery(struck(kind).agent("Anything else?"))
    assert (result.passed, result.value, result.citations) == (False, 0.0, ("t1",))
    assert f"after the {kind} of refund (t1)" in result.reason


@pytest.mark.parametrize("kind", ["content", "slow", "partial"])
def test_what_leaves_an_answer_needs_no_recovery(kind: str) -> None:
    assert recovery(struck(kind).agent("ok")).status == "not_applicable"


def test_not_applicable_without_injection() -> None:
    assert recovery(Session().user().agent()).status == "not_applicable"


@pytest.mark.parametrize("tool", ["cancel", "refund"])
def test_another_call_is_no_retry(tool: str) -> None:
    assert recovery(struck().call(tool, {"id": "8"}).agent()).passed is False


def test_an_earlier_success_is_no_retry() -> None:
    session = Session(world={}).user().call("get").call("get", injected="outage").agent()
    assert recovery(session).passed is False


def test_after_a_schema_mismatch_other_arguments_are_a_retry() -> None:
    session = struck("schema_mismatch").call("refund", {"id": "7", "reason": "late"}).agent()
    assert recovery(session).passed is True


def test_a_retry_that_fails_again_needs_one_that_works() -> None:
    session = struck().call("refund", {"id": "7"}, injected="outage")
    assert recovery(session.call("refund", {"id": "7"}).agent()).passed is True
    session = struck().call("refund", {"id": "7"}, {"error": "x"}).agent("Hm.")
    assert recovery(session).passed is False


def test_the_value_is_the_fraction_recovered_from() -> None:
    session = struck().call("refund", {"id": "7"}).agent()
    session.user().call("mail", injected="timeout").agent("Anything else?")
    result = recovery(session)
    assert (result.passed, result.value, result.citations) == (False, 0.5, ("t3",))


@pytest.mark.parametrize(
    "text",
    [
        SORRY,
        "The order lookup service is down at the moment.",
        "I could not reach the payment provider right now.",
        "Our system seems to be offline. Could you check back shortly?",
        "The request timed out on our side.",
        "We are experiencing a technical issue, so I was not able to refund it.",
        "I am unable to reach the warehouse.",
        "Please try again in a few minutes, the tool isn't responding.",
    ],
)
def test_telling_the_user_is_recovery(text: str) -> None:
    assert recovery(struck().agent(text)).passed is True


@pytest.mark.parametrize(
    "text",
    [
        "Your refund has been issued.",
        "There was a technical issue, but your refund has been processed.",
        "Is there anything else?",
        "Please tell me your order number.",
        "You can try our other products.",
    ],
)
def test_claiming_success_or_changing_the_subject_is_not(text: str) -> None:
    assert recovery(struck().agent(text)).passed is False


def test_a_false_claim_is_named_and_cited() -> None:
    result = recovery(struck().agent("Good news! Your refund has been issued."))
    assert "a1 claims success" in result.reason
    assert result.citations == ("t1", "a1")


def test_a_claim_about_what_did_work_does_not_spoil_the_telling() -> None:
    session = struck().call("cancel", changes=CHANGE)
    text = f"Your order has been cancelled. {SORRY}"
    assert recovery(session.agent(text)).passed is True


def test_a_failed_answer_tells_nobody() -> None:
    assert recovery(struck().agent(SORRY, outcome="timeout")).passed is False


def test_telling_has_to_come_after_the_failure() -> None:
    session = Session(world={}).user().agent(SORRY).user().call("get", injected="outage")
    assert recovery(session.agent("Hm.")).passed is False


@pytest.mark.parametrize(
    ("by", "retried", "told", "passed"),
    [
        ("retry", True, False, True),
        ("retry", False, True, False),
        ("inform", False, True, True),
        ("inform", True, False, False),
        ("either", True, False, True),
        ("either", False, True, True),
        ("either", False, False, False),
    ],
)
def test_the_scenario_says_which_way_counts(
    by: str, retried: bool, told: bool, passed: bool
) -> None:
    session = struck()
    if retried:
        session.call("refund", {"id": "7"})
    assert recovery(session.agent(SORRY if told else "Hm."), by).passed is passed


def test_the_scenarios_own_words_replace_the_common_ones() -> None:
    assert recovery(struck().agent("Code RED-1."), says=("red-\\d",)).passed is True
    assert recovery(struck().agent(SORRY), says=("red-\\d",)).passed is False


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("Your refund has been issued.", True),
        ("I've cancelled your order.", True),
        ("It went through.", True),
        ("You're all set!", True),
        ("Your refund has not been issued.", False),
        ("Once it has been processed, you get a mail.", False),
        ("I could not confirm that it went through.", False),
        ("I will let you know when it has been sent.", False),
    ],
)
def test_what_claims_success(text: str, claims: bool) -> None:
    assert claims_success(text) is claims


def test_ordinary_talk_does_not_sound_like_a_failure() -> None:
    for text in (
        "Your order is on its way and arrives tomorrow.",
        "Could you give me your order number?",
        "I cannot refund this order, since it is older than 30 days.",
        "That item is not available in blue.",
    ):
        assert not any(pattern.found_in(text) for pattern in INFORMING), text
