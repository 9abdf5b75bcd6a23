"""Scenario and suite files as checked documents, every problem of every file at once.

Pure functions over texts: reading the folder is the caller's part. A suite's `defaults` are what
each scenario starts from: mappings are merged, anything else is replaced, except that a
scenario's `policies` and `failures` are added to those of the defaults.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

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
    text: str, file: str, defaults: Mapping[str, JsonValue] | None = None
) -> Scenario:
    """The scenario of one file; its id defaults to the file's stem.

    Args:
        defaults: Scenario fields that this one starts from.

    Raises:
        InvalidDocument: with every problem of the file.
    """
    return _scenario(text, file, node_of(defaults or {}))


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
    defaults = _defaults(root)
    scenarios: dict[str, Scenario] = {}
    for file in sorted(scenario_texts):
        try:
            scenarios[file] = _scenario(scenario_texts[file], file, defaults)
        except InvalidDocument as error:
            problems += error.problems
    problems += _repeated_ids(scenarios)
    if not scenario_texts:
        problems.append(Problem("", "expected at least one scenario file, found none", SUITE_FILE))
    if suite is None or problems:
        # A mistake in the defaults shows in every scenario, and is reported once.
        raise InvalidDocument(list(dict.fromkeys(problems)))
    entries = tuple(
        SuiteScenario(scenario_id=scenario.id, file=file, document=_document(scenario))
        for file, scenario in sorted(scenarios.items(), key=lambda item: item[1].id)
    )
    return Suite(
        suite_hash=_content_hash(suite, entries),
        name=suite.name,
        version=suite.version,
        owner=suite.owner,
        scenarios=entries,
    )


def located_suite(
    suite_text: str, scenario_texts: Mapping[str, str]
) -> tuple[Node, dict[str, Node]]:
    """The suite's document and, by file, each scenario's with the defaults in it: every value with
    the file and place that it comes from.

    Raises:
        InvalidDocument: a file cannot be read as YAML. Nothing else is checked.
    """
    root, _ = parse(suite_text, SUITE_FILE)
    defaults = _defaults(root)
    return root, {
        file: _with_defaults(parse(text, file)[0], file, defaults)
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


def _scenario(text: str, file: str, defaults: Node) -> Scenario:
    root, problems = parse(text, file)
    return _validated(ScenarioFile, _with_defaults(root, file, defaults), problems).scenario


def _defaults(suite: Node) -> Node:
    """What every scenario of a suite starts from, whether or not the rest of it is right."""
    tree = suite.value if isinstance(suite.value, dict) else {}
    given = tree["defaults"].value if "defaults" in tree else {}
    fields = given if isinstance(given, dict) else {}
    owner = tree.get("owner")
    if owner is None or not isinstance(owner.value, str) or not owner.value:
        return Node(dict(fields))
    return Node({"owner": owner, **fields})


def _with_defaults(root: Node, file: str, defaults: Node) -> Node:
    """A scenario file over what it starts from, its stem as id where it has none."""
    tree = root.value
    scenario = tree.get("scenario") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or scenario is None or not isinstance(scenario.value, dict):
        return root
    merged = _merged(defaults, scenario)
    if isinstance(merged.value, dict) and not _text(merged.value.get("id")):
        merged.value["id"] = Node(PurePosixPath(file).stem, file, 1, 1)
    return Node({**tree, "scenario": merged}, file, root.line, root.column)


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


def _content_hash(suite: SuiteFile, entries: Iterable[SuiteScenario]) -> str:
    content = {
        "name": suite.name,
        "version": suite.version,
        "scenarios": [json.loads(entry.document) for entry in entries],
    }
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """The same text for the same JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
