"""Datasets as suites: a scenario file for each row, in a folder that appears whole or not at all.

Where a row's columns are in its scenario, word for word:

- `user_instruction`: the fact of that name, and what the user says to ask for the one goal;
- `initial_state`: `setup.initial_slots`, which the agent gets as its task input;
- `behavior_instructions`: the description of the persona of that name.

A dataset does not say what must come out. So the user's goal is done when the agent has answered,
unless a pattern for it is given, and criteria, expectations and policies are the suite's to add:
most easily under `defaults` of its `suite.yaml`, which importing again leaves alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.errors import InvalidDocument, Problem
from schemas.loader import SUITE_FILE, canonical_json, parse_scenario, parse_suite
from schemas.scenario import Scenario
from schemas.yaml_tree import parse
from services.cli.dataset import BEHAVIOR, STATE, USER, Dataset, Row, quoted
from services.cli.drafts import kept_files, replacing
from services.cli.errors import CliError

CATEGORIES = ("happy", "adversarial", "load")
"""The others need failures, or several conversations, which a row does not have."""
FACT = "user_instruction"
PERSONA = "behavior_instructions"
MAX_TOLD = 10_000
_MARK = "# Imported from a dataset: importing it again replaces this file.\n"
_MAX_FILE_BYTES = 1024 * 1024
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w.-]*\}")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """What a dataset does not say of its suite.

    Attributes:
        world: The world behind the simulated tools; empty for none.
        done_when: A pattern that the user must hear from the agent to be content.
    """

    name: str
    owner: str
    version: str = "1"
    category: str = "happy"
    world: str = ""
    done_when: str = r"\S"

    def __post_init__(self) -> None:
        if self.category not in CATEGORIES:
            raise CliError(
                f"--category {self.category}: expected one of {', '.join(CATEGORIES)}; scenarios "
                f"of other categories need what a dataset has no column for"
            )


@dataclass(frozen=True, slots=True)
class Imported:
    """What was written. `document_bytes`: the size of the suite as it would be published."""

    folder: Path
    scenarios: int
    with_behavior: int
    document_bytes: int
    kept_suite_file: bool


def import_dataset(
    dataset: Dataset, folder: Path, options: SuiteOptions, *, force: bool, progress: Progress
) -> Imported:
    """Write the dataset as a suite's folder. Holds one row at a time.

    Args:
        force: Replace what an earlier import left in the folder; other files stay.
        progress: Told the bytes read and the rows written, after each row.

    Raises:
        InvalidDocument: with every problem of every row; nothing is written then.
        CliError: the folder cannot be written, or holds files and `force` is not given.
    """
    kept = kept_files(folder, _MARK, force=force)
    suite_text = _suite_text(options)
    if SUITE_FILE in kept:
        suite_text = (folder / SUITE_FILE).read_text(encoding="utf-8")
    problems: list[Problem] = []
    more = written = with_behavior = size = 0
    with replacing(folder, kept) as draft:
        if SUITE_FILE not in kept:
            (draft / SUITE_FILE).write_text(suite_text, encoding="utf-8")
        defaults = _defaults(suite_text)
        for row in dataset.rows():
            found: list[Problem] = []
            if isinstance(row, Problem):
                found = [row]
            else:
                try:
                    file, text, scenario = _checked(
                        dataset.path, row, options, None if written else defaults
                    )
                except InvalidDocument as error:
                    found = list(error.problems)
            more += max(0, len(problems) + len(found) - MAX_TOLD)
            problems += found[: MAX_TOLD - len(problems)]
            if problems or isinstance(row, Problem):
                continue  # nothing will be written, so what follows is only checked
            if file in kept:
                raise CliError(f"{folder / file} was not made by an import: rename it")
            (draft / file).write_text(text, encoding="utf-8")
            written += 1
            with_behavior += bool(row.behavior_instructions.strip())
            document = scenario.model_dump(mode="json", exclude_defaults=True)
            size += len(canonical_json(document).encode())
            if written == 1:
                parse_suite(suite_text, {file: text})
            progress(dataset.bytes_read, written)
        if more:
            problems.append(Problem("", f"{more} more problems", str(dataset.path)))
        if not problems and not written:
            problems.append(Problem("", "expected at least one row", str(dataset.path)))
        if problems:
            raise InvalidDocument(problems)
    return Imported(folder, written, with_behavior, size, SUITE_FILE in kept)


def check_dataset(dataset: Dataset) -> tuple[int, list[Problem]]:
    """How many rows can be imported, and what is wrong with the others; writes nothing."""
    options = SuiteOptions(name="dataset", owner="nobody")
    good, problems = 0, list[Problem]()
    for row in dataset.rows():
        try:
            if isinstance(row, Problem):
                raise InvalidDocument([row])
            _checked(dataset.path, row, options, None if good else {})
            good += 1
        except InvalidDocument as error:
            problems += error.problems[: MAX_TOLD - len(problems)]
    if not good and not problems:
        problems.append(Problem("", "expected at least one row", str(dataset.path)))
    return good, problems


def scenario_text(row: Row, source: str, done_when: str = r"\S") -> str:
    """The scenario file of a row. YAML, of which every text is written as JSON writes it."""
    return _rendered(_fields(row, source, done_when))


def _fields(row: Row, source: str, done_when: str) -> dict[str, Any]:
    instruction = row.user_instruction
    # Braces in what is said name facts, so such a text is said by way of a fact.
    by_fact = _PLACEHOLDER.search(instruction) is not None
    user: dict[str, Any] = {
        "facts": {FACT: {"value": instruction}},
        "goals": [{"say": [f"{{{FACT}}}" if by_fact else instruction], "done_when": [done_when]}],
    }
    if row.behavior_instructions:
        user["personas"] = [{"name": PERSONA, "description": row.behavior_instructions}]
    fields: dict[str, Any] = {
        "name": _title(instruction),
        "origin": f"dataset {source}, row {row.number}",
        "setup": {"initial_slots": row.initial_state},
        "user": user,
    }
    if by_fact:
        fields["simulation_context"] = instruction
    return fields


def _rendered(fields: Mapping[str, Any]) -> str:
    lines = [_MARK, "scenario:\n"]
    for name, value in fields.items():
        if name != "user":
            lines.append(f"  {name}: {quoted(value)}\n")
    lines.append("  user:\n")
    lines += [f"    {name}: {quoted(value)}\n" for name, value in fields["user"].items()]
    return "".join(lines)


def columns_of(scenario: Scenario) -> dict[str, Any]:
    """What a scenario's row had in its columns: user, state, behavior.

    Raises:
        ValueError: the scenario was not imported from a dataset.
    """
    user = scenario.user
    if user is None or FACT not in user.facts:
        raise ValueError(f"scenario {scenario.id} was not imported from a dataset")
    behavior = [p.description for p in user.personas if p.name == PERSONA]
    return {
        USER: user.facts[FACT].value,
        STATE: dict(scenario.setup.initial_slots),
        BEHAVIOR: behavior[0] if behavior else "",
    }


def file_name(row: Row) -> str:
    """The row's file; without its suffix it is the scenario's id."""
    return f"{slug(row.user_instruction, 48) or 'row'}-{row.number:05d}.yaml"


def slug(text: str, longest: int) -> str:
    """A text's first words as part of an id; empty if it has no letters and digits of ASCII."""
    ascii_text = unicodedata.normalize("NFKD", text[:400]).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", ascii_text.lower()).strip("-")
    if len(words) > longest:
        words = words[: longest + 1].rpartition("-")[0] or words[:longest]
    return words.strip("-")


def _checked(
    path: Path, row: Row, options: SuiteOptions, defaults: Mapping[str, Any] | None
) -> tuple[str, str, Scenario]:
    """File name, text and scenario of a row.

    Args:
        defaults: Those of the suite, for a row that the loader is to read: one of a dataset is
            enough, since rows differ in their values only, and a value that the model takes is
            read as it was written. The loader takes a hundred times as long as the model.

    Raises:
        InvalidDocument: the row cannot be a scenario.
    """
    fields = _fields(row, path.name, options.done_when)
    file, text = file_name(row), _rendered(fields)
    try:
        if len(text.encode()) > _MAX_FILE_BYTES:
            message = f"expected a row whose scenario has at most {_MAX_FILE_BYTES} bytes"
            raise InvalidDocument([Problem("scenario", message)])
        if defaults is None:
            try:
                return file, text, Scenario.model_validate(fields)
            except ValidationError:
                defaults = {}  # the loader has the words for it
        return file, text, parse_scenario(text, file, defaults)
    except InvalidDocument as error:
        raise InvalidDocument(
            [Problem(_column(p.path), p.message, str(path), row.line) for p in error.problems]
        ) from None


def _column(path: str) -> str:
    # Nothing else of a row has a structure that YAML could object to.
    if not path or path.startswith("scenario.setup"):
        return STATE
    return BEHAVIOR if "personas" in path else path


def _suite_text(options: SuiteOptions) -> str:
    defaults: dict[str, Any] = {"category": options.category}
    if options.category == "load":
        defaults["load"] = {}
    if options.world:
        defaults["world"] = {"name": options.world}
    fields = {
        "name": options.name,
        "version": options.version,
        "owner": options.owner,
        "defaults": defaults,
    }
    return "".join(f"{name}: {quoted(value)}\n" for name, value in fields.items())


def _defaults(suite_text: str) -> Mapping[str, Any]:
    document = parse(suite_text, SUITE_FILE)[0].plain()
    defaults = document.get("defaults")
    # Its failures are not among the defaults; the suite is read with the first scenario anyway.
    given = defaults if isinstance(defaults, dict) else {}
    elsewhere = ("failure_profile", "profile_multiplier")
    return {name: value for name, value in given.items() if name not in elsewhere}


def _title(text: str) -> str:
    words = " ".join(text[:400].split())
    return words if len(words) <= 80 else words[:79] + "…"
