"""Airline, telecom and mock: tools of agent and user on one world, and tau2's reward."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from services.runtime.tau2.domains import Domain, domain
from services.runtime.tau2.package import tau2
from services.tool_proxy.session import ProxyCore
from services.tool_proxy.world import load_worlds
from tests.support.tau2_sessions import (
    history_of,
    our_score,
    play_both,
    pristine_vpn,
    require_tau2,
    scenario_of,
    simulation,
    start_event,
    their_reward,
    without_last_write,
)
from tests.support.tool_proxy import Bench, MemoryLog, answer_of

WAYS = ("gold", "gold in silence", "without last write", "nothing")


@pytest.fixture(autouse=True)
def _lane() -> None:
    require_tau2()


@contextmanager
def bench_of(name: str) -> Iterator[Bench]:
    worlds = load_worlds([f"services.tool_proxy.foreign.tau2:{name}"])
    bench = Bench(log=MemoryLog(ProxyCore(worlds)))
    try:
        yield bench
    finally:
        bench.close()


def compare(
    of: Domain,
    tasks: Sequence[Any],
    constructor: Callable[..., Any] | None = None,
    ways: Sequence[str] = WAYS,
) -> Counter[tuple[str, float | None]]:
    """Play each task in each way; our reward must be tau2's, and None where its evaluator fails.
    How often each reward came out."""
    rewards: Counter[tuple[str, float | None]] = Counter()
    with bench_of(of.name) as bench:
        for task in tasks:
            criteria = task.evaluation_criteria
            gold = criteria.actions or []
            for way in ways:
                actions = {
                    "without last write": without_last_write(of, gold), "nothing": [],
                }.get(way, gold)  # fmt: skip
                told = criteria.communicate_info if way in WAYS[::2] else None
                said = "; ".join(told) if told else "I cannot help with that."
                session = asyncio.run(play_both(bench, of, task, actions, said, f"{task.id} {way}"))
                simulated = simulation(task, [*history_of(task), *session.messages])
                theirs = None
                with pristine_vpn(), suppress(ValueError):
                    theirs = their_reward(of, task, simulated, constructor).reward
                ours = our_score(scenario_of(of, task), session.events)
                assert ours.value == theirs, (task.id, way, ours)
                assert ours.status == ("unscored" if theirs is None else "scored")
                assert ours.passed is (None if theirs is None else theirs == 1.0)
                rewards[way, theirs] += 1
    return rewards


@pytest.mark.req("V07")
def test_telecom_with_the_tools_of_the_user() -> None:
    telecom = domain("telecom")
    tasks = telecom.tasks("base")[::12]
    assert any(a.requestor == "user" for task in tasks for a in task.evaluation_criteria.actions)
    rewards = compare(telecom, tasks)
    assert rewards["gold", 1.0] == len(tasks)
    assert rewards["nothing", 0.0] == len(tasks)


@pytest.mark.req("V07")
def test_airline_books_changes_and_cancels() -> None:
    airline = domain("airline")
    packed = pickle.dumps(_whole_airline())
    environment = tau2("domains.airline.environment")

    def construct(solo_mode: bool = False) -> Any:
        return environment.get_environment(db=pickle.loads(packed))

    chosen: dict[str, Any] = {}
    for task in airline.tasks("base"):
        for action in task.evaluation_criteria.actions:
            if action.name in ("book_reservation", "update_reservation_flights"):
                chosen.setdefault(action.name, task)
    ways = ("gold", "without last write")
    rewards = compare(airline, list(chosen.values()), construct, ways)
    assert rewards == {("gold", 1.0): 2, ("without last write", 0.0): 2}


def _whole_airline() -> Any:
    return tau2("domains.airline.environment").get_environment().tools.db


@pytest.mark.req("V07")
def test_mock_begins_in_other_states_and_in_the_middle_of_a_conversation() -> None:
    mock = domain("mock")
    tasks = mock.tasks("base")
    assert any(history_of(task) for task in tasks)
    assert any(t.initial_state and t.initial_state.initialization_data for t in tasks)
    rewards = compare(mock, tasks)
    assert rewards["gold", 1.0] == len(tasks) - 1  # one names actions, and forbids their effect
    assert rewards["nothing", None] == 1  # tau2 cannot look at a task that was never created


@pytest.mark.req("V07")
def test_the_agent_cannot_call_a_tool_of_the_users() -> None:
    telecom = domain("telecom")
    task = telecom.tasks("small")[0]
    with bench_of("telecom") as bench:
        world = load_worlds(["services.tool_proxy.foreign.tau2:telecom"])["tau2_telecom"]
        users = set(world.user_tools())
        assert users == {tool.name for tool in telecom.tools("user")}
        assert users
        assert not users & {tool.name for tool in telecom.tools("assistant")}
        bench.log.put(start_event(telecom, task, "s1"))
        reply = asyncio.run(bench.call("toggle_airplane_mode"))
        assert answer_of(reply)["error"]["code"] == "tool_unknown"


@pytest.mark.req("V07")
def test_sessions_share_nothing() -> None:
    """One breaks the user's network; the other has it as the task begins."""
    telecom = domain("telecom")
    task = telecom.tasks("small")[0]
    start = telecom.start_of(task)
    before, _ = telecom.call(start, "check_status_bar", {}, "user")
    _, broken = telecom.call(start, "toggle_airplane_mode", {}, "user")
    changed, _ = telecom.call(broken, "check_status_bar", {}, "user")
    after, _ = telecom.call(start, "check_status_bar", {}, "user")
    assert before == after != changed
    assert telecom.start_of(task) == start
