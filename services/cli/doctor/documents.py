"""Documents in JSON or YAML as plain values, whatever stands at their top."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from schemas.errors import InvalidDocument, Problem
from schemas.yaml_tree import parse
from services.cli.files import read_text

_MAX_BYTES = 4 * 1024 * 1024
_WRAP = "document:\n"


def read_document(path: Path) -> Any:
    """The value in a file.

    Raises:
        InvalidDocument: it is neither JSON nor YAML; with the place.
        CliError: it cannot be read.
    """
    return parse_document(read_text(path, _MAX_BYTES, "utf-8-sig"), str(path))


def parse_document(text: str, file: str) -> Any:
    """The value of a text, JSON if it looks so. Raises InvalidDocument."""
    if file.endswith(".json") or text.lstrip()[:1] in ("[", "{"):
        return _parse_json(text, file)
    if not re.match(r"(\s*(#.*)?\n|---[^\n]*\n)*-\s", text):
        return _parsed(text, file, 0).plain()
    # YAML is read with a mapping at its top, so a list is put below a key.
    body = re.sub(r"\A((\s*(#.*)?\n)*)---[^\n]*\n", r"\1\n", text)
    root = _parsed(_WRAP + body, file, 1).plain()
    return root["document"]


def _parsed(text: str, file: str, added: int) -> Any:
    try:
        root, problems = parse(text, file)
    except InvalidDocument as error:
        problems = list(error.problems)
    if problems:
        raise InvalidDocument(
            [
                Problem(p.path, p.message, p.file, p.line and max(1, p.line - added), p.column)
                for p in problems
            ]
        )
    return root


def _parse_json(text: str, file: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        problem = Problem("", f"not JSON: {error.msg}", file, error.lineno, error.colno)
    except (ValueError, RecursionError) as error:
        problem = Problem("", f"not JSON: {error}", file)
    raise InvalidDocument([problem])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    counts = Counter(key for key, _ in pairs)
    if len(counts) != len(pairs):
        repeated = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {repeated!r} stands twice in one object")
    return dict(pairs)
