"""tau2's domains with their state outside: a call is a function of the state before it.

The state of a session is `{"agent": changes, "user": changes}` (see `overlay`): what differs in the
database behind the agent's tools, and in the one behind the simulated user's.
"""

from __future__ import annotations

import copy
import random
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import orjson

from services.runtime.tau2.overlay import Base, JsonObject
from services.runtime.tau2.package import tau2

Requestor = Literal["assistant", "user"]
DOMAINS = ("retail", "airline", "telecom", "mock")
INITIAL: Mapping[str, Any] = {"agent": {}, "user": {}}
"""The state in which everything is as the domain's files have it."""

_loading = threading.Lock()
_drawing: ContextVar[random.Random | None] = ContextVar("drawing", default=None)


@dataclass(frozen=True, slots=True)
class ToolText:
    """A tool as it is shown to a model: its description, and its arguments as a JSON Schema."""

    name: str
    description: str
    input_schema: JsonObject


class Domain:
    """One of tau2's domains. Its databases are read once and never changed."""

    def __init__(self, name: str) -> None:
        """Raises Tau2Missing; ValueError when there is no such domain."""
        if name not in DOMAINS:
            raise ValueError(f"tau2 has no domain {name!r} here; there are {', '.join(DOMAINS)}")
        self.name = name
        self._module = tau2(f"domains.{name}.environment")
        self._tool_call = tau2("data_model.message").ToolCall
        if name == "telecom":
            tau2("domains.telecom.tools").uuid = _SeededIds
        self._environment = self._module.get_environment()
        self._agent = Base(self._environment.tools.db)
        user = self._environment.user_tools
        self._user = None if user is None else Base(user.db)
        self._vpn = copy.deepcopy(getattr(type(user), "default_vpn_details", None))

    @property
    def policy(self) -> str:
        """What the agent has to keep to."""
        policy: str = self._environment.policy
        return policy

    def tools(self, requestor: Requestor) -> tuple[ToolText, ...]:
        """The tools of the agent, or those of the user; empty where the user has none."""
        return self._tools[requestor]

    @cached_property
    def _tools(self) -> Mapping[Requestor, tuple[ToolText, ...]]:
        environment = self._environment
        user = environment.user_tools
        return {"assistant": _texts_of(environment.tools), "user": _texts_of(user)}

    def task(self, task_id: str) -> Any:
        """tau2's `Task` of that id. It must not be changed.

        Raises:
            ValueError: there is none.
        """
        if task_id not in self._tasks:
            raise ValueError(f"tau2 has no task {task_id!r} in {self.name}")
        return self._tasks[task_id]

    def tasks(self, split: str) -> list[Any]:
        """tau2's `Task`s of one split. They must not be changed.

        Raises:
            ValueError: there is no such split.
        """
        splits: Mapping[str, Sequence[str]] = self._module.get_tasks_split()
        if split not in splits:
            known = ", ".join(sorted(splits))
            raise ValueError(f"tau2 has no split {split!r} of {self.name}; there are {known}")
        chosen = set(splits[split])
        return [task for task in self._tasks.values() if task.id in chosen]

    @cached_property
    def _tasks(self) -> Mapping[str, Any]:
        return {task.id: task for task in self._module.get_tasks(None)}

    def call(
        self,
        state: Mapping[str, Any],
        tool: str,
        arguments: Mapping[str, Any],
        requestor: Requestor = "assistant",
        draws: random.Random | None = None,
    ) -> tuple[Any, JsonObject]:
        """What a call answers, and the state after it.

        An error is an answer as well: a text that starts with `Error: `; what the tool had changed
        by then stays changed, as in tau2.

        Args:
            draws: Where ids that tau2 makes up come from; without it they are random.

        Raises:
            ValueError: the state does not fit the domain.
        """
        if tool == "calculate" and "**" in str(arguments.get("expression")):
            # tau2 evaluates it, however long that takes.
            return "Error: Invalid characters in expression", dict(state)
        environment = self.environment(state)
        request = self._tool_call(
            id="", name=tool, arguments=copy.deepcopy(dict(arguments)), requestor=requestor
        )
        with drawn_from(draws):
            content = environment.get_response(request).content
        return answer(content), self.state_of(environment)

    def environment(self, state: Mapping[str, Any]) -> Any:
        """tau2's `Environment` in a state. Private to the caller.

        Raises:
            ValueError: the state does not fit the domain.
        """
        environment = copy.copy(self._environment)
        base = self._environment
        environment.tools = type(base.tools)(self._agent.with_changes(state.get("agent") or {}))
        if self._user is not None:
            user = self._user.with_changes(state.get("user") or {})
            environment.user_tools = self._kit_of_user(user)
        return environment

    def _kit_of_user(self, database: Any) -> Any:
        kit = type(self._environment.user_tools)(database)
        if self._vpn is not None:
            # tau2 has one for all sessions of a process, and breaks it.
            kit.default_vpn_details = copy.deepcopy(self._vpn)
        return kit

    def state_of(self, environment: Any) -> JsonObject:
        """The state that an environment of this domain is in, however it was made."""
        user = environment.user_tools
        return {
            "agent": self._agent.changes(environment.tools.db),
            "user": {} if self._user is None else self._user.changes(user.db),
        }

    def start_of(self, task: Any) -> JsonObject:
        """The state in which a task begins.

        Raises:
            ValueError: tau2 cannot set it up.
        """
        initial = task.initial_state
        data = initial.initialization_data if initial else None
        if data is None:
            environment = self.environment(INITIAL)
        else:
            # Its own databases: tau2 writes them out as a whole to change them.
            environment = copy.deepcopy(self._environment)
            if self._user is not None:
                environment.user_tools = self._kit_of_user(environment.user_tools.db)
        try:
            with drawn_from(random.Random(f"start of {task.id}")):
                environment.set_state(
                    initialization_data=copy.deepcopy(data),
                    initialization_actions=initial.initialization_actions if initial else None,
                    message_history=(initial.message_history if initial else None) or [],
                )
        except Exception as error:
            # Whatever tau2's own code raises.
            raise ValueError(f"tau2 cannot set up task {task.id}: {error}") from error
        return self.state_of(environment)

    def expected_after(self, task: Any) -> JsonObject:
        """The state that a task's reference actions lead to, in tau2's way: those that fail are
        passed over, and the databases are not synchronised in between.

        Raises:
            ValueError: tau2 cannot set up where it begins.
        """
        environment = self.environment(self.start_of(task))
        with drawn_from(random.Random(f"expected of {task.id}")):
            for action in task.evaluation_criteria.actions or []:
                try:
                    environment.make_tool_call(
                        tool_name=action.name,
                        requestor=action.requestor,
                        **copy.deepcopy(action.arguments),
                    )
                except Exception:  # a tool may raise anything; tau2 goes on as well
                    continue
        return self.state_of(environment)


def _texts_of(kit: Any) -> tuple[ToolText, ...]:
    found = []
    for tool in () if kit is None else kit.get_tools().values():
        function = tool.openai_schema["function"]
        found.append(ToolText(tool.name, function["description"], function["parameters"]))
    return tuple(found)


@cache
def _domain(name: str) -> Domain:
    return Domain(name)


def domain(name: str) -> Domain:
    """The domain, which is loaded once in a process.

    Raises:
        Tau2Missing: the package is not installed.
        ValueError: there is no such domain.
    """
    with _loading:
        return _domain(name)


def answer(content: str | None) -> Any:
    """What a tool answers: an object or an array where the text is one, else the text."""
    text = content or ""
    if text[:1] in ("{", "["):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


@contextmanager
def drawn_from(draws: random.Random | None) -> Iterator[None]:
    """Within, the ids that tau2 makes up come from `draws`."""
    token = _drawing.set(draws)
    try:
        yield
    finally:
        _drawing.reset(token)


class _SeededIds:
    """In place of the module `uuid` where tau2 names new bills by it."""

    @staticmethod
    def uuid4() -> uuid.UUID:
        draws = _drawing.get() or random.SystemRandom()
        return uuid.UUID(int=draws.getrandbits(128), version=4)
