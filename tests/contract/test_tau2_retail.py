"""All retail tasks, three ways, over HTTP through the proxy: our reward is tau2's on every one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from services.runtime.tau2.domains import Domain, domain
from services.tool_proxy.session import ProxyCore
from services.tool_proxy.world import load_worlds
from tests.support.proxy_server import Server, serving
from tests.support.tau2_sessions import (
    Played,
    SmallRetail,
    our_score,
    play,
    require_tau2,
    scenario_of,
    simulation,
    their_reward,
    without_last_write,
)
from tests.support.tool_proxy import MemoryLog

WAYS = ("gold", "without last write", "nothing")


@pytest.fixture(scope="module")
def retail() -> Domain:
    require_tau2()
    return domain("retail")


@pytest.fixture(scope="module")
def server(retail: Domain) -> Iterator[Server]:
    worlds = load_worlds(["services.tool_proxy.foreign.tau2:retail"])
    with serving(MemoryLog(ProxyCore(worlds))) as running:
        yield running


def played(server: Server, of: Domain, task: Any, way: str, name: str = "") -> Played:
    gold = task.evaluation_criteria.actions or []
    actions = {"gold": gold, "without last write": without_last_write(of, gold), "nothing": []}[way]
    told = way != "nothing" and task.evaluation_criteria.communicate_info
    said = "It is done: " + "; ".join(told) if told else "I cannot help with that."
    return play(server, of, task, actions, said, f"{name}{task.id} {way}")


@pytest.mark.req("V07")
@pytest.mark.timeout(300)
def test_our_reward_is_tau2s_on_all_342(server: Server, retail: Domain) -> None:
    tasks, small = retail.tasks("base"), SmallRetail()
    assert len(tasks) == 114
    rewards: Counter[tuple[str, float]] = Counter()
    wrong = []
    for task in tasks:
        scenario = scenario_of(retail, task)
        gold = [action.model_dump() for action in task.evaluation_criteria.actions or []]
        for way in WAYS:
            session = played(server, retail, task, way)
            messages = [message.model_dump() for message in session.messages]
            theirs = their_reward(
                retail, task, simulation(task, session.messages), small.constructor(gold, messages)
            )
            ours = our_score(scenario, session.events)
            rewards[way, theirs.reward] += 1
            if ours.value != theirs.reward or ours.passed is not (theirs.reward == 1.0):
                wrong.append((task.id, way, ours.value, theirs.reward, ours.reason))
    assert wrong == []
    assert sum(rewards.values()) == 342
    assert rewards["gold", 1.0] == 114, rewards
    assert rewards["without last write", 0.0] > 80, rewards
    assert rewards["nothing", 0.0] > 80, rewards


@pytest.mark.req("V07")
@pytest.mark.timeout(300)
def test_the_small_database_gives_what_the_whole_one_gives(server: Server, retail: Domain) -> None:
    """What stands in for tau2's own environment above takes nothing from the evaluation."""
    task = retail.task("0")
    gold = [action.model_dump() for action in task.evaluation_criteria.actions]
    for way in WAYS[:2]:
        session = played(server, retail, task, way, "again ")
        messages = [message.model_dump() for message in session.messages]
        simulated = simulation(task, session.messages)
        small = their_reward(retail, task, simulated, SmallRetail().constructor(gold, messages))
        whole = their_reward(retail, task, simulated)
        assert small == whole
