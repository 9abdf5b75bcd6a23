"""Two thousand users of all personas against agents of all kinds, of use and of none."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.bench import users
from tests.bench.users import DEMO, USELESS, Outcome, against_useless, battery, distinct, summary
from tests.support.users import STYLES

SESSIONS = 2000


@cache
def played() -> tuple[Outcome, ...]:
    return tuple(battery(SESSIONS))


@pytest.mark.req("V02")
def test_nothing_is_said_that_must_not_be_and_every_session_ends_for_a_stated_reason() -> None:
    report = summary(played())
    assert report["sessions"] == SESSIONS
    assert report["wrong"] == dict.fromkeys(report["wrong"], 0)
    assert set(report["agents"]) == {DEMO, *USELESS}
    assert set(report["agents"]) >= {DEMO, "silent", "looping", "over-asking", "hostile"}
    assert all(report["personas"][style] > SESSIONS // 10 for style in STYLES)
    for agent, figures in report["agents"].items():
        assert set(figures["personas"]) == set(STYLES), f"{agent} did not meet every persona"
        assert set(figures["endings"]) <= {"goal_met", "gave_up"}


@pytest.mark.req("V02")
def test_useless_agents_are_given_up_on_and_the_demo_agent_mostly_is_not() -> None:
    endings: dict[str, Counter[str]] = {}
    for one in played():
        endings.setdefault(one.agent, Counter())[one.ending] += 1
    assert all(set(endings[agent]) == {"gave_up"} for agent in USELESS)
    assert endings[DEMO]["goal_met"] > 0.8 * endings[DEMO].total()


@pytest.mark.req("V04")
def test_trials_of_one_scenario_differ_in_their_words() -> None:
    words = summary(played())["wording"]
    assert words["scenarios"] >= 30
    assert words["distinct_openings"] > 0.95
    assert words["distinct_sessions"] > 0.95
    assert words["distinct_1"] > 0.25
    assert words["distinct_2"] > 0.45
    print("wording over trials:", words)
    for style, figures in words["by_persona"].items():
        # Over every scenario at once, so lower: distinct-n falls as texts grow.
        assert figures["distinct_1"] > 0.05, style
        assert figures["distinct_2"] > 0.15, style


@pytest.mark.req("V04")
def test_a_session_is_the_same_every_time() -> None:
    for agent in USELESS:
        assert against_useless(agent, 7) == against_useless(agent, 7)
    first, again = (asyncio.run(users.against_demo(20)) for _ in range(2))
    assert first == again


@pytest.mark.req("V02")
@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("My card is 4111222233334444.", "unknown facts told"),
        ("Write to me at made.up@else.example.", "unknown facts told"),
        ("My email is jo.baker@example.org.", "facts told unasked"),
        ("How can I help you today?", "role inversions"),
    ],
)
def test_the_battery_counts_what_a_broken_user_says(
    said: str, count: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rules are not the simulator's: they find it with the validity checks switched off."""
    sound = users.plan
    assert summary([against_useless("silent", 2)])["wrong"][count] == 0
    monkeypatch.setattr(
        users,
        "plan",
        lambda user, history: (
            sound(user, history) if not history else replace(sound(user, history), text=said)
        ),
    )
    monkeypatch.setattr(users, "checked", lambda _user, _history, move: move)
    assert summary([against_useless("silent", 2)])["wrong"][count] > 0


@pytest.mark.req("V02")
def test_the_battery_sees_a_user_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = users.plan
    monkeypatch.setattr(
        users, "plan",
        lambda user, history: replace(sound(user, ()), text=f"again {len(history) * 'a'}")
        if history else sound(user, history),
    )  # fmt: skip
    monkeypatch.setattr(users, "checked", lambda _user, _history, move: move)
    assert summary([against_useless("silent", 2)])["wrong"]["no stated end"] == 1


@pytest.mark.req("V04")
def test_distinct_n() -> None:
    assert distinct(["a b a b"], 1) == 0.5
    assert distinct(["a b a b"], 2) == pytest.approx(2 / 3, abs=1e-3)
    assert distinct(["a"], 2) == 0.0
