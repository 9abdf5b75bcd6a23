"""10,000 calls of every kind of failure: its rate, its record, and what the agent was answered."""

from __future__ import annotations

import pytest

from schemas.injection_plan import as_struck, due
from tests.bench.injection import ANSWER, CALLS, RATE, SESSIONS, Measured, measured
from tests.support.binomial import bounds, clopper_pearson
from tests.support.injected import KINDS, brief_with

ALPHA = 1e-4


@pytest.fixture(scope="module", params=list(KINDS))
def one(request: pytest.FixtureRequest) -> Measured:
    return measured(request.param)


@pytest.mark.req("V05")
def test_the_observed_rate_is_within_exact_bounds(one: Measured) -> None:
    assert one.calls == SESSIONS * CALLS == 10_000
    least, most = bounds(one.calls, RATE, ALPHA)
    assert least <= one.struck <= most
    low, high = clopper_pearson(one.calls, one.struck, ALPHA)
    assert low < RATE < high


@pytest.mark.req("V06")
def test_what_was_planned_is_what_is_recorded_and_what_was_answered(one: Measured) -> None:
    answered = 0
    for session in one.sessions:
        failure = session.brief.failures[0]
        for number, called in enumerate(session.played.trajectory.calls, start=1):
            planned = due(failure, session.brief.seed, 1.0, number)
            assert planned == (called.body.injection is not None)
            reply = session.played.replies[number - 1]
            assert (reply["source"] == "injected") == planned
            struck = as_struck(failure, session.brief.seed, number)
            late = called.body.latency_ms > 1
            assert late == (planned and struck.delay_ms > 0)
            if one.kind == "slow":
                assert reply["response"] == ANSWER
            else:
                assert (reply["response"] != ANSWER) == planned
            answered += planned
        assert session.invalid == ""
    assert answered == one.struck > 0


@pytest.mark.req("V05")
def test_every_text_of_a_corpus_is_drawn() -> None:
    one = measured("content")
    texts = set(one.sessions[0].brief.failures[0].contents)
    seen = {
        text
        for session in one.sessions
        for reply in session.played.replies
        for text in texts
        if text in str(reply["response"])
    }
    assert seen == texts


@pytest.mark.req("V05")
def test_delays_are_distributed_as_written() -> None:
    failure = brief_with([{"id": "f", "kind": "slow", **KINDS["slow"]}]).failures[0]
    delays = [as_struck(failure, 1, number).delay_ms for number in range(1, 10_001)]
    for bound, share in ((300, 0.5), (1200, 0.95)):
        least, most = bounds(len(delays), share, ALPHA)
        assert least <= sum(delay <= bound for delay in delays) <= most
