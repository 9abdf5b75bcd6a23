"""`windtunnel scenarios`: check, publish and list suites; import datasets as suites.

What helps to write them - `lint`, `show`, `new` - is in `services.cli.lint`.
"""

from __future__ import annotations

import getpass
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from schemas.errors import InvalidDocument, Problem
from schemas.loader import SUITE_FILE, incomplete_categories, scenario_of
from schemas.registry import Suite
from schemas.topics import MAX_RECORD_BYTES, SUITES
from services.cli import options
from services.cli.connection import Where, connect
from services.cli.dataset import DELIMITERS, Dataset, open_dataset
from services.cli.dataset_progress import ImportProgress
from services.cli.dataset_suite import Imported, SuiteOptions, import_dataset, slug
from services.cli.errors import EXIT_USAGE, CliError, command
from services.cli.lint import commands as writing
from services.cli.output import say, tell, tell_json, tell_table
from services.cli.publishing import publish_suite
from services.cli.recordings import import_chat
from services.cli.records import Latest
from services.cli.suites import check_scenario, read_suite
from services.runtime.clock import iso

app = typer.Typer(help="Scenarios and suites.", no_args_is_help=True)
app.command()(writing.lint)
app.command()(writing.show)
app.command()(writing.new)
app.command("import-chat")(import_chat)


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


@app.command("import-csv")
@command
def import_csv(
    file: Annotated[Path, typer.Argument(help="CSV with the columns user, state, behavior.")],
    out: Annotated[Path, typer.Option(help="The folder of the suite to write.")],
    name: Annotated[str, typer.Option(help="The suite's name; the file's if not given.")] = "",
    owner: Annotated[str, typer.Option(help="Who keeps the suite; you if not given.")] = "",
    suite_version: Annotated[str, typer.Option(help="The suite's version.")] = "1",
    category: Annotated[str, typer.Option(help="happy, adversarial or load.")] = "happy",
    world: Annotated[str, typer.Option(help="The world behind the simulated tools.")] = "",
    done_when: Annotated[
        str, typer.Option(help="What the user must hear to be content: a regular expression.")
    ] = r"\S",
    delimiter: Annotated[
        str, typer.Option(help="What divides the cells, or tab; found out if not given.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace the scenarios of an earlier import.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Make a suite of a dataset: each row becomes a scenario. Nothing is written if any is bad."""
    chosen = SuiteOptions(
        name=name or slug(file.stem, 100) or "dataset",
        owner=owner or _user(),
        version=suite_version,
        category=category,
        world=world,
        done_when=done_when,
    )
    with open_dataset(file, delimiter) as dataset, ImportProgress(dataset.size) as progress:
        done = import_dataset(dataset, out, chosen, force=force, progress=progress.show)
    notes = _import_notes(dataset, done)
    for note in notes:
        say(f"note: {note}")
    if as_json:
        tell_json({"folder": str(done.folder), "scenarios": done.scenarios, "notes": notes})
    else:
        tell(f"wrote {done.scenarios} scenarios to {done.folder}")


def _import_notes(dataset: Dataset, done: Imported) -> list[str]:
    notes = []
    if dataset.ignored:
        names = ", ".join(map(repr, dataset.ignored))
        divided = DELIMITERS.get(dataset.delimiter, repr(dataset.delimiter))
        notes.append(f"columns left out, as scenarios have no place for them: {names} ({divided})")
    if dataset.empty_rows:
        notes.append(f"{dataset.empty_rows} rows without any text were passed over")
    if done.with_behavior:
        notes.append(
            f"{done.with_behavior} rows have behavior instructions, which only a model can follow: "
            f"set WINDTUNNEL_USER_SIMULATOR=llm and WINDTUNNEL_USER_MODEL"
        )
    if done.kept_suite_file:
        notes.append(f"{done.folder / SUITE_FILE} was there and is as it was")
    if done.document_bytes > MAX_RECORD_BYTES:
        notes.append(
            f"the suite has {done.document_bytes} bytes, and a record at most {MAX_RECORD_BYTES}: "
            f"it cannot be published as one; divide the dataset"
        )
    return notes


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise CliError("--owner is needed: this system has no name for you") from None


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
