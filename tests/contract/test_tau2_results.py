"""Suites of tau2's tasks; recorded results, scored again: what tau2 said of them, and pass^k."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from schemas.loader import scenario_of as scenario_in
from schemas.pass_hat_k import pass_hat_k
from services.cli.app import app
from services.cli.suites import read_suite
from services.cli.tau2.rescoring import Scored, mean_pass_hat_k, rescore_file
from services.runtime.tau2.domains import Domain, domain
from services.runtime.tau2.package import tau2
from tests.support.tau2_sessions import (
    exchanged,
    history_of,
    pristine_vpn,
    require_tau2,
    simulation,
    their_reward,
    without_last_write,
)


@pytest.fixture(autouse=True)
def _lane() -> None:
    require_tau2()


def windtunnel(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def recorded(of: Domain, task: Any, actions: Sequence[Any], trial: int, end: str) -> Any:
    """A session as tau2 would have recorded it, in its own environment."""
    with pristine_vpn():
        environment = of._module.get_environment()
        initial, history = task.initial_state, history_of(task)
        environment.set_state(
            initial.initialization_data if initial else None,
            initial.initialization_actions if initial else None,
            history,
        )
        messages = list(history)
        for number, action in enumerate(actions):
            call, _ = exchanged(number, action, "")
            messages += [call, environment.get_response(call.tool_calls[0])]
    said = "; ".join(task.evaluation_criteria.communicate_info or ["Done."])
    messages.append(tau2("data_model.message").AssistantMessage(role="assistant", content=said))
    session = simulation(task, messages, trial, end)
    with pristine_vpn():
        session.reward_info = their_reward(of, task, session)
    session.agent_cost = 0.0
    return session


def results(of: Domain, tasks: Sequence[Any], sessions: Sequence[Any], trials: int) -> Any:
    """tau2's `Results`."""
    kinds = tau2("data_model.simulation")
    info = kinds.Info(
        git_commit="none", num_trials=trials, max_steps=200, max_errors=10,
        user_info=kinds.UserInfo(implementation="user_simulator"),
        agent_info=kinds.AgentInfo(implementation="llm_agent"),
        environment_info=kinds.EnvironmentInfo(domain_name=of.name, policy=of.policy),
    )  # fmt: skip
    return kinds.Results(info=info, tasks=list(tasks), simulations=list(sessions))


@pytest.fixture(scope="module")
def telecom_results() -> Any:
    require_tau2()
    telecom = domain("telecom")
    tasks = telecom.tasks("small")[:3]
    sessions = []
    for number, task in enumerate(tasks):
        gold = task.evaluation_criteria.actions
        plays = [(gold, "user_stop"), (gold, "max_steps"), (gold, "agent_stop"),
                 (without_last_write(telecom, gold) if number else gold, "user_stop")]  # fmt: skip
        sessions += [recorded(telecom, task, actions, trial, end)
                     for trial, (actions, end) in enumerate(plays)]  # fmt: skip
    return results(telecom, tasks, sessions, trials=4)


@pytest.mark.req("V07")
def test_results_of_tau2_get_their_rewards_and_pass_hat_k_again(
    telecom_results: Any, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    telecom_results.save(path)
    found = rescore_file(path)
    rewards = [one.reward_info.reward for one in telecom_results.simulations]
    assert [one.reward for one in found.sessions] == rewards
    assert 0.0 in rewards
    assert 1.0 in rewards
    assert (found.agreeing, found.differing, found.unscored) == (12, [], [])
    theirs = tau2("metrics.agent_metrics").compute_metrics(telecom_results)
    assert found.pass_hat_k == pytest.approx([theirs.pass_hat_ks[k] for k in range(1, 5)])
    shown = windtunnel("tau2", "rescore", path)
    assert shown.exit_code == 0
    assert "12 sessions of telecom: 12 as recorded, 0 differ, 0 cannot be scored" in shown.output


@pytest.mark.req("V07")
def test_a_reward_that_differs_is_told_and_fails_the_command(
    telecom_results: Any, tmp_path: Path
) -> None:
    document = json.loads(telecom_results.model_dump_json())
    document["simulations"][0]["reward_info"]["reward"] = 0.0
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    shown = windtunnel("tau2", "rescore", path, "--json")
    assert shown.exit_code == 1
    told = json.loads(shown.stdout)
    assert (told["agreeing"], told["differing"], told["unscored"]) == (11, 1, 0)
    assert told["sessions"][0]["reward"] == 1.0


@pytest.mark.req("V07")
def test_what_cannot_be_reproduced_is_unscored_and_pass_hat_k_is_not_made_up(
    telecom_results: Any, tmp_path: Path
) -> None:
    document = json.loads(telecom_results.model_dump_json())
    messages = document["simulations"][0]["messages"]
    answer = next(message for message in messages if message["role"] == "tool")
    answer["content"] = "It was another phone."
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    found = rescore_file(path)
    [unscored] = found.unscored
    assert "answered 'It was another phone.' and now" in unscored.reason
    assert found.pass_hat_k == ()


@pytest.mark.req("V07")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("tasks"), "not results of tau2: tasks: Field required"),
        (lambda d: d["info"]["agent_info"].update(implementation="llm_agent_solo"), "user's tools"),
        (lambda d: d["info"]["environment_info"].update(domain_name="bank"), "no domain 'bank'"),
        (lambda d: d["simulations"][0]["messages"].pop(1), "without its call|was not answered"),
    ],
)
def test_other_files_are_refused(
    telecom_results: Any, tmp_path: Path, change: Callable[[Any], Any], message: str
) -> None:
    document = json.loads(telecom_results.model_dump_json())
    change(document)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    shown = windtunnel("tau2", "rescore", path)
    assert shown.exit_code == 2
    assert re.search(message, shown.output)


@pytest.mark.req("V07")
def test_sessions_of_tau_bench_are_scored_like_them(tmp_path: Path) -> None:
    retail = domain("retail")
    task = retail.task("0")
    gold = task.evaluation_criteria.actions

    def entry(trial: int, actions: Sequence[Any], reward: float, finished: bool = True) -> Any:
        state = retail.start_of(task)
        traj: list[Any] = [{"role": "user", "content": "Hello."}]
        for action in actions:
            answer, state = retail.call(state, action.name, action.arguments)
            function = {"name": action.name, "arguments": json.dumps(action.arguments)}
            traj += [
                {"role": "assistant", "content": None,
                 "tool_calls": [{"id": "same", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": "same",
                 "content": answer if isinstance(answer, str) else json.dumps(answer)},
            ]  # fmt: skip
        traj += [{"role": "assistant", "content": "Done."},
                 {"role": "user", "content": "###STOP###"}]  # fmt: skip
        given = {
            "user_id": "u", "instruction": "Exchange it.", "outputs": [],
            "actions": [{"name": a.name, "kwargs": a.arguments} for a in gold],
        }  # fmt: skip
        info = {"task": given, "reward_info": {"reward": reward} if finished else None}
        return {"task_id": 0, "trial": trial, "reward": reward, "info": info, "traj": traj}

    path = tmp_path / "tau-bench.json"
    sessions = [entry(0, gold, 1.0), entry(1, gold[:-1], 0.0), entry(2, gold, 0.0, finished=False)]
    path.write_text(json.dumps(sessions))
    found = rescore_file(path, "retail")
    assert [one.reward for one in found.sessions] == [1.0, 0.0, 0.0]
    assert found.agreeing == 3
    assert found.pass_hat_k == pytest.approx((1 / 3, 0, 0))
    shown = windtunnel("tau2", "rescore", path)
    assert (shown.exit_code, "give --domain" in shown.output) == (2, True)


@pytest.mark.req("V07")
@given(st.integers(1, 32).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_pass_hat_k_is_tau2s(counts: tuple[int, int]) -> None:
    passed, trials = counts
    theirs = tau2("metrics.agent_metrics").pass_hat_k
    assert pass_hat_k(passed, trials) == tuple(
        theirs(trials, passed, k) for k in range(1, trials + 1)
    )


@pytest.mark.req("V07")
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=3))
def test_pass_hat_k_over_tasks_is_tau2s(telecom_results: Any, outcomes: list[list[bool]]) -> None:
    """As of whole results: by task, then averaged."""
    tasks = telecom_results.tasks[: len(outcomes)]
    sessions, scored = [], []
    for task, trials in zip(tasks, outcomes, strict=True):
        for trial, solved in enumerate(trials):
            session = telecom_results.simulations[0].model_copy(deep=True)
            session.task_id, session.trial = task.id, trial
            session.reward_info.reward = float(solved)
            sessions.append(session)
            scored.append(Scored(task.id, trial, None, float(solved), ""))
    whole = results(domain("telecom"), tasks, sessions, trials=3)
    theirs = tau2("metrics.agent_metrics").compute_metrics(whole).pass_hat_ks
    assert mean_pass_hat_k(scored) == pytest.approx([theirs[k] for k in (1, 2, 3)])


@pytest.mark.req("V07")
def test_an_imported_suite_can_be_published(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    done = windtunnel("tau2", "import", "mock", "--out", folder, "--owner", "me")
    assert done.exit_code == 0, done.output
    assert "the conversation so far is left out" in done.output
    assert "wrote 9 scenarios" in done.output
    suite = read_suite(folder)
    assert (suite.name, len(suite.scenarios)) == ("tau2-mock", 9)
    mock = domain("mock")
    for one in map(scenario_in, suite.scenarios):
        assert one.expect.tau2 is not None
        task = mock.task(one.expect.tau2.task)
        assert one.world is not None
        assert {"agent": {}, "user": {}, **one.world.state} == mock.start_of(task)
        assert str(task.user_scenario.instructions) == one.simulation_context
    tools = json.loads((folder / "tools.json").read_text())
    assert {tool["name"] for tool in tools} == {tool.name for tool in mock.tools("assistant")}
    assert (folder / "policy.md").read_text() == mock.policy
    again = windtunnel("tau2", "import", "mock", "--out", folder, "--owner", "me")
    assert (again.exit_code, "--force" in again.output) == (2, True)
    assert windtunnel("tau2", "import", "mock", "--out", folder, "--force").exit_code == 0
    other = windtunnel("tau2", "import", "mock", "--out", tmp_path / "no", "--split", "none")
    assert (other.exit_code, "no split 'none' of mock" in other.output) == (2, True)


@pytest.mark.req("V07")
def test_what_the_user_of_telecom_has_is_in_the_suite(tmp_path: Path) -> None:
    telecom = domain("telecom")
    folder = tmp_path / "suite"
    assert (
        windtunnel("tau2", "import", "telecom", "--split", "small", "--out", folder).exit_code == 0
    )
    suite = read_suite(folder)
    assert len(suite.scenarios) == 20
    one = scenario_in(suite.scenarios[0])
    assert one.user is not None
    told = {tool.name: tool.description for tool in one.user.tools}
    assert told == {tool.name: tool.description for tool in telecom.tools("user")}
    assert all(told.values())
    assert one.world is not None
    assert one.world.state["user"]
