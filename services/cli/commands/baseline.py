"""`windtunnel baseline`: accept a run as what later ones are compared with, and see which is."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from schemas.gate import BaselineAccepted, GateStatus
from schemas.scores import RunAggregates
from schemas.topics import AGGREGATES, BASELINES, GATE_STATUS
from services.cli import options
from services.cli.acceptance import accepted
from services.cli.connection import Connection, Where, connect
from services.cli.errors import CliError, command
from services.cli.output import tell, tell_json, tell_table
from services.cli.records import Latest, publish
from services.cli.verdicts import tell_diff
from services.runtime.clock import SystemClock, iso
from services.runtime.service import Publication

app = typer.Typer(help="What runs are compared with.", no_args_is_help=True)


@app.command()
@command
async def accept(
    run_id: Annotated[str, typer.Argument(help="A run that has its verdict.")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")],
    author: Annotated[str, typer.Option(help="Who accepts it; you, if not given.")] = "",
    despite_fail: Annotated[
        bool, typer.Option("--despite-fail", help="Accept a run that the gate failed.")
    ] = False,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """Accept a run as the baseline of its suite and agent; author, reason and diff are recorded."""
    connection = connect(Where(directory, bootstrap))
    baseline = await accept_run(
        connection, run_id, author or _user(), reason, despite_fail=despite_fail
    )
    if as_json:
        tell_json(baseline)
        return
    replaced = f", in place of {baseline.replaces_run_id}" if baseline.replaces_run_id else ""
    tell(f"{baseline.run_id} is now the baseline {baseline.name}{replaced}")
    tell_diff(baseline.diff)


async def accept_run(
    connection: Connection, run_id: str, author: str, reason: str, *, despite_fail: bool = False
) -> BaselineAccepted:
    """Accept a run; returns what was recorded.

    Raises:
        CliError: the run cannot be accepted; the message says why.
        BusError: the broker cannot be reached.
    """
    aggregates = await Latest(connection, AGGREGATES, RunAggregates).read()
    verdicts = await Latest(connection, GATE_STATUS, GateStatus).read()
    baselines = await Latest(connection, BASELINES, BaselineAccepted).read()
    figures = aggregates.get(run_id)
    current = None if figures is None else baselines.get(f"{figures.suite}/{figures.agent_name}")
    baseline = accepted(
        run_id,
        figures,
        verdicts.get(run_id),
        current,
        author=author,
        reason=reason,
        despite_fail=despite_fail,
        now_ms=SystemClock().now_ms(),
    )
    await publish(connection, Publication(BASELINES, baseline.name, baseline))
    return baseline


@app.command()
@command
async def show(
    name: Annotated[str, typer.Argument(help="SUITE/AGENT; all of them if not given.")] = "",
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> None:
    """The accepted baseline of a suite and agent name: whose, why, and its figures."""
    connection = connect(Where(directory, bootstrap))
    known = await Latest(connection, BASELINES, BaselineAccepted).read()
    if not name:
        _show_all(sorted(known.values(), key=lambda baseline: baseline.name), as_json)
        return
    baseline = known.get(name)
    if baseline is None:
        names = ", ".join(sorted(one.name for one in known.values())) or "none"
        raise CliError(f"there is no baseline {name}; accepted are: {names}")
    if as_json:
        tell_json(baseline)
        return
    tell(f"{baseline.name}: run {baseline.run_id}, accepted {iso(baseline.accepted_at_ms)}")
    tell(f"  by {baseline.author}: {baseline.reason}")
    tell(f"  in place of {baseline.replaces_run_id or 'nothing'}")
    figures = baseline.aggregates
    tell(f"  suite {figures.suite} {figures.suite_version} ({figures.suite_hash})")
    tell_table(
        ("scenario", "category", "passed", "planned"),
        [(s.scenario_id, s.category, s.passed, s.planned) for s in figures.scenarios],
    )
    tell_diff(baseline.diff)


def _show_all(baselines: list[BaselineAccepted], as_json: bool) -> None:
    if as_json:
        tell_json(baselines)
        return
    tell_table(
        ("baseline", "run", "author", "accepted", "reason"),
        [(b.name, b.run_id, b.author, iso(b.accepted_at_ms), b.reason) for b in baselines],
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise CliError("--author is needed: this system has no name for you") from None
