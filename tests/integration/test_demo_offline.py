"""The demo's promise, without a broker: the good build passes everything, the regressed one fails
for its three regressions and for nothing else."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from functools import cache

import pytest

from schemas.scenario import Scenario
from schemas.scores import Dimension
from schemas.trajectory import TrajectoryEvent
from tests.integration.offline import Offline, Played, demo_suite

SEEDS = range(5)
SUITE = demo_suite()

REFUNDS_TWICE = {
    "happy-forgotten-postcode", "happy-refund-by-email", "happy-refund-signed-in", "load-refunds",
    "long-asked-twice", "long-refund-until-paid", "long-wait-then-refund",
}  # fmt: skip
GIVES_UP = {
    "failure-address-schema-mismatch", "failure-cancellation-rate-limit",
    "failure-malformed-lookup", "failure-order-lookup-outage", "failure-partial-order",
    "failure-refund-cut-off", "failure-refund-timeout",
}  # fmt: skip
SKIPS_VERIFICATION = {
    "adversarial-address-hijack", "adversarial-authority-claim", "adversarial-skip-verification",
}  # fmt: skip


@cache
def played(build: str) -> tuple[Played, ...]:
    async def run() -> tuple[Played, ...]:
        offline = Offline(SUITE, build)
        return tuple([one for seed in SEEDS for one in await offline.run(seed)])

    return asyncio.run(run())


@pytest.mark.req("V01", "V05", "V06", "V14")
def test_the_good_build_passes_every_scenario_with_every_seed() -> None:
    bad = [one.transcript() for one in played("good") if one.scored.passed is not True]
    assert not bad, "\n".join(bad[:3])
    assert {one.scenario.id for one in played("good")} == {
        entry.scenario_id for entry in SUITE.scenarios
    }


@pytest.mark.req("V09", "V11")
def test_the_regressed_build_fails_for_its_three_regressions_and_nothing_else() -> None:
    failed: dict[str, set[str]] = defaultdict(set)
    for one in played("regressed"):
        assert one.scored.valid, one.transcript()
        if one.scored.passed is False:
            failed[one.scenario.id] |= set(one.failed())
    assert set(failed) == REFUNDS_TWICE | GIVES_UP | SKIPS_VERIFICATION
    for name in REFUNDS_TWICE:
        assert failed[name] == {Dimension.POLICY, Dimension.TOOL_USE, Dimension.TASK_COMPLETION}
    for name in SKIPS_VERIFICATION:
        assert {Dimension.SAFETY, Dimension.TASK_COMPLETION} <= failed[name]
    for name in GIVES_UP:
        assert Dimension.TASK_COMPLETION in failed[name]
        assert Dimension.SAFETY not in failed[name]
    assert sum(Dimension.RECOVERY in failed[name] for name in GIVES_UP) >= 5


@pytest.mark.req("V11")
def test_a_regression_shows_with_every_seed() -> None:
    for name in REFUNDS_TWICE | GIVES_UP | SKIPS_VERIFICATION:
        trials = [one for one in played("regressed") if one.scenario.id == name]
        assert all(one.scored.passed is False for one in trials), name


@pytest.mark.req("V06")
def test_every_failure_that_was_asked_for_was_injected() -> None:
    for one in played("good"):
        end = one.events[-1].session_ended
        assert end is not None
        asked = {failure.id for failure in one.scenario.failures}
        assert set(end.injected) == asked


@pytest.mark.req("V04")
def test_same_seed_same_session_and_other_seeds_other_words() -> None:
    async def run(seed: int) -> list[tuple[TrajectoryEvent, ...]]:
        names = ("happy-refund-by-email", "long-address-then-delivery")
        return [one.events for one in await Offline(SUITE, "good").run(seed, names, trials=3)]

    first, again = asyncio.run(run(7)), asyncio.run(run(7))
    assert first == again
    openings = {
        event.user_turn.text for events in first for event in events[1:2] if event.user_turn
    }
    assert len(openings) > 3


@pytest.mark.req("R12")
def test_turns_that_are_posted_twice_change_nothing() -> None:
    """After a crash the dispatcher posts a turn again; the agent must repeat itself exactly."""

    async def run(repost: bool) -> list[list[object]]:
        offline = Offline(SUITE, "good", repost=repost)
        sessions = await offline.run(3)
        return [[_without_posting(event) for event in one.events] for one in sessions]

    assert asyncio.run(run(False)) == asyncio.run(run(True))


def _without_posting(event: TrajectoryEvent) -> object:
    if event.tool_called:
        call = event.tool_called
        return (event.event_id, call.tool, call.arguments, call.response, call.idempotency_key)
    if event.agent_turn:
        messages = json.loads(event.agent_turn.messages or "[]")
        return (event.event_id, event.agent_turn.final_response, messages)
    return event


@pytest.mark.req("V14")
def test_memory_between_conversations_is_in_the_tools() -> None:
    for one in played("good"):
        if one.scenario.id == "long-refund-until-paid":
            later = [e.tool_called.tool for e in one.events
                     if e.tool_called and e.conversation > 1]  # fmt: skip
            assert "list_case_notes" in later
            texts = [e.user_turn.text for e in one.events if e.user_turn and e.conversation > 1]
            assert not any("ORD-" in text for text in texts)


@pytest.mark.req("V09")
def test_budgets_leave_room_but_not_much() -> None:
    """A budget that nothing could exceed would gate nothing."""
    used: dict[str, int] = defaultdict(int)
    scenarios: dict[str, Scenario] = {}
    for one in played("good"):
        scenarios[one.scenario.id] = one.scenario
        end = one.events[-1].session_ended
        assert end is not None
        used[one.scenario.id] = max(used[one.scenario.id], end.turns)
    for name, scenario in scenarios.items():
        if scenario.budgets.turns is not None:
            assert scenario.budgets.turns <= used[name] + 3, name
