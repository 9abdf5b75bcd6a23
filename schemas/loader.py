"""Scenario and suite files as checked documents, every problem of every file at once.

Pure functions over texts: reading the folder is the caller's part. A suite's `defaults` are what
each scenario starts from: mappings are merged, anything else is replaced, except that a
scenario's `policies` and `failures` are added to those of the defaults. The failures of the
`failure_profile` that a scenario names come after all of its own, their rates multiplied by its
`profile_multiplier`.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, TypeGuard, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from schemas.errors import InvalidDocument, Problem
from schemas.locating import problems_of
from schemas.registry import Suite, SuiteScenario
from schemas.scenario import Category, Scenario, ScenarioFile, SuiteFile
from schemas.yaml_tree import Node, node_of, parse

SUITE_FILE = "suite.yaml"
ENOUGH_SCENARIOS = 5
_APPENDED = ("policies", "failures")

M = TypeVar("M", bound=BaseModel)


def parse_scenario(
    text: str,
    file: str,
    defaults: Mapping[str, JsonValue] | None = None,
    failure_profiles: Mapping[str, JsonValue] | None = None,
) -> Scenario:
    """The scenario of one file; its id defaults to the file's stem.

    Args:
        defaults: Scenario fields that this one starts from.
        failure_profiles: Lists of failures that it may name.

    Raises:
        InvalidDocument: with every problem of the file.
    """
    return _scenario(text, file, _Base(node_of(defaults or {}), node_of(failure_profiles or {})))


def parse_suite(suite_text: str, scenario_texts: Mapping[str, str]) -> Suite:
    """The suite of a `suite.yaml` and its scenario files, by file name.

    Scenarios without an owner are the suite owner's.

    Raises:
        InvalidDocument: with every problem of every file.
    """
    suite: SuiteFile | None = None
    root, problems = Node({}), list[Problem]()
    try:
        root, noted = parse(suite_text, SUITE_FILE)
        suite = _validated(SuiteFile, root, noted)
    except InvalidDocument as error:
        problems += error.problems
    base = _base(root)
    scenarios: dict[str, Scenario] = {}
    for file in sorted(scenario_texts):
        try:
            scenarios[file] = _scenario(scenario_texts[file], file, base)
        except InvalidDocument as error:
            problems += error.problems
    problems += _repeated_ids(scenarios)
    if not scenario_texts:
        problems.append(Problem("", "expected at least one scenario file, found none", SUITE_FILE))
    if suite is None or problems:
        raise InvalidDocument(_once(problems))
    entries = tuple(
        SuiteScenario(scenario_id=scenario.id, file=file, document=_document(scenario))
        for file, scenario in sorted(scenarios.items(), key=lambda item: item[1].id)
    )
    return Suite(
        suite_hash=_content_hash(suite.name, suite.version, entries),
        name=suite.name,
        version=suite.version,
        owner=suite.owner,
        scenarios=entries,
    )


def completed(suite: Suite, scenarios: Mapping[str, Scenario]) -> Suite:
    """The suite with these scenarios, by id, in the place of those it has; its hash is that of
    what it then holds."""
    entries = tuple(
        replace(entry, document=_document(scenarios[entry.scenario_id]))
        if entry.scenario_id in scenarios
        else entry
        for entry in suite.scenarios
    )
    suite_hash = _content_hash(suite.name, suite.version, entries)
    return replace(suite, suite_hash=suite_hash, scenarios=entries)


def located_suite(
    suite_text: str, scenario_texts: Mapping[str, str]
) -> tuple[Node, dict[str, Node]]:
    """The suite's document and, by file, each scenario's with the defaults and its failure profile
    in it: every value with the file and place that it comes from.

    Raises:
        InvalidDocument: a file cannot be read as YAML. Nothing else is checked.
    """
    root, _ = parse(suite_text, SUITE_FILE)
    base = _base(root)
    return root, {
        file: _complete(parse(text, file)[0], file, base)[0]
        for file, text in sorted(scenario_texts.items())
    }


def scenario_of(entry: SuiteScenario) -> Scenario:
    """The scenario that a published suite carries.

    Raises:
        InvalidDocument: it is not a scenario document, so it did not come from `parse_suite`.
    """
    try:
        return Scenario.model_validate_json(entry.document)
    except ValidationError as error:
        raise InvalidDocument(
            [
                Problem(".".join(map(str, e["loc"])), e["msg"], entry.file)
                for e in error.errors(include_url=False)
            ]
        ) from None


def incomplete_categories(suite: Suite) -> tuple[str, ...]:
    """The categories in which the suite has fewer than five scenarios."""
    counts = Counter(scenario_of(entry).category for entry in suite.scenarios)
    return tuple(c.value for c in Category if counts[c] < ENOUGH_SCENARIOS)


@dataclass(frozen=True, slots=True)
class _Base:
    """What the scenarios of a suite are completed from."""

    defaults: Node
    profiles: Node


def _scenario(text: str, file: str, base: _Base) -> Scenario:
    root, problems = parse(text, file)
    whole, unknown = _complete(root, file, base)
    return _validated(ScenarioFile, whole, problems + unknown).scenario


def _base(suite: Node) -> _Base:
    """What a suite has for its scenarios, whether or not the rest of it is right."""
    tree = suite.value if isinstance(suite.value, dict) else {}
    return _Base(_defaults(tree), tree.get("failure_profiles", Node({})))


def _defaults(tree: Mapping[str, Node]) -> Node:
    given = tree["defaults"].value if "defaults" in tree else {}
    fields = given if isinstance(given, dict) else {}
    owner = tree.get("owner")
    if owner is None or not isinstance(owner.value, str) or not owner.value:
        return Node(dict(fields))
    return Node({"owner": owner, **fields})


def _complete(root: Node, file: str, base: _Base) -> tuple[Node, list[Problem]]:
    """A scenario file over what it starts from, with its failure profile, and its stem as id where
    it has none; and what is wrong with the profile's name."""
    tree = root.value
    scenario = tree.get("scenario") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or scenario is None or not isinstance(scenario.value, dict):
        return root, []
    merged = _merged(base.defaults, scenario)
    problems: list[Problem] = []
    if isinstance(merged.value, dict):
        if not _text(merged.value.get("id")):
            merged.value["id"] = Node(PurePosixPath(file).stem, file, 1, 1)
        problems = _profiled(merged.value, base.profiles)
    return Node({**tree, "scenario": merged}, file, root.line, root.column), problems


def _profiled(fields: dict[str, Node], profiles: Node) -> list[Problem]:
    """Add the failures of the profile that the fields name after those they have."""
    named = fields.get("failure_profile")
    if named is None or not isinstance(named.value, str) or not named.value:
        return []
    known = profiles.value if isinstance(profiles.value, dict) else {}
    if named.value not in known:
        expected = f"one of {', '.join(known)}" if known else "`failure_profiles` in the suite"
        message = f"expected {expected}, found {named.value!r}"
        return [named.problem("scenario.failure_profile", message)]
    profile, own = known[named.value], fields.get("failures", Node([]))
    if not isinstance(profile.value, list) or not isinstance(own.value, list):
        return []
    added, problems = _multiplied(profile.value, fields.get("profile_multiplier"), named.value)
    fields["failures"] = Node(
        [*own.value, *added], own.file, own.line, own.column, own.key_line, own.key_column
    )
    return problems


def _multiplied(
    failures: list[Node], factor: Node | None, profile: str
) -> tuple[list[Node], list[Problem]]:
    """The failures of a profile with their rates multiplied, and which of these are none any more.

    A failure that is certain stays so where the factor is above 1. What is no number is told when
    the scenario is checked.
    """
    if factor is None or not _is_number(factor.value) or factor.value == 1:
        return failures, []
    by = float(factor.value)
    multiplied: list[Node] = []
    problems: list[Problem] = []
    for failure in failures:
        fields = failure.value if isinstance(failure.value, dict) else {}
        rate = fields.get("probability", Node(1.0))
        certain = _is_number(rate.value) and rate.value >= 1 and by > 1
        if not fields or not _is_number(rate.value) or certain:
            multiplied.append(failure)
            continue
        product = round(float(rate.value) * by, 12)
        if product > 1:
            name = fields["id"].plain() if "id" in fields else "without an id"
            message = (
                f"expected at most {1 / rate.value:g}: the rate {rate.value:g} of failure {name} "
                f"in profile {profile} would be {product:g}, found {factor.value:g}"
            )
            problems.append(factor.problem("scenario.profile_multiplier", message))
        changed = {**fields, "probability": replace(rate, value=min(1.0, product))}
        multiplied.append(replace(failure, value=changed))
    return multiplied, problems


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(node: Node | None) -> bool:
    return node is not None and node.value not in ("", None)


def _merged(defaults: Node, given: Node, name: str = "") -> Node:
    """`given` over `defaults`, each value keeping the place that it comes from."""
    base, over = defaults.value, given.value
    value: Any = over
    if isinstance(base, dict) and isinstance(over, dict):
        value = dict(base)
        for key, node in over.items():
            inner = key if not name else f"{name}.{key}"
            value[key] = _merged(base[key], node, inner) if key in base else node
    elif isinstance(base, list) and isinstance(over, list) and name in _APPENDED:
        value = [*base, *over]
    return Node(
        value, given.file, given.line, given.column, given.key_line, given.key_column
    )  # fmt: skip


def _validated(model: type[M], root: Node, problems: Iterable[Problem]) -> M:
    """The model of a document that has no problems, neither noted before nor found now."""
    found = list(problems)
    try:
        value = model.model_validate(root.plain())
    except ValidationError as error:
        raise InvalidDocument(_sorted(found + problems_of(error, model, root))) from None
    if found:
        raise InvalidDocument(_sorted(found))
    return value


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda p: (p.file, p.line or 0, p.column or 0, p.path))


def _once(problems: Iterable[Problem]) -> list[Problem]:
    """A mistake in the defaults or a profile shows in every scenario, and is reported once."""
    first: dict[tuple[object, ...], Problem] = {}
    for problem in problems:
        place = (problem.file, problem.line, problem.column, problem.message)
        first.setdefault(place if problem.line is not None else (problem,), problem)
    return list(first.values())


def _repeated_ids(scenarios: Mapping[str, Scenario]) -> list[Problem]:
    first: dict[str, str] = {}
    problems = []
    for file, scenario in scenarios.items():
        if scenario.id in first:
            message = (
                f"expected an id of its own, found {scenario.id!r} in {first[scenario.id]} too"
            )
            problems.append(Problem("scenario.id", message, file, 1, 1))
        first.setdefault(scenario.id, file)
    return problems


def _document(scenario: Scenario) -> str:
    # Without what is default anyway: a field added to the language later leaves hashes alone.
    return canonical_json(scenario.model_dump(mode="json", exclude_defaults=True))


def _content_hash(name: str, version: str, entries: Iterable[SuiteScenario]) -> str:
    content = {
        "name": name,
        "version": version,
        "scenarios": [json.loads(entry.document) for entry in entries],
    }
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """The same text for the same JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
