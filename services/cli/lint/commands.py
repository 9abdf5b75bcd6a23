"""`windtunnel scenarios lint`, `show` and `new`."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from schemas.briefs import judge_brief
from schemas.loader import SUITE_FILE, scenario_of
from schemas.registry import Suite
from schemas.scenario import Category, Scenario
from services.cli import options
from services.cli.connection import Where, connect
from services.cli.dataset_suite import slug
from services.cli.errors import EXIT_FAIL, CliError, command
from services.cli.lint.catalogue import BY_ID
from services.cli.lint.linting import read_linted, settled, static_findings
from services.cli.lint.model import Finding, Severity
from services.cli.lint.publish import SCENARIO_SCHEMA
from services.cli.lint.running import LintRuns, idle_findings, mutant_findings
from services.cli.lint.showing import shown
from services.cli.lint.skeletons import skeleton
from services.cli.output import say, tell, tell_json
from services.cli.registration import read_agent
from services.cli.suites import read_suite, read_texts

Folder = Annotated[Path, typer.Argument(help="A suite's folder.")]


@command
async def lint(
    folder: Folder,
    agent: Annotated[
        Path | None, typer.Option(help="The agent's document, to know which tools there are.")
    ] = None,
    disable: Annotated[
        list[str] | None, typer.Option(help="A rule not to apply; may be repeated.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Also run an agent that does nothing, on the stack.")
    ] = False,
    against: Annotated[
        str,
        typer.Option(help="Id of a registered agent that passes: also reverse each expectation."),
    ] = "",
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> int:
    """Look for rot: scenarios that are valid and show nothing. Exit code 1 if there is any.

    A comment `# lint: allow RULE: REASON` in a file allows what a rule finds in it. Notes leave
    the exit code alone.
    """
    disabled = disable or []
    for name in disabled:
        if name not in BY_ID:
            raise CliError(f"--disable {name}: expected one of {', '.join(BY_ID)}")
    whole = read_suite(folder)  # tells problems with the paths that were typed
    suite_text, texts = read_texts(folder)
    suite = read_linted(suite_text, texts, _tools(agent), whole)
    findings = list(static_findings(suite))
    if run or against:
        name = str(suite.root.plain()["name"])
        runs = LintRuns(connect(Where(directory, bootstrap)), name)
        if run:
            findings += await idle_findings(suite, runs)
        if against:
            findings += await mutant_findings(suite, runs, against)
    standing = settled(suite, findings, disabled, ran=run, mutated=bool(against))
    _tell(folder, standing, len(texts), as_json)
    return EXIT_FAIL if any(f.severity is not Severity.NOTE for f in standing) else 0


def _tools(agent: Path | None) -> dict[str, frozenset[str]] | None:
    if agent is None:
        return None
    schemas = {t.name: json.loads(t.input_schema) for t in read_agent(agent).registration().tools}
    return {name: frozenset(schema.get("properties", {})) for name, schema in schemas.items()}


def _tell(folder: Path, findings: list[Finding], scenarios: int, as_json: bool) -> None:
    if as_json:
        tell_json({"findings": findings, "scenarios": scenarios})
        return
    for finding in findings:
        tell(f"{folder}/{finding}")
    counts = Counter(finding.severity for finding in findings)
    told = ", ".join(f"{counts[s]} {s}{'s' * (counts[s] != 1)}" for s in Severity if counts[s])
    tell(f"{scenarios} scenario(s): {told or 'nothing found'}")


@command
def show(
    folder: Folder,
    scenario_id: Annotated[str, typer.Argument(help="The scenario's id.")],
    as_json: options.AsJson = False,
) -> None:
    """Show one scenario by who knows what: user, agent, tools, judge."""
    scenario = _find(read_suite(folder), scenario_id)
    if as_json:
        document = scenario.model_dump(mode="json")
        tell_json({"scenario": document, "judge": judge_brief(scenario).model_dump(mode="json")})
    else:
        tell(shown(scenario))


def _find(suite: Suite, scenario_id: str) -> Scenario:
    for entry in suite.scenarios:
        if entry.scenario_id == scenario_id:
            return scenario_of(entry)
    known = ", ".join(entry.scenario_id for entry in suite.scenarios)
    raise CliError(f"there is no scenario {scenario_id!r} in {suite.name}; it has {known}")


@command
def new(
    category: Annotated[Category, typer.Argument(help="The scenario's category.")],
    name: Annotated[str, typer.Argument(help="What it shows, in a sentence.")],
    out: Annotated[Path, typer.Option(help="The folder to write it into.")] = Path("."),
) -> None:
    """Write the skeleton of a scenario, with comments on what to change."""
    if not name.strip():
        raise CliError("the scenario needs a name: what it shows, in a sentence")
    if not out.is_dir():
        raise CliError(f"{out} is not a folder")
    file = out / f"{slug(name, 60) or category}.yaml"
    try:
        with file.open("x", encoding="utf-8") as target:
            target.write(skeleton(category, name.strip(), _schema_from(out)))
    except FileExistsError:
        raise CliError(f"{file} is there already: choose another name") from None
    if not (out / SUITE_FILE).is_file():
        say(f"note: {out} has no {SUITE_FILE} yet; a suite is a folder with one")
    tell(str(file))


def _schema_from(folder: Path) -> str:
    return Path(os.path.relpath(SCENARIO_SCHEMA, folder.resolve())).as_posix()
