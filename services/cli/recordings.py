"""Recorded conversations as scenarios: chat logs whose user's side is said again to other agents.

A log is JSON: a list of messages with `role` and `content`, as chat APIs have them, or an object
with such a list under `messages`; or JSON lines, a conversation each. `who` and `text`, as
scenarios have them, will do as well. What system and tools say is nobody's line and left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError

from schemas.errors import InvalidDocument, Problem
from schemas.loader import parse_scenario
from schemas.scenario import Category
from schemas.user import RecordedLine
from services.cli.dataset_suite import slug
from services.cli.errors import CliError, command
from services.cli.files import read_text
from services.cli.output import tell

_USERS = frozenset({"user", "human", "customer"})
_AGENTS = frozenset({"assistant", "agent", "ai", "bot"})
_NOBODY = frozenset({"system", "developer", "tool", "function"})
_MAX_BYTES = 8 * 1024 * 1024
_MAX_CONVERSATIONS = 1000
_COMMENT = (
    "# Recorded: the user says these lines again for as long as the agent's answers mean what the\n"
    "# recorded ones meant. Add what the judge expects (`expect`, `policies`) and the `world`.\n"
)


@command
def import_chat(
    file: Annotated[Path, typer.Argument(help="A chat log: JSON, or JSON lines.")],
    name: Annotated[str, typer.Option(help="What it shows, in a sentence.")],
    out: Annotated[Path, typer.Option(help="The folder to write scenarios into.")] = Path("."),
    category: Annotated[str, typer.Option(help="happy or adversarial.")] = Category.HAPPY.value,
) -> None:
    """Make a scenario of each recorded conversation, whose user is played from the recording."""
    if category not in (Category.HAPPY, Category.ADVERSARIAL):
        raise CliError(f"--category {category}: expected happy or adversarial")
    if not out.is_dir():
        raise CliError(f"{out} is not a folder")
    written = {
        out / f"{slug(scenario['name'], 60) or 'recorded'}.yaml": _text(scenario)
        for scenario in scenarios(read_text(file, _MAX_BYTES), str(file), name.strip(), category)
    }
    if there := [path for path in written if path.exists()]:
        raise CliError(f"{there[0]} is there already: choose another name")
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
        tell(str(path))


def scenarios(text: str, file: str, name: str, category: str) -> list[dict[str, Any]]:
    """A scenario document for each conversation of a log.

    Raises:
        InvalidDocument: with every conversation that cannot be said again.
    """
    logs = list(_conversations(text, file))
    found: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for number, (line, log) in enumerate(logs, 1):
        many = len(logs) > 1
        try:
            scenario: dict[str, Any] = {
                "name": f"{name} {number}" if many else name,
                "category": category,
                "origin": f"recorded in {Path(file).name}" + (f", conversation {number}" * many),
                "user": {"recording": list(_lines(log))},
            }
            if not scenario["user"]["recording"]:
                raise ValueError("expected lines of user and agent, found none")
            parse_scenario(_text(scenario), f"recorded-{number}.yaml")
            found.append(scenario)
        except ValueError as error:
            problems.append(Problem("", str(error), file, line))
        except InvalidDocument as error:
            problems += [Problem(p.path, p.message, file, line) for p in error.problems]
    if not logs:
        problems.append(Problem("", "expected a conversation, found none", file))
    if problems:
        raise InvalidDocument(problems)
    return found


def _conversations(text: str, file: str) -> Iterator[tuple[int, Any]]:
    """Each conversation with the line that it begins in."""
    try:
        whole = json.loads(text)
    except ValueError:
        rows = [(n, row) for n, row in enumerate(text.splitlines(), 1) if row.strip()]
        if len(rows) > _MAX_CONVERSATIONS:
            raise CliError(f"{file} has more than {_MAX_CONVERSATIONS} conversations") from None
        for number, row in rows:
            try:
                yield number, json.loads(row)
            except ValueError as error:
                message = f"neither JSON nor JSON lines: {error}"
                raise InvalidDocument([Problem("", message, file, number)]) from None
    else:
        yield 1, whole


def _lines(log: Any) -> Iterator[dict[str, str]]:
    messages = log.get("messages") if isinstance(log, Mapping) else log
    if not isinstance(messages, list):
        raise ValueError("expected a list of messages, or an object with one under `messages`")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, Mapping):
            raise ValueError(f"message {number}: expected an object")
        role = str(message.get("role", message.get("who", ""))).casefold()
        text = _said(message.get("content", message.get("text")))
        ending = message.get("ending")
        if role not in _USERS | _AGENTS | _NOBODY:
            raise ValueError(f"message {number}: {role!r} is neither user nor assistant")
        if role in _NOBODY or not (text or ending):
            continue  # such as a message that only calls tools
        line = {"who": "user" if role in _USERS else "agent", "text": text}
        if ending:
            line["ending"] = ending
        try:
            RecordedLine.model_validate(line)
        except ValidationError as error:
            raise ValueError(f"message {number}: {error.errors()[0]['msg']}") from None
        yield line


def _said(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str)).strip()
    return content.strip() if isinstance(content, str) else ""


def _text(scenario: Mapping[str, Any]) -> str:
    dumped = yaml.safe_dump(
        {"scenario": dict(scenario)}, sort_keys=False, allow_unicode=True, width=100
    )
    return _COMMENT + dumped
