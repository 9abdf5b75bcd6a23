"""`windtunnel scenarios`: check, publish and list suites."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import InvalidDocument, Problem
from schemas.loader import SUITE_FILE, incomplete_categories, scenario_of
from schemas.registry import Suite
from schemas.topics import SUITES
from services.cli import options
from services.cli.connection import Where, connect
from services.cli.errors import EXIT_USAGE, CliError, command
from services.cli.output import say, tell, tell_json, tell_table
from services.cli.publishing import publish_suite
from services.cli.records import Latest
from services.cli.suites import check_scenario, read_suite
from services.runtime.clock import iso

app = typer.Typer(help="Scenarios and suites.", no_args_is_help=True)


@app.command()
@command
def validate(
    paths: Annotated[list[Path], typer.Argument(help="Suite folders and scenario files.")],
    as_json: options.AsJson = False,
) -> int:
    """Check files; tells every problem with file, line and column. Exit code 2 if there is one."""
    problems: list[Problem] = []
    suites: list[Suite] = []
    checked = 0
    for path in paths:
        try:
            if path.is_dir() or path.name == SUITE_FILE:
                suite = read_suite(path if path.is_dir() else path.parent)
                suites.append(suite)
                checked += len(suite.scenarios)
            else:
                check_scenario(path)
                checked += 1
        except InvalidDocument as error:
            problems += error.problems
    if as_json:
        tell_json(
            {"valid": not problems, "problems": problems, "suites": [_summary(s) for s in suites]}
        )
    else:
        for problem in problems:
            tell(str(problem))
        if not problems:
            tell(f"{checked} scenario(s) are valid")
    for suite in suites:
        _warn_incomplete(suite)
    return EXIT_USAGE if problems else 0


@app.command()
@command
async def publish(
    folder: Annotated[Path, typer.Argument(help="A suite's folder.")],
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """Publish a suite, so that run requests can name it."""
    if not folder.is_dir():
        raise CliError(f"{folder} is not a folder")
    suite = read_suite(folder)
    suite = await publish_suite(connect(Where(directory, bootstrap)), suite)
    _warn_incomplete(suite)
    if as_json:
        tell_json(_summary(suite))
    else:
        tell(
            f"published {suite.name} {suite.version} with {len(suite.scenarios)} scenarios as "
            f"{suite.suite_hash}"
        )


@app.command("list")
@command
async def list_(
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """The published suites, the one published last at the end."""
    suites = (await Latest(connect(Where(directory, bootstrap)), SUITES, Suite).read()).values()
    if as_json:
        tell_json([_summary(suite) for suite in suites])
        return
    tell_table(
        ("suite", "version", "scenarios", "owner", "hash", "published"),
        [
            (
                suite.name,
                suite.version,
                len(suite.scenarios),
                suite.owner,
                suite.suite_hash,
                iso(suite.published_at_ms),
            )
            for suite in suites
        ],
    )


def _summary(suite: Suite) -> dict[str, object]:
    categories = Counter(scenario_of(entry).category.value for entry in suite.scenarios)
    return {
        "suite": suite.name,
        "version": suite.version,
        "owner": suite.owner,
        "suite_hash": suite.suite_hash,
        "published_at_ms": suite.published_at_ms,
        "scenarios": [entry.scenario_id for entry in suite.scenarios],
        "categories": dict(sorted(categories.items())),
        "incomplete_categories": incomplete_categories(suite),
    }


def _warn_incomplete(suite: Suite) -> None:
    if missing := incomplete_categories(suite):
        say(
            f"note: suite {suite.name} has fewer than five scenarios in {', '.join(missing)}; "
            f"verdicts will say that it is incomplete"
        )
