"""`windtunnel run`: publish a run request, watch it, print the verdict."""

from __future__ import annotations

import getpass
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from schemas.gate import GateStatus
from schemas.registry import Suite
from schemas.runs import RunRequest, RunStatus
from schemas.topics import RUN_REQUESTS
from services.cli import options
from services.cli.connection import Connection, Where, connect
from services.cli.errors import EXIT_INCONCLUSIVE, EXIT_USAGE, VERDICT_EXIT, CliError, command
from services.cli.following import REJECTED, RunFollower
from services.cli.output import say, tell, tell_json
from services.cli.publishing import publish_suite
from services.cli.records import publish
from services.cli.suites import read_suite
from services.cli.verdicts import tell_verdict
from services.cli.watching.display import RunDisplay
from services.cli.watching.fold import figures_of
from services.cli.watching.telling import progress_line
from services.runtime.clock import SystemClock, iso
from services.runtime.ids import RandomIds
from services.runtime.service import Publication

_GRACE_S = 300.0  # for judging, aggregating and deciding after a run's own deadline


@command
async def run(
    suite: Annotated[str, typer.Argument(help="Name or hash of a suite, or its folder.")],
    agent: Annotated[str, typer.Option(help="Id of a registered agent.")],
    trials: Annotated[int, typer.Option(min=1, help="Of each scenario.")] = 1,
    seed: Annotated[int, typer.Option(help="Same seed, same run.")] = 0,
    concurrency: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 8,
    baseline: Annotated[str, typer.Option(help="accepted or none.")] = "accepted",
    run_id: Annotated[str, typer.Option(help="Unique; made up if not given.")] = "",
    scenario: Annotated[
        list[str] | None, typer.Option(help="Only this scenario; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="name=value for the record; may be repeated.")
    ] = None,
    deadline: Annotated[int, typer.Option(min=1, help="Seconds the run may take.")] = 3600,
    retry_budget: Annotated[
        float, typer.Option(min=0, max=1, help="Share of sessions to play again if spoilt.")
    ] = 0.1,
    wait: Annotated[bool, typer.Option(help="Wait for the verdict.")] = True,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show rates, time left and failures as they come.")
    ] = False,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> int:
    """Run a suite against an agent. Exit codes: 0 PASS, 1 FAIL, 3 INCONCLUSIVE."""
    if baseline not in ("accepted", "none"):
        raise CliError(f"--baseline {baseline}: expected accepted or none")
    if watch and not wait:
        raise CliError("--watch and --no-wait contradict each other")
    connection = connect(Where(directory, bootstrap))
    published = await _published(connection, suite)
    request = RunRequest(
        run_id=run_id or new_run_id(published.name if published else suite),
        suite=published.suite_hash if published else suite,
        agent_id=agent,
        trials=trials,
        seed=seed,
        concurrency=concurrency,
        baseline=baseline,
        scenarios=tuple(scenario or ()),
        requested_by=_user(),
        labels=_labels(label or []),
        deadline_s=deadline,
        retry_budget=retry_budget,
    )
    if not wait:
        await publish(connection, Publication(RUN_REQUESTS, request.run_id, request))
        if as_json:
            tell_json({"run_id": request.run_id})
        else:
            tell(request.run_id)
        return 0
    status, verdict = await run_to_verdict(connection, request, watch=watch)
    if as_json:
        tell_json({"run_id": request.run_id, "status": status, "verdict": verdict})
    elif verdict is not None and (status is None or status.state not in REJECTED):
        tell_verdict(verdict)
    return exit_code(request, status, verdict)


async def run_to_verdict(
    connection: Connection, request: RunRequest, *, watch: bool = False
) -> tuple[RunStatus | None, GateStatus | None]:
    """Publish a request and follow it to its verdict; no verdict if none came in time. `watch`:
    show what its sessions do, and not only how many have ended.

    Raises:
        CliError: the run id was used before.
        BusError: the broker cannot be reached.
    """
    async with RunFollower(connection) as follower:
        if follower.status(request.run_id) or follower.verdict(request.run_id):
            raise CliError(f"there is a run {request.run_id} already: choose another --run-id")
        async with RunDisplay(request.run_id, connection if watch else None) as display:
            await publish(connection, Publication(RUN_REQUESTS, request.run_id, request))
            say(f"requested {request.run_id}")
            verdict = await follower.wait_verdict(
                request.run_id, request.deadline_s + _GRACE_S, display.status
            )
        return follower.status(request.run_id), verdict


def exit_code(request: RunRequest, status: RunStatus | None, verdict: GateStatus | None) -> int:
    """0 PASS, 1 FAIL, 3 INCONCLUSIVE; 2 for a request that was refused."""
    if status is not None and status.state in REJECTED:
        say(f"run {request.run_id} was {status.state}:")
        for error in status.errors:
            say(f"  {error}")
        return EXIT_USAGE
    if verdict is None:
        so_far = progress_line(figures_of(status)) if status else "no service has answered"
        say(f"no verdict came; {so_far}")
        return EXIT_INCONCLUSIVE
    return VERDICT_EXIT.get(verdict.verdict, EXIT_INCONCLUSIVE)


def new_run_id(suite: str) -> str:
    """A run id that says which suite and when, and is new."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", suite)[:40].strip("-") or "run"
    at = iso(SystemClock().now_ms())[:19].replace("-", "").replace(":", "")
    return f"{name}-{at}-{RandomIds().new()[:6]}"


async def _published(connection: Connection, suite: str) -> Suite | None:
    """The suite, read and published if a folder is meant; None for a name."""
    found = _read(suite)
    return None if found is None else await publish_suite(connection, found)


def _read(suite: str) -> Suite | None:
    folder = Path(suite)
    if folder.is_dir():
        return read_suite(folder)
    if "/" in suite or suite.startswith("."):
        raise CliError(f"{suite} is not a folder: give a suite's folder, name or hash")
    return None


def _user() -> str:
    with suppress(OSError, KeyError):  # no such user, as in some containers
        return getpass.getuser()
    return ""


def _labels(values: list[str]) -> dict[str, str]:
    labels = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise CliError(f"--label {value}: expected name=value")
        labels[name] = text
    return labels
