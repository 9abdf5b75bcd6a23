"""Reading suites and scenarios from folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.errors import InvalidDocument, Problem
from schemas.loader import SUITE_FILE, parse_scenario, parse_suite
from schemas.registry import Suite
from schemas.yaml_tree import parse
from services.cli.errors import CliError
from services.cli.files import read_text

_SUFFIXES = (".yaml", ".yml")
_MAX_FILE_BYTES = 1024 * 1024


def read_suite(folder: Path) -> Suite:
    """The suite of a folder: its `suite.yaml` and every other YAML file below it.

    Raises:
        InvalidDocument: with every problem of every file.
        CliError: there is no such suite, or a file cannot be read.
    """
    suite_text, texts = read_texts(folder)
    try:
        return parse_suite(suite_text, texts)
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
    return _read(folder / SUITE_FILE), texts


def check_scenario(path: Path) -> None:
    """Check one scenario file, with the defaults of the suite beside it.

    Raises:
        InvalidDocument: with every problem of the file.
        CliError: it cannot be read.
    """
    try:
        parse_scenario(_read(path), path.name, _defaults(path.with_name(SUITE_FILE)))
    except InvalidDocument as error:
        raise InvalidDocument(_located(path.parent, error.problems)) from None


def _defaults(suite_file: Path) -> Any:
    if not suite_file.is_file():
        return {}
    root, _ = parse(_read(suite_file), suite_file.name)
    document = root.plain()
    defaults = document.get("defaults")
    owner = {"owner": document["owner"]} if "owner" in document else {}
    return {**owner, **(defaults if isinstance(defaults, dict) else {})}


def _located(folder: Path, problems: Sequence[Problem]) -> list[Problem]:
    return [
        replace(problem, file=str(folder / problem.file)) if problem.file else problem
        for problem in problems
    ]


def _read(path: Path) -> str:
    return read_text(path, _MAX_FILE_BYTES)
