"""The judge's fold over a session's log, and how it finds what to judge by."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.loader import parse_suite
from schemas.registry import Suite
from schemas.scores import SessionScored
from services.judge.briefs import Briefs, NoBrief
from services.judge.core import judge_session
from services.judge.sessions import NOTIFY, SCORE, JudgeCore, JudgedSession, notice_of
from services.runtime.bus.records import Incoming
from tests.support.trajectories import Session, brief

CODEC = Codec()


class Fold:
    """A core with one session and what it could not read."""

    def __init__(self) -> None:
        self.unreadable: list[str] = []
        self.core = JudgeCore(CODEC, lambda _, reason: self.unreadable.append(reason))
        self.events = Session().user().agent().end()
        self.state: JudgedSession = self.core.start(self.events[0])

    def played(self) -> Fold:
        for event in self.events[1:]:
            self.core.apply(self.state, event)
        return self

    def score(self, scored: SessionScored) -> None:
        self.read(CODEC.encode(scored))

    def read(self, value: bytes) -> None:
        self.core.foreign(self.state, Incoming("scores", 0, 0, "key", value, {}, 0))

    @property
    def wants(self) -> object:
        return self.core.wants(self.state)


def scored(passed: bool = True) -> SessionScored:
    result = asyncio.run(judge_session(Session().user().agent().end(), brief(), 1))
    return dataclasses.replace(result, passed=passed)


@pytest.mark.req("V09")
class TestFold:
    def test_a_session_is_scored_when_it_has_ended_and_not_before(self) -> None:
        fold = Fold()
        for event in fold.events[1:]:
            assert fold.wants is None
            fold.core.apply(fold.state, event)
        assert fold.wants == SCORE
        assert fold.state.events == fold.events

    def test_what_comes_after_the_end_does_not_count(self) -> None:
        fold = Fold().played()
        fold.core.apply(fold.state, fold.events[1])
        assert fold.state.events == fold.events

    def test_the_coordinator_is_told_once_the_score_is_in_the_log(self) -> None:
        fold = Fold().played()
        fold.score(scored())
        assert (fold.wants, fold.core.finished(fold.state)) == (NOTIFY, False)
        fold.state.notified = True
        assert (fold.wants, fold.core.finished(fold.state)) == (None, True)

    def test_of_two_scores_the_first_counts(self) -> None:
        fold = Fold().played()
        fold.score(scored(passed=False))
        fold.score(scored(passed=True))
        assert fold.state.scored is not None
        assert notice_of(fold.state.scored, 7).passed is False

    def test_a_score_that_cannot_be_read_is_reported_and_does_not_count(self) -> None:
        fold = Fold().played()
        fold.read(b"poison")
        fold.score(dataclasses.replace(scored(), session_id="another"))
        assert len(fold.unreadable) == 2
        assert fold.wants == SCORE

    def test_a_start_without_its_body_is_refused(self) -> None:
        fold = Fold()
        with pytest.raises(DecodeError):
            fold.core.start(dataclasses.replace(fold.events[0], session_started=None))

    def test_the_notice_says_what_the_score_says(self) -> None:
        notice = notice_of(scored(), 7)
        assert (notice.what, notice.reason, notice.valid, notice.passed, notice.at_ms) == (
            "scored", "goal_met", True, True, 7
        )  # fmt: skip


SUITE_YAML = "name: suite\nversion: '1'\nowner: me\n"
SCENARIO_YAML = """
scenario:
  name: A case
  expect: {says: [done]}
"""


def suite() -> Suite:
    return parse_suite(SUITE_YAML, {"case.yaml": SCENARIO_YAML})


@pytest.mark.req("V02", "V09")
class TestBriefs:
    def test_a_brief_comes_from_the_suite_of_that_hash(self) -> None:
        published = suite()
        briefs = Briefs({published.suite_hash: published}.get, wait_s=0)
        found = asyncio.run(briefs.get(published.suite_hash, "case"))
        assert (found.scenario_id, found.expect.says) == ("case", ("done",))

    def test_it_waits_for_a_suite_that_is_read_later(self) -> None:
        published = suite()
        known: dict[str, Suite] = {}

        async def late() -> str:
            briefs = Briefs(known.get, wait_s=10)
            waiting = [asyncio.create_task(briefs.get("wanted", "case")) for _ in range(3)]
            for key in ("other", "wanted"):
                await asyncio.sleep(0)
                known[key] = published
                briefs.published(key, published)
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                return {brief.scenario_id for brief in await asyncio.gather(*waiting)}.pop()

        assert asyncio.run(late()) == "case"

    def test_a_suite_that_never_comes_is_said_to_be_missing(self) -> None:
        briefs = Briefs({}.get, wait_s=0.01)
        with pytest.raises(NoBrief, match="suite wanted is not on the suites topic"):
            asyncio.run(briefs.get("wanted", "case"))

    def test_an_unknown_or_damaged_scenario_is_named(self) -> None:
        published = suite()
        damaged = dataclasses.replace(
            published.scenarios[0], document=json.dumps({"name": "x", "expcet": {}})
        )
        published = dataclasses.replace(published, scenarios=(damaged,))
        briefs = Briefs({"h": published}.get, wait_s=0)
        with pytest.raises(NoBrief, match="has no scenario other"):
            asyncio.run(briefs.get("h", "other"))
        with pytest.raises(NoBrief, match="scenario case cannot be read"):
            asyncio.run(briefs.get("h", "case"))
