"""`windtunnel tau2`: tasks of the benchmark as a suite, recorded results scored again."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from services.cli import options
from services.cli.errors import CliError, command
from services.cli.output import say, tell, tell_json, tell_table
from services.cli.tau2.importing import import_domain
from services.cli.tau2.rescoring import Rescored, rescore_file
from services.runtime.tau2.domains import Domain, domain
from services.runtime.tau2.package import Tau2Missing

app = typer.Typer(help="The benchmark tau2: its tasks and its results.", no_args_is_help=True)


@app.command("import")
@command
def import_(
    domain_name: Annotated[
        str, typer.Argument(metavar="DOMAIN", help="retail, airline, telecom or mock.")
    ],
    out: Annotated[Path, typer.Option(help="The folder of the suite to write.")],
    split: Annotated[str, typer.Option(help="Which of its tasks.")] = "base",
    name: Annotated[str, typer.Option(help="The suite's name; tau2-DOMAIN if not given.")] = "",
    owner: Annotated[str, typer.Option(help="Who keeps the suite; you if not given.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace the scenarios of an earlier import.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Make a suite of a domain's tasks. What scenarios have no place for is told."""
    of = _domain(domain_name)
    done = import_domain(
        of, split, out, name=name or f"tau2-{of.name}", owner=owner or _user(), force=force
    )
    for note in done.notes:
        say(f"note: {note}")
    if as_json:
        tell_json(
            {"folder": str(done.folder), "scenarios": done.scenarios, "notes": list(done.notes)}
        )
    else:
        tell(f"wrote {done.scenarios} scenarios to {done.folder}")


@app.command()
@command
def rescore(
    file: Annotated[
        Path, typer.Argument(help="Results of tau2, or a list of results of tau-bench.")
    ],
    domain_name: Annotated[
        str, typer.Option("--domain", help="The domain, where the file does not say.")
    ] = "",
    as_json: options.AsJson = False,
) -> int:
    """Score recorded results again, and compare. Exit code 1 if a reward differs."""
    if domain_name:
        _domain(domain_name)
    try:
        found = rescore_file(file, domain_name)
    except Tau2Missing as missing:
        raise CliError(str(missing)) from None
    if as_json:
        tell_json(found.as_json())
    else:
        _tell(found)
    return 1 if found.differing else 0


def _tell(found: Rescored) -> None:
    rows = [
        (one.task, one.trial, _figure(one.recorded), _figure(one.reward), one.reason)
        for one in found.sessions
        if one.reward != one.recorded
    ]
    if rows:
        tell_table(("task", "trial", "recorded", "reward", "why"), rows)
    tell(
        f"{len(found.sessions)} sessions of {found.domain}: {found.agreeing} as recorded, "
        f"{len(found.differing)} differ, {len(found.unscored)} cannot be scored"
    )
    for k, value in enumerate(found.pass_hat_k, start=1):
        tell(f"pass^{k} {value:.4f}")


def _figure(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _domain(name: str) -> Domain:
    try:
        return domain(name)
    except (Tau2Missing, ValueError) as error:
        raise CliError(str(error)) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise CliError("--owner is needed: this system has no name for you") from None
