"""What a model is asked about a session, in which order, and which answers count."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from services.judge.assertions.rating import Unusable
from services.judge.questions import answers, criteria_sheet, presentations, quality_sheet
from services.judge.trajectory import read
from services.judge.transcript import Transcript, render
from services.runtime.judging import JudgeModelSettings
from tests.support.trajectories import Session

pytestmark = pytest.mark.req("S03")

STEPS = ("u1", "a1")
TRANSCRIPT = Transcript("<<<b\n{}\nb>>>", "b", STEPS)


def answer(**changes: Any) -> dict[str, Any]:
    return {"rationale": "It shows.", "verdict": "pass", "citations": ["a1"], **changes}


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**31))
def test_orders_are_seeded_and_every_second_sample_sees_the_reverse(
    criteria: int, samples: int, seed: int
) -> None:
    shown = presentations(criteria, samples, seed)
    assert shown == presentations(criteria, samples, seed)
    assert len(shown) == samples
    assert all(sorted(one.order) == list(range(criteria)) for one in shown)
    for first, second in zip(shown[::2], shown[1::2], strict=False):
        assert second.order == first.order[::-1]
        assert (first.fail_first, second.fail_first) == (False, True)


def test_other_seeds_and_other_samples_show_other_orders() -> None:
    orders = {presentations(8, 1, seed)[0].order for seed in range(20)}
    assert len(orders) > 15
    first, _, third = presentations(8, 3, 1)
    assert first.order != third.order


def test_both_verdicts_are_named_in_both_orders() -> None:
    plain = criteria_sheet(["It is polite."], False, "", TRANSCRIPT)
    swapped = criteria_sheet(["It is polite."], True, "", TRANSCRIPT)
    assert plain.system.index('"pass" when') < plain.system.index('"fail" when')
    assert swapped.system.index('"fail" when') < swapped.system.index('"pass" when')
    assert verdicts(plain.schema) == ["pass", "fail"]
    assert verdicts(swapped.schema) == ["fail", "pass"]


def verdicts(schema: dict[str, Any]) -> list[str]:
    found: list[str] = schema["json_schema"]["schema"]["properties"]["verdict"]["enum"]
    return found


def test_a_batch_shows_the_criteria_in_the_given_order_and_answers_by_number() -> None:
    sheet = criteria_sheet(["Second.", "First."], False, "A refund.", TRANSCRIPT)
    assert sheet.user.index("Criterion 1: Second.") < sheet.user.index("Criterion 2: First.")
    assert "The user's aim: A refund." in sheet.user
    assert sheet.user.endswith(TRANSCRIPT.text)
    assert sheet.schema["json_schema"]["schema"]["required"] == ["1", "2"]


def test_the_schema_of_an_answer_names_the_steps_that_can_be_cited() -> None:
    def cited(steps: tuple[str, ...]) -> dict[str, Any]:
        sheet = quality_sheet({"tone": "polite"}, "", Transcript("", "b", steps))
        scale = sheet.schema["json_schema"]["schema"]["properties"]["tone"]
        items: dict[str, Any] = scale["properties"]["citations"]["items"]
        return items

    assert cited(STEPS) == {"type": "string", "enum": ["u1", "a1"]}
    assert cited(tuple(f"t{n}" for n in range(101))) == {"type": "string"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (answer(verdict="maybe"), "verdict"),
        (answer(verdict=True), "verdict"),
        (answer(rationale=""), "rationale"),
        (answer(citations=[]), "citations"),
        (answer(citations=["a1", "a2"]), "a2"),
        (answer(citations="a1"), "citations"),
        (answer(confidence=1), "confidence"),
        ({"verdict": "pass"}, "rationale"),
        (None, "valid dictionary"),
    ],
)
def test_one_unusable_answer_of_a_batch_leaves_the_others(given: Any, problem: str) -> None:
    sheet = criteria_sheet(["A.", "B."], False, "", TRANSCRIPT)
    usable, wrong = answers(sheet, json.dumps({"1": given, "2": answer()}), STEPS)
    assert list(usable) == ["2"]
    assert list(wrong) == ["1"]
    assert problem in wrong["1"]


def test_a_missing_verdict_of_a_batch_is_named() -> None:
    sheet = criteria_sheet(["A.", "B."], False, "", TRANSCRIPT)
    assert answers(sheet, json.dumps({"2": answer()}), STEPS)[1] == {"1": "missing"}


@pytest.mark.parametrize(
    "text",
    ["", "pass", "[]", "null", '{"verdict": "pass"', '{"verdict": 1, "verdict": 2}', "\ud800"],
)
def test_what_is_not_one_json_object_answers_nothing(text: str) -> None:
    with pytest.raises(Unusable, match="not one JSON object"):
        answers(criteria_sheet(["A."], False, "", TRANSCRIPT), text, STEPS)


@pytest.mark.req("S04")
@pytest.mark.parametrize("rating", [0, 6, 3.5, "4", True, None])
def test_a_rating_off_the_scale_is_unusable(rating: Any) -> None:
    sheet = quality_sheet({"tone": "polite"}, "", TRANSCRIPT)
    given = {"rationale": "x", "rating": rating, "citations": ["a1"]}
    assert list(answers(sheet, json.dumps({"tone": given}), STEPS)[1]) == ["tone"]


@given(st.text(max_size=400))
def test_no_text_of_a_trajectory_ends_the_record_starts_a_line_or_hides(text: str) -> None:
    session = Session().user(text).trace("plan", {"note": text})
    session.call("look", {"q": text}, text).agent(text)
    shown = render(read(session.end()))
    lines = shown.text.split("\n")
    assert shown.text.count(shown.boundary) == 2
    assert (lines[0], lines[-1]) == (f"<<<{shown.boundary}", f"{shown.boundary}>>>")
    # Nothing that any reader takes for a line's end is left, and every line is one whole object.
    assert shown.text.splitlines() == lines
    assert tuple(json.loads(line)["step"] for line in lines[1:-1]) == shown.steps
    assert shown.steps == ("u1", "x1", "t1", "a1", "end")
    assert json.loads(lines[4])["agent"] == text
    assert not re.search("[\u200b\u202a-\u202e\u2066-\u2069\U000e0000-\U000e01ef]", shown.text)


def test_the_boundary_is_another_one_for_every_session_and_every_text() -> None:
    def boundary(session_id: str, text: str) -> str:
        return render(read(Session(session_id=session_id).user(text).end())).boundary

    assert len({boundary("a", "x"), boundary("b", "x"), boundary("a", "y")}) == 3
    assert boundary("a", "x") == boundary("a", "x")


@pytest.mark.req("V10")
def test_the_pin_tells_all_that_scores_depend_on() -> None:
    def pin(**settings: Any) -> str:
        return JudgeModelSettings(judge_model="m", **settings).judge_pin()

    pins = [
        pin(),
        pin(judge_model_temperature=0.5),
        pin(judge_samples=3),
        pin(judge_samples=3, judge_agreement=1),
        pin(judge_batch=True),
        pin(judge_quality="tone"),
        pin(judge_quality=""),
    ]
    assert len(set(pins)) == len(pins)
    assert pin(judge_agreement=0.9) == pin()  # of one sample there is no share
    assert JudgeModelSettings(judge_samples=3).judge_pin() == JudgeModelSettings().judge_pin()


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("judge_samples", 4, "take 3 or 5"),
        ("judge_samples", 0, "greater than or equal to 1"),
        ("judge_agreement", 0.5, "greater than 0.5"),
        ("judge_quality", "tone,charm", "unknown charm"),
    ],
)
def test_settings_that_cannot_decide_are_refused(setting: str, value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        JudgeModelSettings(**{setting: value})
