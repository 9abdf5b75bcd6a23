"""What the linter reads and what it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from schemas.moments import CallMatch, Moments
from schemas.policies import FORMS
from schemas.scenario import Scenario
from schemas.yaml_tree import Node

Path = tuple[int | str, ...]


class Severity(StrEnum):
    """How bad a finding is: notes do not make the command fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of rot."""

    id: str
    severity: Severity
    wrong: str
    """What is wrong where it is found, in general."""
    mend: str
    needs: str = ""
    """The option it takes: `agent`, to know the tools; `run` or `against`, to run sessions."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where a suite has begun to rot."""

    rule: str
    severity: Severity
    scenario: str
    """The scenario's id; empty where it is about the suite."""
    file: str
    line: int
    column: int
    message: str
    mend: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.severity} {self.rule}: {self.message}. {self.mend}"


class Place(NamedTuple):
    """Where something stands."""

    file: str
    line: int
    column: int


class Found(NamedTuple):
    """What a rule says: about which value of the document, and what is wrong with it."""

    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class LintedScenario:
    """A scenario, and where its values come from."""

    file: str
    scenario: Scenario
    root: Node

    def place(self, path: Path) -> Place:
        """Where a value stands, or the innermost there is around it."""
        return place_in(self.root, ("scenario", *path), self.file)


@dataclass(frozen=True, slots=True)
class LintedSuite:
    """A suite with its files' texts."""

    file: str
    root: Node
    texts: Mapping[str, str]
    """By file, the suite's own included."""
    scenarios: tuple[LintedScenario, ...]
    tools: Mapping[str, frozenset[str]] | None = None
    """Names of the agent's tools, each with those of its arguments; None if not known."""

    def place(self, path: Path) -> Place:
        """Where a value of the suite's file stands, or the innermost there is around it."""
        return place_in(self.root, path, self.file)


def place_in(root: Node, path: Path, file: str) -> Place:
    """The place of the value at a path, or of the innermost that exists and has one."""
    place, node = Place(file, 1, 1), root
    for part in ("", *path):
        if part != "":
            value = node.value
            if isinstance(value, dict) and str(part) in value:
                node = value[str(part)]
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                node = value[part]
            else:
                break
        if node.line is not None:
            place = Place(node.file or file, node.line, node.column or 1)
    return place


def tools_named(scenario: Scenario) -> Iterator[tuple[Path, str]]:
    """Every tool that a scenario names, and where."""
    for what, selectors in (("failures", scenario.failures), ("rules", scenario.rules)):
        for number, selector in enumerate(selectors):
            if selector.tool != "*":
                yield (what, number, "tool"), selector.tool
    for path, call in calls_named(scenario):
        yield (*path, "tool"), call.tool
    for name, role in scenario.actors.roles.items():
        for number, tool in enumerate(role.tools or ()):
            yield ("actors", "roles", name, "tools", number), tool


def calls_named(scenario: Scenario) -> Iterator[tuple[Path, CallMatch]]:
    """Every pattern over calls in what a scenario expects and forbids, and where."""
    for number, call in enumerate(scenario.expect.calls):
        yield ("expect", "calls", number), call
    for number, forbidden in enumerate(scenario.expect.no_calls):
        yield ("expect", "no_calls", number), forbidden
    for path, moments in moments_named(scenario):
        if moments.call is not None:
            yield (*path, "call"), moments.call
    for number, policy in enumerate(scenario.policies):
        for form, part in (("requires", "first"), ("follows", "then")):
            pattern = getattr(getattr(policy, form), part, None)
            if isinstance(pattern, CallMatch):
                yield ("policies", number, form, part), pattern


def moments_named(scenario: Scenario) -> Iterator[tuple[Path, Moments]]:
    """Every pattern over what happens in a scenario's policies, and where."""
    for number, policy in enumerate(scenario.policies):
        for field in (*FORMS, "after", "until", "unless"):
            rule = getattr(policy, field)
            if rule is None:
                continue
            yield ("policies", number, field), rule
            for part in ("first", "then"):
                if isinstance(pattern := getattr(rule, part, None), Moments):
                    yield ("policies", number, field, part), pattern
