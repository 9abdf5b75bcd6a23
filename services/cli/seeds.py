"""State that a scenario's world starts with, read from files of its suite.

    world:
      name: shop
      files: [seeds/orders.json, seeds/customers.csv, seeds/project]

JSON and YAML files hold an object, which is merged into the state. The rows of `customers.csv`
become `/tables/customers`, by the text in their first column. A folder's texts become `/files`.
Later files lie over earlier ones, and the scenario's own `state` over all of them. A published
suite carries what was read: nobody else needs the files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from schemas.errors import InvalidDocument, Problem
from schemas.loader import canonical_json, completed, scenario_of
from schemas.merge_patch import patched
from schemas.registry import Suite
from schemas.scenario import Scenario
from schemas.yaml_tree import parse
from services.cli.errors import CliError
from services.cli.files import read_text

MAX_FILE_BYTES = 1024 * 1024
MAX_SCENARIO_BYTES = 1024 * 1024
"""What all files of one scenario may come to: each of its sessions carries it."""
MAX_FOLDER_FILES = 1000
_YAML = (".yaml", ".yml")
_KINDS = "a folder, or a file that ends with .json, .yaml, .yml or .csv"


def suite_with_seeds(suite: Suite, folder: Path) -> Suite:
    """The suite with the state that its scenarios take from files; the same if they take none.

    Raises:
        InvalidDocument: with every file that cannot be used; the problem's file is the scenario's,
            or the file itself where something in it is wrong.
    """
    changed: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for entry in suite.scenarios:
        scenario = scenario_of(entry)
        try:
            whole = scenario_with_seeds(scenario, folder)
        except InvalidDocument as error:
            problems += [p if p.file else Problem(p.path, p.message, entry.file)
                         for p in error.problems]  # fmt: skip
            continue
        if whole is not scenario:
            changed[entry.scenario_id] = whole
    if problems:
        raise InvalidDocument(list(dict.fromkeys(problems)))
    return completed(suite, changed) if changed else suite


def scenario_with_seeds(scenario: Scenario, folder: Path) -> Scenario:
    """The scenario with its files' content as state; the same one if it names no files.

    Raises:
        InvalidDocument: with every file that cannot be used.
    """
    world = scenario.world
    if world is None or not world.files:
        return scenario
    state: Any = {}
    problems: list[Problem] = []
    for number, name in enumerate(world.files):
        place = f"scenario.world.files[{number}]"
        try:
            state = patched(state, _seed(name, folder), keep_nulls=True)
        except _Unusable as error:
            problems.append(Problem(place, f"{name}: {error}"))
        except InvalidDocument as error:
            problems += error.problems
    size = len(canonical_json(state).encode())
    if not problems and size > MAX_SCENARIO_BYTES:
        message = f"expected at most {MAX_SCENARIO_BYTES} bytes of state, found {size}"
        problems.append(Problem("scenario.world.files", message))
    if problems:
        raise InvalidDocument(problems)
    whole = patched(state, world.state, keep_nulls=True)
    seeded = world.model_copy(update={"files": (), "state": whole})
    return scenario.model_copy(update={"world": seeded})


def without_seeds(suite_text: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of a suite's YAML files that are scenarios: those that no world takes state
    from."""
    if not any("files" in text for text in (suite_text, *texts.values())):
        return dict(texts)
    named = {name for text in (suite_text, *texts.values()) for name in _named(text)}
    seeds = {PurePosixPath(name).as_posix() for name in named} - {"."}
    return {
        file: text
        for file, text in texts.items()
        if file not in seeds and not any(p.as_posix() in seeds for p in PurePosixPath(file).parents)
    }


class _Unusable(Exception):
    """A file cannot be read, or is none that state comes from."""


def _named(text: str) -> Iterator[str]:
    """The files that a scenario, or a suite's defaults, take state from."""
    try:
        document = parse(text, "")[0].plain()
    except InvalidDocument:
        return  # whoever reads it as what it is says what is wrong with it
    for part in ("scenario", "defaults"):
        found: Any = document
        for key in (part, "world", "files"):
            found = found.get(key) if isinstance(found, dict) else None
        yield from (name for name in found or () if isinstance(name, str))


def _seed(name: str, folder: Path) -> Any:
    """The state that one file or folder holds.

    Raises:
        _Unusable: it is missing, elsewhere, too large, or of another kind.
        InvalidDocument: something in it is wrong.
    """
    relative = PurePosixPath(name)
    path, root = folder / name, folder.resolve()
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise _Unusable("expected a path within the suite's folder")
    if not path.exists():
        raise _Unusable("there is no such file in the suite's folder")
    if not path.resolve().is_relative_to(root):
        raise _Unusable("it is a link that leads out of the suite's folder")
    if path.is_dir():
        return {"files": _folder(path)}
    suffix = relative.suffix.lower()
    if suffix not in (".json", ".csv", *_YAML):
        raise _Unusable(f"expected {_KINDS}")
    text = _read(path)
    if suffix == ".csv":
        return {"tables": {relative.stem: _table(text, name)}}
    value = _json(text, name) if suffix == ".json" else _yaml(text, name)
    if not isinstance(value, dict):
        raise InvalidDocument([Problem("", "expected an object", name, 1, 1)])
    return value


def _read(path: Path) -> str:
    try:
        return read_text(path, MAX_FILE_BYTES, "utf-8-sig")
    except CliError as error:
        raise _Unusable(str(error)) from None


def _json(text: str, name: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        problem = Problem("", f"expected JSON: {error.msg}", name, error.lineno, error.colno)
        raise InvalidDocument([problem]) from None


def _yaml(text: str, name: str) -> Any:
    root, problems = parse(text, name)
    if problems:
        raise InvalidDocument(problems)
    return root.plain()


def _table(text: str, name: str) -> dict[str, dict[str, str]]:
    """Rows by the text of their first column. What a row leaves empty it does not have."""
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: dict[str, dict[str, str]] = {}
    problems: list[Problem] = []
    try:
        header = next(reader, [])
        if not header or not all(header) or len(set(header)) < len(header):
            problems.append(Problem("", "expected a name for each column, once", name, 1, 1))
        for cells in reader:
            if not cells or (problems and problems[0].line == 1):
                continue
            if len(cells) != len(header):
                message = f"expected {len(header)} columns, found {len(cells)}"
                problems.append(Problem("", message, name, reader.line_num))
            elif not cells[0] or cells[0] in rows:
                message = f"expected a {header[0]} of its own, found {cells[0]!r}"
                problems.append(Problem(header[0], message, name, reader.line_num))
            else:
                rows[cells[0]] = {c: v for c, v in zip(header, cells, strict=True) if v}
    except csv.Error as error:
        problems.append(Problem("", f"expected CSV: {error}", name, reader.line_num))
    if problems:
        raise InvalidDocument(problems)
    return rows


def _folder(folder: Path) -> dict[str, str]:
    """The texts of a folder by path."""
    texts: dict[str, str] = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise _Unusable(f"{name} is a link")
        if path.is_dir():
            continue
        texts[name] = _text(path)
        size += len(texts[name].encode())
        if len(texts) > MAX_FOLDER_FILES or size > MAX_SCENARIO_BYTES:
            bounds = f"{MAX_FOLDER_FILES} files and {MAX_SCENARIO_BYTES} bytes"
            raise _Unusable(f"expected at most {bounds} in the folder")
    return texts


def _text(path: Path) -> str:
    try:
        return read_text(path, MAX_FILE_BYTES)
    except CliError as error:
        raise _Unusable(str(error)) from None
