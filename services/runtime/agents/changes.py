"""Changes to what is registered of an agent, as the control API and the CLI make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas.agent_document import AgentDocument
from schemas.agent_loader import parse_agent
from schemas.errors import InvalidDocument, Problem

JsonObject = dict[str, Any]
TOOL_MODES = "tool_modes"
_TARGET = (
    "target", "target_kind", "target_tool", "target_auth_header", "target_auth_ref",
    "target_timeout_s",
)  # fmt: skip


def changed(document: Mapping[str, Any], changes: Mapping[str, Any]) -> AgentDocument:
    """The document after some changes, checked as a whole.

    Args:
        document: As `schemas.agent_document.document_of` gives it.
        changes: Fields that replace the document's own, null to drop one; and `tool_modes`, which
            flips single tools: `{name: {mode: sandbox}}`, or `{name: {mode: passthrough, target:
            URL, ...}}` with the target's other fields. A tool that goes to the sandbox loses its
            target; one that passes through already keeps what is not given.

    Raises:
        InvalidDocument: with every problem of the document that would come out, and of `changes`.
    """
    agent_id = document["agent_id"]
    problems: list[Problem] = []
    if changes.get("agent_id", agent_id) != agent_id:
        problems.append(Problem("agent_id", f"expected {agent_id!r}, whose change this is"))
    merged = {**document, **changes, "agent_id": agent_id}
    modes = merged.pop(TOOL_MODES, None)
    merged = {name: value for name, value in merged.items() if value is not None}
    places: dict[str, str] = {}
    if isinstance(modes, Mapping):
        merged["tools"], places = _with_modes(merged.get("tools", []), modes, problems)
    elif modes is not None:
        problems.append(Problem(TOOL_MODES, "expected a mapping of tools' names to their modes"))
    try:
        found = parse_agent(json.dumps(merged), f"{agent_id}.json")
    except InvalidDocument as error:
        raise InvalidDocument(
            [*problems, *(_placed(problem, places) for problem in error.problems)]
        ) from None
    if problems:
        raise InvalidDocument(problems)
    return found


def _with_modes(
    tools: Any, modes: Mapping[str, Any], problems: list[Problem]
) -> tuple[Any, dict[str, str]]:
    """The tools with their new modes, and where their problems are to be shown."""
    if not isinstance(tools, list):
        return tools, {}
    places: dict[str, str] = {}
    found = list(tools)
    index = {
        tool["name"]: number
        for number, tool in enumerate(tools)
        if isinstance(tool, Mapping) and isinstance(tool.get("name"), str)
    }
    for name, change in modes.items():
        path = f"{TOOL_MODES}.{name}"
        if name not in index:
            problems.append(Problem(path, "expected the name of one of the agent's tools"))
        elif not isinstance(change, Mapping) or change.get("mode") not in (
            "sandbox",
            "passthrough",
        ):
            problems.append(Problem(f"{path}.mode", "expected sandbox or passthrough"))
        elif unknown := sorted(set(change) - {"mode", *_TARGET}):
            expected = f"expected one of mode, {', '.join(_TARGET)}"
            problems.append(Problem(f"{path}.{unknown[0]}", f"unknown field; {expected}"))
        else:
            tool = dict(tools[index[name]])
            if change["mode"] == "sandbox":
                tool = {key: value for key, value in tool.items() if key not in _TARGET}
            tool = {key: value for key, value in {**tool, **change}.items() if value is not None}
            found[index[name]] = tool
            places[f"tools[{index[name]}]"] = path
    return found, places


def _placed(problem: Problem, places: Mapping[str, str]) -> Problem:
    start, dot, rest = problem.path.partition(".")
    return Problem(places.get(start, start) + dot + rest, problem.message, problem.file)
