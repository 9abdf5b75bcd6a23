"""Our own corpus: neutral texts, in `own.yaml` beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from schemas.yaml_tree import parse
from services.cli.corpora.model import CorpusError, Text

FILE = Path(__file__).with_name("own.yaml")


@cache
def all_texts() -> tuple[Text, ...]:
    """Every text, in the order of the file."""
    root, problems = parse(FILE.read_text(encoding="utf-8"), FILE.name)
    if problems:
        raise CorpusError(str(problems[0]))
    return tuple(Text(**entry) for entry in root.plain()["texts"])


def techniques() -> tuple[str, ...]:
    """The techniques that the texts are arranged by."""
    return tuple(dict.fromkeys(one.technique for one in all_texts()))


def own_texts(technique: str = "") -> tuple[Text, ...]:
    """The texts of some techniques, separated by commas; all if empty.

    Raises:
        CorpusError: there is no such technique.
    """
    wanted = [name.strip() for name in technique.split(",")] if technique else techniques()
    for name in wanted:
        if name not in techniques():
            expected = ", ".join(techniques())
            raise CorpusError(f"expected a technique of {expected}, found {name!r}")
    return tuple(one for one in all_texts() if one.technique in wanted)
