"""`expect.trajectory`: a session's calls against a reference, as a part of task completion."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario
from schemas.scores import DimensionScore
from services.judge.core import score
from services.judge.matching import optimal
from services.judge.trajectory import read
from tests.support.trajectories import Session, brief

pytestmark = pytest.mark.req("P07", "V09")

FIND = {"tool": "find", "arguments": {"id": "7"}}
REFUND = {"tool": "refund", "arguments": {"id": "7"}}


def judged(session: Session, **reference: Any) -> DimensionScore:
    scores = score(read(session.end()), brief(expect={"trajectory": reference}))
    return next(one for one in scores if one.dimension == "task_completion")


def played() -> Session:
    session = Session().user().call("find", {"id": "7", "full": True}, {"found": 1})
    return session.call("refund", {"id": "7"}, {"ok": True}).agent("Done.")


@pytest.mark.parametrize(
    ("reference", "holds", "words", "cited"),
    [
        ({"mode": "strict", "calls": [FIND, REFUND]}, True, "", ()),
        ({"mode": "strict", "calls": [REFUND, FIND]}, False, "refund", ("t1",)),
        ({"mode": "unordered", "calls": [REFUND, FIND]}, True, "", ()),
        ({"mode": "strict", "calls": [{"together": [REFUND, FIND]}]}, True, "", ()),
        ({"mode": "superset", "calls": [REFUND]}, True, "", ()),
        ({"mode": "subset", "calls": [REFUND]}, False, "find", ("t1",)),
        ({"mode": "strict", "arguments": "exact", "calls": [FIND, REFUND]}, False, "full", ("t1",)),
        (
            {
                "mode": "strict",
                "arguments": "exact",
                "overrides": {"find": ["id"]},
                "calls": [FIND, REFUND],
            },
            True,
            "",
            (),
        ),
        (
            {"mode": "superset", "calls": [{"tool": "refund", "arguments": {"id": "8"}}]},
            False,
            '"8"',
            ("t2",),
        ),
    ],
)
def test_the_calls_are_matched_and_the_difference_is_told(
    reference: dict[str, Any], holds: bool, words: str, cited: tuple[str, ...]
) -> None:
    result = judged(played(), **reference)
    assert result.passed is holds, result.reason
    if not holds:
        assert words in result.reason
        assert set(cited) <= set(result.citations)


def test_attempts_that_an_injected_failure_took_away_need_not_count() -> None:
    session = Session().user().call("find", {"id": "7"}, injected="outage", status=503)
    session = session.call("find", {"id": "7"}, {"found": 1}).agent("Found.")
    reference = {"mode": "strict", "calls": [FIND]}
    assert judged(session, **reference).passed is False
    session = Session().user().call("find", {"id": "7"}, injected="outage", status=503)
    session = session.call("find", {"id": "7"}, {"found": 1}).agent("Found.")
    assert judged(session, **reference, attempts="succeeded").passed is True


def test_too_many_calls_are_unscored_and_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal, "MAX_COMPARISONS", 0)
    result = judged(played(), mode="superset", calls=[FIND, REFUND])
    assert (result.status, result.passed) == ("unscored", None)
    assert "cannot be matched" in result.reason


def test_mistakes_in_a_reference_are_told_at_their_places() -> None:
    text = """\
scenario:
  name: n
  expect:
    trajectory:
      mode: sometimes
      calls:
        - {tool: find, argument: {}}
        - {together: [{tool: a}]}
"""
    with pytest.raises(InvalidDocument) as caught:
        parse_scenario(text, "a.yaml")
    found = "\n".join(str(problem) for problem in caught.value.problems)
    for place in ("a.yaml:5", "a.yaml:7", "a.yaml:8"):
        assert place in found, found
