"""`windtunnel gate`: wait for a run's verdict, as a deploy does."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli import options
from services.cli.connection import Where, connect
from services.cli.errors import EXIT_INCONCLUSIVE, VERDICT_EXIT, command
from services.cli.following import RunFollower
from services.cli.output import say, tell_json
from services.cli.verdicts import tell_verdict
from services.cli.watching.display import RunDisplay
from services.cli.watching.fold import figures_of
from services.cli.watching.telling import progress_line

app = typer.Typer(help="The gate's verdicts.", no_args_is_help=True)


@app.command()
@command
async def wait(
    run_id: Annotated[str, typer.Argument(help="The run.")],
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for it.")] = 3600.0,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    as_json: options.AsJson = False,
) -> int:
    """Wait for a verdict. Exit codes: 0 PASS, 1 FAIL, 3 INCONCLUSIVE or none in time."""
    async with RunFollower(connect(Where(directory, bootstrap))) as follower:
        async with RunDisplay(run_id) as display:
            verdict = await follower.wait_verdict(run_id, timeout, display.status)
        status = follower.status(run_id)
    if verdict is None:
        so_far = (
            progress_line(figures_of(status)) if status else f"nothing is known of a run {run_id}"
        )
        say(f"no verdict within {timeout:g} s; {so_far}")
        if as_json:
            tell_json({"run_id": run_id, "verdict": None, "status": status})
        return EXIT_INCONCLUSIVE
    if as_json:
        tell_json(verdict)
    else:
        tell_verdict(verdict)
    return VERDICT_EXIT.get(verdict.verdict, EXIT_INCONCLUSIVE)
