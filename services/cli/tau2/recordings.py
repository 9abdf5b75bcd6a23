"""Recorded sessions of tau2 and tau-bench, read from their results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

from services.runtime.tau2.domains import Requestor
from services.runtime.tau2.package import tau2

_STOPPED = ("agent_stop", "user_stop")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A tool call, and the text that it was answered with."""

    tool: str
    arguments: Mapping[str, Any]
    requestor: Requestor
    answer: str
    exactly: bool = True
    """False: the tools that answered wrote otherwise, so only whether they failed counts."""

    def answered_as(self, answer: Any) -> bool:
        """Whether that is the recorded answer, compared as tau2 compares them."""
        if self.exactly:
            return bool(_decoded(self.answer) == _decoded(answer))
        return self.answer.startswith("Error") == str(answer).startswith("Error")


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded session.

    Attributes:
        task: tau2's `Task`.
        reward: the recorded one; None where none was.
        said: the texts of the agent's messages.
        stopped: whether user or agent ended it.
    """

    task: Any
    trial: int
    reward: float | None
    calls: Sequence[RecordedCall]
    said: Sequence[str]
    stopped: bool


def of_tau2(document: Any, domain_name: str = "") -> tuple[str, list[Recording]]:
    """The domain and the sessions of tau2's `Results`, scored by the tasks that they carry.

    Raises:
        Tau2Missing: the package is not installed.
        ValueError: it is none; or its agent had the user's tools, or the messages do not fit.
    """
    try:
        results = tau2("data_model.simulation").Results.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"not results of tau2: {where}: {first['msg']}") from None
    if "solo" in results.info.agent_info.implementation:
        raise ValueError("an agent that has the user's tools cannot be scored here")
    tasks = {task.id: task for task in results.tasks}
    recordings = []
    for number, session in enumerate(results.simulations):
        if session.task_id not in tasks:
            raise ValueError(f"simulation {session.id} is of task {session.task_id}, which is none")
        task = tasks[session.task_id]
        history = (task.initial_state.message_history if task.initial_state else None) or []
        messages = list(_flat(session.messages))[len(list(_flat(history))) :]
        info = session.reward_info
        recordings.append(
            Recording(
                task=task,
                trial=number if session.trial is None else session.trial,
                reward=None if info is None else info.reward,
                calls=list(_calls(messages, session.id)),
                said=[m.content for m in messages if m.role == "assistant" and m.content],
                stopped=session.termination_reason.value in _STOPPED,
            )
        )
    name = domain_name or results.info.environment_info.domain_name
    return name.removesuffix("-workflow"), recordings


def of_tau_bench(document: Any, domain_name: str) -> tuple[str, list[Recording]]:
    """The sessions of a list of tau-bench's results, each with the task it was about.

    Raises:
        Tau2Missing: the package is not installed.
        ValueError: it is none, or the domain is not given.
    """
    if not domain_name:
        raise ValueError("results of tau-bench do not say of which domain they are: give --domain")
    recordings = []
    for number, entry in enumerate(document if isinstance(document, list) else ()):
        try:
            recordings.append(_of_tau_bench(entry))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"entry {number} is no result of tau-bench: {error!r}") from None
    if not recordings:
        raise ValueError("no results of tau2 or tau-bench")
    return domain_name, recordings


def _of_tau_bench(entry: Mapping[str, Any]) -> Recording:
    given = entry["info"]["task"]
    actions = [
        {"action_id": str(number), "name": action["name"], "arguments": action["kwargs"]}
        for number, action in enumerate(given["actions"])
    ]
    task = tau2("data_model.tasks").Task.model_validate(
        {
            "id": str(entry["task_id"]),
            "user_scenario": {"instructions": given["instruction"]},
            "evaluation_criteria": {"actions": actions, "communicate_info": given["outputs"]},
        }
    )
    agent = [message for message in entry["traj"] if message["role"] == "assistant"]
    said = [m["content"] for m in agent if not m.get("tool_calls") and m["content"]]
    stopped = entry["info"].get("reward_info") is not None
    calls = list(_tau_bench_calls(entry["traj"]))
    return Recording(task, int(entry["trial"]), float(entry["reward"]), calls, said, stopped)


def _tau_bench_calls(messages: Sequence[Mapping[str, Any]]) -> Iterator[RecordedCall]:
    """Each call with the answer that follows it: ids are not always of one call only."""
    for message, following in pairwise(messages):
        if message["role"] != "assistant" or following["role"] != "tool":
            continue
        called = message["tool_calls"][0]["function"]  # it performs the first one only
        if called["name"] == "think":
            continue  # a tool that does nothing, which tau2 has no more
        yield RecordedCall(
            tool=called["name"],
            arguments=json.loads(called["arguments"]),
            requestor="assistant",
            answer=following["content"] or "",
            exactly=False,
        )


def _flat(messages: Sequence[Any]) -> Iterator[Any]:
    for message in messages:
        yield from getattr(message, "tool_messages", None) or [message]


def _calls(messages: Sequence[Any], session: str) -> Iterator[RecordedCall]:
    """Each call with its answer, which follows it, in the order of the calls."""
    waiting: list[Any] = []
    for message in messages:
        if message.role == "tool":
            if not waiting or waiting[0].id != message.id:
                raise ValueError(f"simulation {session}: an answer {message.id} without its call")
            call = waiting.pop(0)
            content = message.content or ""
            yield RecordedCall(call.name, call.arguments, call.requestor, content)
        elif message.role in ("assistant", "user"):
            waiting += message.tool_calls or ()
    if waiting:
        raise ValueError(f"simulation {session}: call {waiting[0].id} was not answered")


def _decoded(answer: Any) -> Any:
    if not isinstance(answer, str):
        return answer
    try:
        return json.loads(answer)
    except ValueError:
        return answer
