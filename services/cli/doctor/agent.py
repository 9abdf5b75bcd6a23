"""The steps about the agent itself: its application, its registration, its endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from schemas.agent_document import AgentDocument
from schemas.errors import InvalidDocument
from schemas.registry import AgentRegistration
from services.cli.doctor.application import Application
from services.cli.doctor.catalogue import BY_ID
from services.cli.doctor.context import Context
from services.cli.doctor.documents import read_document
from services.cli.doctor.examination import in_thread
from services.cli.doctor.model import (
    Finding,
    Outcome,
    Settled,
    Step,
    Tell,
    failed,
    ok,
    skipped,
    warning,
)
from services.cli.errors import CliError
from services.cli.registration import read_agent
from services.runtime.agents.connection import ConnectionReport, Probe, test_connection

_LAST_LINES_S = 0.1
_ELSEWHERE = (404, 405)
_DISPATCH = "/dispatch"
_GRACE_S = 5.0


def application_steps(import_timeout_s: float) -> list[Step[Context]]:
    return [
        Step(("import",), _import, timeout_s=import_timeout_s + _GRACE_S),
        Step(("serve",), _serve, needs=("import",), timeout_s=import_timeout_s + _GRACE_S),
    ]


def endpoint_steps(timeout_s: float) -> list[Step[Context]]:
    needs = ("import", "serve", "registration")
    return [
        Step(("auth_value",), _auth_value, needs=needs),
        Step(
            ("endpoint", "ping", "ping_wrong_auth", "ping_no_auth"),
            _endpoint,
            needs=(*needs, "auth_value"),
            timeout_s=3 * timeout_s + _GRACE_S,
        ),
    ]


def registration_steps() -> list[Step[Context]]:
    return [Step(("registration",), _registration)]


async def _import(context: Context, tell: Tell) -> None:
    request = context.request
    application = Application(
        request.app, python=request.python, cwd=request.cwd, deadline_s=request.import_timeout_s
    )
    context.application = application
    try:
        application.start()
    except OSError as error:
        detail = f"{request.python} cannot be started: {error.strerror}"
        raise Settled(failed("import", detail, "name a Python interpreter with --python")) from None
    report = await application.report(request.import_timeout_s + 1)
    if report["stage"] != "imported":
        raise Settled(_import_failed(context, report))
    context.posts = tuple(report.get("posts", ()))
    tell(ok("import", f"{request.app} is an ASGI application"))


def _import_failed(context: Context, report: Mapping[str, Any]) -> Finding:
    module, _, attribute = context.request.app.partition(":")
    detail, where = report.get("detail", ""), report.get("where", "")
    at = f", at {where}" if where else ""
    mend = BY_ID["import"].mend
    lines = context.output()
    kind = report.get("kind", report["stage"])
    if kind == "module_missing":
        message = f"there is no module {module} ({detail})"
        mend = f"start the doctor in the folder that holds it, now {context.request.cwd.resolve()}"
        lines = ()
    elif kind == "attribute_missing":
        message = f"{module} imports, but has no {attribute}"
        mend = f"it has these: {detail}" if detail else "name the ASGI application in it"
    elif kind == "not_asgi":
        message, mend = f"{attribute} is no ASGI application: {detail}", "see what it should be"
        mend = "name the application itself: an instance of FastAPI, Starlette or the like"
    elif kind == "exits":
        message = f"importing {module} ends the process: {detail}{at}"
        mend = 'move what runs the program under `if __name__ == "__main__":`'
    elif kind == "hangs":
        message = f"importing {module} did not end in {context.request.import_timeout_s:g} s{at}"
        mend = "move what serves or waits into the application's startup, or main()"
    elif kind == "silent":
        message = f"importing {module} did not end in {context.request.import_timeout_s:g} s"
    elif kind == "ended":
        message = f"importing {module} ended the process: {_how(report['code'])}"
    elif kind == "raised":
        message = f"importing {module} raised {detail}{at}"
        mend = _mend_raised(detail) or mend
    else:
        message = f"{detail}{at}"
    return failed("import", message, mend, *lines)


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _mend_raised(detail: str) -> str:
    if detail.startswith("ModuleNotFoundError"):
        return "install what it needs for this interpreter, or name the agent's with --python"
    if detail.startswith("KeyError"):
        return "if this is an environment variable, set it as for the agent"
    return ""


async def _serve(context: Context, tell: Tell) -> None:
    request, application = context.request, context.application
    assert application is not None
    report = await application.report(request.import_timeout_s)
    mend = BY_ID["serve"].mend
    if report["stage"] == "serving":
        path = _path(request.path, context.posts)
        context.agent = _agent(context, f"http://127.0.0.1:{report['port']}{path}")
        tell(ok("serve", f"uvicorn serves it; turns are posted to {path}"))
        return
    if report.get("kind") == "no_uvicorn":
        detail, mend = f"{request.python} has no uvicorn", "install uvicorn there"
    elif report["stage"] == "ended":
        detail = f"its startup ended the process: {_how(report['code'])}"
    elif report["stage"] == "silent":
        detail = f"its startup did not end in {request.import_timeout_s:g} s"
    else:
        detail = report.get("detail", "") or "it did not start"
    raise Settled(failed("serve", detail, mend, *context.output()))


def _path(given: str, posts: tuple[str, ...]) -> str:
    """Where turns are posted: as given, the contract's, or the only place that there is."""
    if given:
        return given if given.startswith("/") else f"/{given}"
    return posts[0] if len(posts) == 1 and "{" not in posts[0] else _DISPATCH


def agent_at_url(context: Context) -> None:
    """Set the agent of `--url`."""
    context.agent = _agent(context, context.request.url)


def _agent(context: Context, url: str) -> AgentRegistration:
    return AgentRegistration(
        agent_id="agent",
        name="agent",
        endpoint=url,
        auth_header=context.request.auth_header or None,
        auth_value_ref=context.request.auth_value_ref or None,
    )


async def _registration(context: Context, tell: Tell) -> None:
    file = context.request.file
    assert file is not None
    try:
        context.tools_file = str(file)
        raw = await in_thread(lambda: read_document(file))
        context.tools_list = raw.get("tools", []) if isinstance(raw, dict) else None
        document = await in_thread(lambda: read_agent(file))
    except CliError as error:
        raise Settled(failed("registration", str(error), "name the file")) from None
    except InvalidDocument as error:
        mend = BY_ID["registration"].mend
        count = len(error.problems)
        detail = f"{file} cannot be registered: {count} problem{'s'[: count != 1]}"
        raise Settled(
            failed("registration", detail, mend, *map(str, error.problems[:20]))
        ) from None
    context.agent = _registered(document)
    tell(ok("registration", f"{file} registers {document.agent_id}, of kind {document.kind}"))


def _registered(document: AgentDocument) -> AgentRegistration:
    if document.kind != "code":
        return document.registration()
    # The source is published with the registration only; there is no endpoint to talk to anyway.
    tools = tuple(tool.registration() for tool in document.tools)
    return AgentRegistration(
        agent_id=document.agent_id, name=document.name, kind="code", endpoint="", tools=tools
    )


async def _auth_value(context: Context, tell: Tell) -> None:
    agent = context.the_agent()
    if not agent.auth_header:
        tell(ok("auth_value", "none is given: the agent is asked without auth"))
        return
    value = await in_thread(lambda: context.auth_value("auth_value"))
    assert value is not None
    if agent.auth_header.lower() == "authorization" and " " not in value:
        detail = f"{agent.auth_value_ref} has a value, but it is one word"
        mend = "Authorization takes a scheme, as in `Bearer TOKEN`: put both into the value"
        tell(warning("auth_value", detail, mend))
        return
    tell(ok("auth_value", f"{agent.auth_value_ref} has a value"))


async def _endpoint(context: Context, tell: Tell) -> None:
    report = await test_connection(context.the_agent(), context.request.timeout_s)
    for finding in _findings(report):
        lines: list[str] = []
        if finding.outcome is Outcome.FAILED:
            if report.probes[0].status in _ELSEWHERE and context.posts:
                lines.append(f"the application takes POST at {', '.join(context.posts)}")
            if context.application is not None:
                await asyncio.sleep(_LAST_LINES_S)  # they may be on the way
            lines += context.output()
        tell(replace(finding, lines=tuple(lines)))


def _findings(report: ConnectionReport) -> list[Finding]:
    """The probes of a connection test as checks."""
    first, others = report.probes[0], {probe.name: probe for probe in report.probes[1:]}
    if first.name == "sandbox":
        return [
            skipped(check, first.detail)
            for check in ("endpoint", "ping", "ping_wrong_auth", "ping_no_auth")
        ]
    if first.status is None:
        return [failed("endpoint", first.detail, first.hint or BY_ID["endpoint"].mend)]
    took = f" in {first.latency_ms} ms" if first.verdict == "ok" else ""
    findings = [
        ok("endpoint", f"{report.endpoint} answers HTTP"),
        _finding("ping", first, f"{first.detail}{took}"),
    ]
    for check in ("ping_wrong_auth", "ping_no_auth"):
        if probe := others.get(check):
            findings.append(_finding(check, probe, probe.detail))
        elif report.kind != "http":
            findings.append(skipped(check, f"agents of kind {report.kind} are not asked"))
        elif check == "ping_no_auth" and (probe := others.get("open")):
            findings.append(_finding(check, probe, probe.detail))
        else:
            findings.append(skipped(check, "no auth header is given"))
    return findings


def _finding(check: str, probe: Probe, detail: str) -> Finding:
    if probe.verdict == "ok":
        return ok(check, detail)
    mend = probe.hint or BY_ID[check].mend
    return (warning if probe.verdict == "warning" else failed)(check, detail, mend)
