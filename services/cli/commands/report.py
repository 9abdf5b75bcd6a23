"""`windtunnel report` and `windtunnel view`: a run as a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from rich.progress import Progress

from services.cli import options
from services.cli.connection import Where, open_the_store
from services.cli.errors import CliError, command
from services.cli.output import console, say, tell, tell_json
from services.cli.report.reading import RunReader
from services.cli.report.serving import viewer
from services.cli.report.writing import DEFAULT_SESSIONS, write_report

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@command
def report(
    run_id: Annotated[str, typer.Argument(help="The run.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The file; RUN.html in this folder otherwise.")
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, help="The most sessions of the run, and of its baseline.")
    ] = DEFAULT_SESSIONS,
    directory: options.Directory = options.DIRECTORY,
    store: options.StoreUrl = "",
    as_json: options.AsJson = False,
) -> None:
    """Write a run into one HTML file that opens anywhere and loads nothing."""
    path = out or Path(f"{_UNFIT.sub('-', run_id) or 'run'}.html")
    if path.is_dir():
        raise CliError(f"{path} is a folder: give --out a file")
    opened = open_the_store(Where(directory, store=store))
    try:
        with Progress(console=console(stderr=True), transient=True) as bars:
            task = bars.add_task("sessions", total=None)
            left_out = write_report(
                RunReader(opened),
                run_id,
                path,
                limit=sessions,
                progress=lambda done, of: bars.update(task, completed=done, total=of),
            )
    finally:
        opened.close()
    if left_out:
        say(f"{left_out} sessions are left out, the best ones: give --sessions, or use view")
    if as_json:
        tell_json({"run_id": run_id, "file": str(path), "left_out": left_out})
    else:
        tell(str(path))


@command
def view(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 for any free one.")] = 8790,
    directory: options.Directory = options.DIRECTORY,
    store: options.StoreUrl = "",
) -> None:
    """Serve the pages of all runs of a store, until Ctrl-C."""
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise CliError(
            f"view listens on this machine only, not on {host}: it has no login. Put a proxy with "
            f"one in front of it, or write a file with `windtunnel report`"
        )
    opened = open_the_store(Where(directory, store=store))
    try:
        opened.ping()
        config = uvicorn.Config(
            viewer(RunReader(opened)), host=host, port=port, log_level="warning", lifespan="off"
        )
        listener = config.bind_socket()
        tell(f"http://{host}:{listener.getsockname()[1]}/")
        uvicorn.Server(config).run([listener])
    finally:
        opened.close()
