"""Reading suites and scenarios from folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.errors import InvalidDocument, Problem
from schemas.loader import SUITE_FILE, located_suite, parse_scenario, parse_suite
from schemas.registry import Suite
from schemas.yaml_tree import parse
from services.cli.corpora.resolving import (
    Corpora,
    located,
    scenario_with_corpora,
    suite_with_corpora,
)
from services.cli.errors import CliError
from services.cli.files import read_text
from services.cli.seeds import scenario_with_seeds, suite_with_seeds, without_seeds

_SUFFIXES = (".yaml", ".yml")
_MAX_FILE_BYTES = 1024 * 1024


def read_suite(folder: Path) -> Suite:
    """The suite of a folder, ready to be published: its `suite.yaml` and every other YAML file
    below it, with the texts that its scenarios take from corpora and the state that their worlds
    take from files.

    Raises:
        InvalidDocument: with every problem of every file; corpora and state are looked up when
            there is none.
        CliError: there is no such suite, or a file cannot be read.
    """
    suite_text, texts = read_texts(folder)
    try:
        suite = parse_suite(suite_text, texts)
        try:
            return suite_with_corpora(suite_with_seeds(suite, folder), Corpora(folder))
        except InvalidDocument as error:
            _, trees = located_suite(suite_text, texts)
            placed = [
                located(one, trees[one.file]) if one.file in trees else one
                for one in error.problems
            ]
            raise InvalidDocument(placed) from None
    except InvalidDocument as error:
        raise InvalidDocument(_located(folder, error.problems)) from None


def read_texts(folder: Path) -> tuple[str, dict[str, str]]:
    """The text of a suite's `suite.yaml`, and those of its scenario files by name in the folder.

    Raises:
        CliError: there is no such suite, or a file cannot be read.
    """
    if not (folder / SUITE_FILE).is_file():
        raise CliError(f"{folder} has no {SUITE_FILE}: a suite is a folder with one")
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES and path != folder / SUITE_FILE and path.is_file()
    )
    texts = {path.relative_to(folder).as_posix(): _read(path) for path in files}
    suite_text = _read(folder / SUITE_FILE)
    return suite_text, without_seeds(suite_text, texts)


def check_scenario(path: Path) -> None:
    """Check one scenario file, with the defaults of the suite beside it.

    Raises:
        InvalidDocument: with every problem of the file.
        CliError: it cannot be read.
    """
    text = _read(path)
    try:
        scenario = parse_scenario(text, path.name, *_base(path.with_name(SUITE_FILE)))
        try:
            scenario = scenario_with_seeds(scenario, path.parent)
            scenario_with_corpora(scenario, Corpora(path.parent))
        except InvalidDocument as error:
            root, _ = parse(text, path.name)
            placed = [located(one, root) if not one.file else one for one in error.problems]
            raise InvalidDocument(placed) from None
    except InvalidDocument as error:
        raise InvalidDocument(_located(path.parent, error.problems)) from None


def _base(suite_file: Path) -> tuple[Any, Any]:
    """The defaults and the failure profiles of a suite's scenarios."""
    if not suite_file.is_file():
        return {}, {}
    root, _ = parse(_read(suite_file), suite_file.name)
    document = root.plain()
    defaults, profiles = document.get("defaults"), document.get("failure_profiles")
    owner = {"owner": document["owner"]} if "owner" in document else {}
    return (
        {**owner, **(defaults if isinstance(defaults, dict) else {})},
        profiles if isinstance(profiles, dict) else {},
    )


def _located(folder: Path, problems: Sequence[Problem]) -> list[Problem]:
    return [
        replace(problem, file=str(folder / problem.file)) if problem.file else problem
        for problem in problems
    ]


def _read(path: Path) -> str:
    return read_text(path, _MAX_FILE_BYTES)
