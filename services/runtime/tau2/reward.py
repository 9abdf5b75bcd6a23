"""tau2's reward for a session, from what the session came to.

It is the product of the parts that a task's `reward_basis` names:

- `DB`: both databases are what the task's reference actions make of them;
- `ENV_ASSERTION`: tau2's own assertions hold of them;
- `ACTION`: each reference action was called by somebody, with the arguments that count;
- `COMMUNICATE`: each piece of information occurs in something that the agent said, commas in what
  it said left out, letters' case aside.

A session that neither the user nor the agent ended has 0; a task without criteria gives 1. tau2
makes the databases by calling everything again; here the session's own end state counts, so that
calls which were answered by an injected failure have changed nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from services.runtime.tau2.domains import Domain, domain, drawn_from
from services.runtime.tau2.overlay import JsonObject
from services.runtime.tau2.package import tau2

_SHOWN = 3


class NotRewardable(Exception):
    """tau2 gives no reward here; the message says why."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a session came to.

    Attributes:
        state: the world's state at the end; None where it is that of the task's beginning.
        calls: tool and arguments of every call since then, the user's among them.
        said: the texts of the agent's messages since then.
        stopped: whether user or agent ended it, rather than a bound or an error.
    """

    state: Mapping[str, Any] | None
    calls: Sequence[tuple[str, Mapping[str, Any]]]
    said: Sequence[str]
    stopped: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that the reward rests on."""

    basis: str
    holds: bool
    words: str


@dataclass(frozen=True, slots=True)
class Reward:
    """0 or 1, and what it rests on."""

    value: float
    checks: tuple[Check, ...]


def reward(of: Domain, task: Any, done: Done) -> Reward:
    """The reward of a session in which the task was to be solved.

    Raises:
        NotRewardable: the task rests on natural-language assertions, which only a model can judge;
            the state does not fit the domain; or tau2 cannot set up or check the task.
    """
    if not done.stopped:
        return Reward(0.0, (Check("END", False, "neither user nor agent ended the session"),))
    criteria = task.evaluation_criteria
    if criteria is None:
        return Reward(1.0, (Check("END", True, "the task has no criteria"),))
    basis = [part.value for part in criteria.reward_basis]
    if "NL_ASSERTION" in basis:
        raise NotRewardable("the task rests on assertions that only a model can judge")
    done = _with_history(task, done)
    checks: list[Check] = []
    # tau2 looks at the databases only where there is anything to compare or to assert.
    if criteria.actions is not None or criteria.env_assertions is not None:
        try:
            checks += _of_databases(of, task, done, basis)
        except ValueError as error:
            raise NotRewardable(str(error)) from error
    if "ACTION" in basis:
        checks += _of_actions(task, done)
    if "COMMUNICATE" in basis:
        checks += _of_words(criteria.communicate_info or (), done.said)
    return Reward(prod(float(check.holds) for check in checks), tuple(checks))


def _with_history(task: Any, done: Done) -> Done:
    """With what a task tells of the conversation before it began, which tau2 counts as well."""
    history = (task.initial_state.message_history if task.initial_state else None) or []
    spoken = [one for one in history if one.role in ("assistant", "user")]
    calls = [(call.name, call.arguments) for one in spoken for call in one.tool_calls or ()]
    said = [one.content for one in spoken if one.role == "assistant" and one.content]
    return replace(done, calls=[*calls, *done.calls], said=[*said, *done.said])


def _of_databases(of: Domain, task: Any, done: Done, basis: Sequence[str]) -> Iterator[Check]:
    environment = of.environment(of.start_of(task) if done.state is None else done.state)
    with drawn_from(random.Random(f"check of {task.id}")):
        environment.sync_tools()
        if "DB" in basis:
            differing = list(_differences(_expected(of.name, task.model_dump_json()),
                                          of.state_of(environment)))  # fmt: skip
            words = "the databases are as the reference actions leave them"
            if differing:
                more = len(differing) - _SHOWN
                words = "not as the reference actions leave it: " + ", ".join(differing[:_SHOWN])
                words += f" and {more} more" if more > 0 else ""
            yield Check("DB", not differing, words)
        for assertion in task.evaluation_criteria.env_assertions or ():
            try:
                holds = environment.run_env_assertion(assertion, raise_assertion_error=False)
            except Exception as error:
                # Whatever tau2's own code raises.
                raise ValueError(f"tau2 cannot check {assertion.func_name}: {error}") from error
            if "ENV_ASSERTION" in basis:
                words = f"{assertion.env_type} {assertion.func_name}({_shown(assertion.arguments)})"
                yield Check("ENV_ASSERTION", holds, f"{words} should be {assertion.assert_value!s}")


def _of_actions(task: Any, done: Done) -> Iterator[Check]:
    call_type = tau2("data_model.message").ToolCall
    calls = [call_type(name=name, arguments=dict(given)) for name, given in done.calls]
    for action in task.evaluation_criteria.actions or ():
        found = any(action.compare_with_tool_call(call) for call in calls)
        yield Check("ACTION", found, f"{action.name}({_shown(action.arguments)}) should be called")


def _of_words(wanted: Sequence[str], said: Sequence[str]) -> Iterator[Check]:
    texts = [text.lower().replace(",", "") for text in said if text.strip()]
    for info in wanted:
        found = any(info.lower() in text for text in texts)
        yield Check("COMMUNICATE", found, f"the agent should say {info!r}")


@lru_cache(maxsize=1024)
def _expected(domain_name: str, task_json: str) -> JsonObject:
    task = tau2("data_model.tasks").Task.model_validate_json(task_json)
    return domain(domain_name).expected_after(task)


def _differences(expected: Any, actual: Any, at: str = "") -> Iterator[str]:
    """Where two states differ, as far as both are objects. 1 and 1.0 differ, as in tau2."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for name in sorted(expected.keys() | actual.keys()):
            here, there = expected.get(name, _NOWHERE), actual.get(name, _NOWHERE)
            yield from _differences(here, there, f"{at}/{name}")
    elif not _equal(expected, actual):
        yield at


_NOWHERE = object()


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
