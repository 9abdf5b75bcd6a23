"""`windtunnel doctor`: what keeps an agent, or this machine, from working, and how to mend it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from schemas.agent_document import check_url
from services.cli import options
from services.cli.connection import Where
from services.cli.doctor import Request, diagnose, exit_code
from services.cli.doctor.model import Finding
from services.cli.doctor.telling import as_document, summary, tell_finding
from services.cli.errors import CliError, command
from services.cli.output import say, tell_json
from services.cli.signals import stop_on_signals

_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@command
async def doctor(
    app: Annotated[str, typer.Option(help="An ASGI application, as module:attribute.")] = "",
    url: Annotated[str, typer.Option(help="Where a running agent takes turns.")] = "",
    file: Annotated[Path | None, typer.Option(help="A registration in YAML or JSON.")] = None,
    auth_header: Annotated[str, typer.Option(help="Name of the agent's auth header.")] = "",
    auth_value_ref: Annotated[
        str, typer.Option(help="Where its value is: env:NAME or file:PATH. Never the value.")
    ] = "",
    path: Annotated[str, typer.Option(help="Where --app takes turns; found out if it can.")] = "",
    python: Annotated[
        str, typer.Option(help="The interpreter for --app, with uvicorn installed.")
    ] = sys.executable,
    proxy: Annotated[str, typer.Option(help="The tool proxy; the stack's if not given.")] = "",
    tools: Annotated[Path | None, typer.Option(help="A tools list in JSON or YAML.")] = None,
    fix_tools: Annotated[
        Path | None, typer.Option(help="A new file for the tools list in Windtunnel's shape.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="A dataset.")] = None,
    conformance: Annotated[
        bool, typer.Option("--conformance", help="Post turns: does it keep to the contract?")
    ] = False,
    instruction: Annotated[
        str, typer.Option(help="What those turns say; best what the agent calls tools for.")
    ] = "",
    responses: Annotated[
        Path | None, typer.Option(help="What tools answer in those turns: JSON, by tool.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds a question.")] = 10.0,
    import_timeout: Annotated[float, typer.Option(min=1, max=600, help="Seconds.")] = 30.0,
    turn_timeout: Annotated[float, typer.Option(min=1, max=1800, help="Seconds a turn.")] = 60.0,
    directory: options.Directory = options.DIRECTORY,
    bootstrap: options.Bootstrap = "",
    store: options.StoreUrl = "",
    as_json: options.AsJson = False,
) -> int:
    """Check an agent in one pass, or without arguments this machine; say how to mend things."""
    _check_target(app, url, file)
    _check_auth(auth_header, auth_value_ref, has_file=file is not None)
    if tools is not None and file is not None:
        raise CliError("--tools and --file: the registration has the tools; leave one out")
    if fix_tools is not None and tools is None and file is None:
        raise CliError("--fix-tools needs a list to rewrite: --tools or --file")
    if conformance and not (app or url or file):
        raise CliError("--conformance needs an agent: --app, --url or --file")
    if responses is not None and not conformance:
        raise CliError("--responses is for --conformance")
    if proxy:
        _check_url("--proxy", proxy)
    request = Request(
        app=app,
        url=url,
        file=file,
        auth_header=auth_header,
        auth_value_ref=auth_value_ref,
        path=path,
        python=python,
        cwd=Path.cwd(),
        proxy=proxy,
        tools=tools,
        fix_tools=fix_tools,
        csv=csv,
        conformance=conformance,
        instruction=instruction,
        responses=responses,
        where=Where(directory, bootstrap, store),
        timeout_s=timeout,
        import_timeout_s=import_timeout,
        turn_timeout_s=turn_timeout,
    )
    stop_on_signals()

    def show(finding: Finding) -> None:
        if not as_json:
            tell_finding(finding)

    findings = await diagnose(request, show)
    if as_json:
        tell_json(as_document(findings))
    else:
        say(summary(findings))
    return exit_code(findings)


def _check_target(app: str, url: str, file: Path | None) -> None:
    if bool(app) + bool(url) + (file is not None) > 1:
        raise CliError("--app, --url and --file: one agent at a time")
    if app and not _TARGET.fullmatch(app):
        raise CliError(
            f"--app {app}: expected module:attribute, such as my_agent.app:app for the `app` in "
            f"my_agent/app.py"
        )
    if url:
        _check_url("--url", url)


def _check_url(option: str, url: str) -> None:
    try:
        check_url(url)
    except ValueError as error:
        raise CliError(f"{option}: {error}") from None


def _check_auth(header: str, reference: str, *, has_file: bool) -> None:
    if not (header or reference):
        return
    if has_file:
        raise CliError("--auth-header and --auth-value-ref: with --file the registration says them")
    if not (header and reference):
        raise CliError("--auth-header and --auth-value-ref belong together")
    if not _HEADER.fullmatch(header):
        raise CliError("--auth-header: expected the name of an HTTP header, such as Authorization")
    if not _REFERENCE.fullmatch(reference):
        # What was given is likely the secret itself, so it is not repeated.
        raise CliError(
            "--auth-value-ref: expected env:NAME or file:PATH, where the value is found. The value "
            "itself would stay in the shell's history and show in the list of processes"
        )
